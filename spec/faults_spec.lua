-- What a script can do to the library with debug functions, hooks that misbehave, tables
-- without end and numbers out of range: clean errors, and everything as it was before.
local flare = require "flare"
local fails = require "spec.support.expect".refused
local core, nn, optim = flare.core, flare.nn, flare.optim
local tree = require "spec.support.tree"

local function same(a, b) return a:eq(b):all():item() end

-- One object of each type that the library has.
local function objects()
  local path = os.tmpname()
  assert(core.file.write_atomic(path, "12345678"))
  local w = core.ones(2, {requires_grad = true})
  local loss = (w * w):sum()
  local all = {
    tensor = core.ones(3), generator = core.generator(1), channel = core.channel(2),
    shape = core.ones(2, 3).shape, hook = w:register_hook(function() end),
    map = core.file.map(path), thread = core.spawn "return 1", gradients = loss:backward(),
    guard = core.no_grad(),
  }
  debug.getmetatable(all.guard).__close(all.guard)
  os.remove(path)
  return all
end

describe("metatables", function()
  local all = objects()
  teardown(function()
    all.thread:join()
  end)

  it("are hidden", function()
    for name, object in pairs(all) do
      assert.equal("string", type(getmetatable(object)), name)
      assert.has_error(function() setmetatable(object, {}) end)
    end
  end)

  -- every function that a type's objects have
  local function functions(object)
    local list, mt = {}, debug.getmetatable(object)
    for name, f in pairs(mt) do
      if type(f) == "function" then list[#list + 1] = {name, f} end
      if name == "__index" and type(f) == "table" then
        for method, g in pairs(f) do list[#list + 1] = {method, g} end
      end
    end
    return list
  end

  it("have functions that take no strangers", function()
    local strangers = {"text", 1, 1.5, true, {}, print, io.stdout, coroutine.create(print)}
    for name, object in pairs(all) do
      for _, f in ipairs(functions(object)) do
        for other, stranger in pairs(all) do
          if other ~= name and name ~= "tensor" then
            pcall(f[2], stranger, 1, 1)
            pcall(f[2], stranger, -1)
          end
        end
        for _, stranger in ipairs(strangers) do
          pcall(f[2], stranger, 1, 1)
          pcall(f[2], stranger, -1)
        end
        pcall(f[2])
        pcall(f[2], nil, nil)
      end
    end
    assert.equal("flare.tensor f32 [3] cpu", tostring(all.tensor):match "[^\n]*$")
    assert.same({2, 2, 2}, (all.tensor + 1):totable())
  end)

  it("name what they get instead of a tensor", function()
    local mt = debug.getmetatable(all.tensor)
    fails("add: a: expected a tensor or a number, got FILE*", mt.__add, io.stdout, 1)
    fails("nonsense: x: expected a tensor, got nil", mt.__index, nil, "nonsense")
    fails("x[...]: x: expected a tensor, got table", mt.__newindex, {}, 1, 2)
    fails("#: x: expected a tensor, got string", mt.__len, "x")
    fails("tostring: x: expected a tensor, got an integer", mt.__tostring, 3)
    fails("close: x: expected a tensor, got FILE*", mt.__close, io.stdout)
    mt.__gc(flare)
    mt.__gc(nil)
    local x = core.ones(2)
    mt.__gc(x)
    mt.__gc(x)
    fails("sum: x: tensor is closed", x.sum, x)
  end)

  it("of one type do not fit another's objects", function()
    for name, object in pairs(all) do
      local own = debug.getmetatable(object)
      for other, model in pairs(all) do
        if other ~= name and name ~= "thread" and name ~= "guard" then
          local list = functions(model)
          debug.setmetatable(object, debug.getmetatable(model))
          for _, f in ipairs(list) do pcall(f[2], object, 1, 1) end
          pcall(function() return object.shape, object + object, #object, tostring(object) end)
          debug.setmetatable(object, own)
        end
      end
      pcall(debug.setuservalue, object, {}, 1)
      pcall(debug.setuservalue, object, nil, 1)
    end
    assert.same({1, 1, 1}, all.tensor:totable())
    assert.equal(2, #all.shape)
  end)

  it("have finalisers that may run twice", function()
    for name, object in pairs(objects()) do
      local mt = debug.getmetatable(object)
      for _ = 1, 2 do
        for _, event in ipairs{"__close", "__gc"} do
          if mt[event] then assert(pcall(mt[event], object), name .. event) end
        end
      end
      if name ~= "guard" and name ~= "hook" and name ~= "gradients" then
        pcall(function() return object:close(), object[1], #object, tostring(object) end)
      end
    end
    assert.is_true(core.grad_enabled())
  end)
end)

describe("a closed tensor", function()
  local function closed()
    local x = core.ones(2, 2)
    x:close()
    return x
  end

  it("says so in every method", function()
    local x, y = closed(), core.ones(2, 2)
    for _, op in ipairs(core.ops()) do
      if op.method and op.params[1] and op.params[1].kind == "tensor" then
        local given = {x}
        for k = 2, #op.params do
          local p = op.params[k]
          if p.kind == "tensor" and not p.optional then given[#given + 1] = y end
        end
        local _, message = pcall(core.ops[op.name], table.unpack(given))
        assert.is_truthy(message:find("tensor is closed", 1, true)
                         or message:find("is missing", 1, true)
                         or message:find("dim: expected", 1, true), message)
      end
    end
    for _, name in ipairs{"item", "totable", "tolist", "to", "clone", "detach", "backward",
                          "register_hook", "requires_grad_", "retain_grad", "bytes", "numel"} do
      fails("tensor is closed", y[name], x)
    end
    fails("tensor is closed", function() return x[1] end)
    fails("tensor is closed", function() x[1] = 0 end)
    fails("tensor is closed", function() y[1] = x end)
    fails("got a closed tensor", function() return y[x] end)
    fails("tensor is closed", function() return #x end)
    fails("tensor is closed", function() return x.shape end)
    fails("tensor is closed", function() y.grad = x end)
    fails("tensor is closed", function() return y + x end)
    fails("tensor is closed", core.cat, {y, x})
    fails("tensor is closed", core.grad, y, x)
    fails("cannot write a closed tensor (at 'x')", flare.save, "/tmp/none", {x = x})
    assert.equal("flare.Tensor (closed)", tostring(x))
    assert.is_true(x.closed)
    x:close()
  end)

  it("in a model is named with its place", function()
    local model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    model[2][1].weight:close()
    fails("linear: weight: tensor is closed (at spec/faults_spec.lua:169) (in Sequential.2.1)",
      model, core.ones(1, 2))
  end)

  it("leaves its views, its graph and its gradient alone", function()
    local w = core.ones(2, {requires_grad = true})
    local h = w * 3
    local loss = (h * h):sum()
    local row = h[1]
    h:close()
    loss:backward()
    assert.same({18, 18}, w.grad:totable())
    assert.equal(3, row:item())
    w:close()
  end)
end)

describe("a tensor resurrected by a finaliser", function()
  it("is closed or whole, in a collection and at the end of the state", function()
    local script = [[
local core = require "flare".core
local kept = {}
for i = 1, 50 do
  local x = core.ones(i)
  setmetatable({x = x}, {__gc = function(o) kept[#kept + 1] = o.x end})
end
collectgarbage() collectgarbage() collectgarbage()
local closed = 0
for _, x in ipairs(kept) do
  if x.closed then closed = closed + 1 else assert(x:sum():item() == #x) end
  local ok, message = pcall(function() return x + 1 end)
  assert(ok or message:find "tensor is closed", message)
end
print(#kept, closed <= #kept)
-- at the end: the finaliser runs when everything else is being closed, too
local last = core.ones(4)
global = setmetatable({}, {__gc = function()
  local ok, message = pcall(function() return #last:totable() end)
  io.write(tostring(ok or message:find "closed" ~= nil), "\n")
end})
]]
    local pipe = assert(io.popen(("'%s' -e '%s' 2>&1"):format(
      os.getenv "FLARE_PROGRAM" or tree.build .. "/flare", script)))
    local text = pipe:read "a"
    assert.is_true(pipe:close())
    assert.equal("50\ttrue\ntrue\n", text)
  end)
end)

describe("functions on the tape that misbehave", function()
  local w, y, loss
  before_each(function()
    w = core.ones(2, {requires_grad = true})
    y = w * 2
    loss = (y * y):sum()
  end)
  -- the runtime is as it was, and so is a new graph
  after_each(function()
    assert.is_true(core.grad_enabled())
    w = core.ones(2, {requires_grad = true})
    ;((w * 2):square()):sum():backward()
    assert.same({8, 8}, w.grad:totable())
  end)

  it("may raise anything; the graph can be used again", function()
    local hook = y:register_hook(function() error {"a table"} end)
    local ok, err = pcall(loss.backward, loss, {retain_graph = true})
    assert.is_false(ok)
    assert.same({"a table"}, err)
    assert.is_nil(w.grad)
    hook:remove()
    loss = ((w * 2):square()):sum()
    loss:backward()
    assert.same({8, 8}, w.grad:totable())
  end)

  it("cannot yield", function()
    y:register_hook(function() coroutine.yield() end)
    fails("attempt to yield across a C-call boundary", coroutine.wrap(function()
      loss:backward()
    end))
    fails("attempt to yield across a C-call boundary", coroutine.wrap(function()
      core.scope(coroutine.yield)
    end))
    fails("attempt to yield across a C-call boundary", coroutine.wrap(function()
      core.no_grad(coroutine.yield)
    end))
    fails("attempt to yield across a C-call boundary", coroutine.wrap(function()
      core.checkpoint(function(t) coroutine.yield() return t end, w)
    end))
  end)

  it("may close everything", function()
    y:register_hook(function(g)
      g:close()
      y:close()
      w:close()
      loss:close()
    end)
    loss:backward()
    assert.is_true(w.closed)
  end)

  it("cannot go backward through the graph that is running", function()
    y:register_hook(function() loss:backward() end)
    fails("backward inside backward over the same graph", loss.backward, loss)
  end)

  it("may go backward through another graph", function()
    local v = core.ones(2, {requires_grad = true})
    y:register_hook(function()
      core.enable_grad(function() (v * 3):sum():backward() end)
    end)
    loss:backward()
    assert.same({3, 3}, v.grad:totable())
    assert.same({8, 8}, w.grad:totable())
  end)

  it("must give gradients that fit", function()
    local given
    y:register_hook(function() return given end)
    local function backward() ((y * y):sum()):backward() end
    given = core.ones(7)
    fails("gave a gradient of shape (7), not (2)", backward)
    given = 3
    fails("a hook returns a gradient or nothing, not an integer", backward)
    given = core.ones(2)
    given:close()
    fails("a hook returns a gradient or nothing, not a closed tensor", backward)
    local f = core.custom("twist", function(_, x) return x * 1 end,
                          function() return core.ones(5) end)
    fails("gave a gradient of shape (5) for input 1, not (2)",
          function() f(w):sum():backward() end)
  end)

  it("may close what they were given", function()
    local f = core.custom("shut", function(ctx, x) ctx:save(x) return x * 1 end,
                          function(ctx, dy) ctx.saved[1]:close() dy:close() return dy end)
    fails("gradient 1 is not a tensor, but a closed tensor", function()
      f(w):sum():backward()
    end)
  end)
end)

describe("things without end", function()
  it("are refused where they are too deep", function()
    local deep, ring = {1}, {}
    for _ = 1, 200000 do deep = {deep} end
    ring[1] = ring
    fails("tensor: tables are nested deeper than 8 levels", core.tensor, deep)
    fails("tensor: tables are nested deeper than 8 levels", core.tensor, ring)
    fails("reshape: shape: expected an integer, got table", core.ones(1).reshape, core.ones(1),
          deep)
    fails("nested", core.json.encode, deep)
    fails("nested", core.json.encode, ring)
    local value, message = core.json.decode(("["):rep(200000))
    assert.is_nil(value)
    assert.match("depth", message)
    fails("nested more than", flare.save, "/tmp/none", {ring = ring})
    fails("nested", core.channel(1).push, core.channel(1), deep)
  end)

  it("are refused in models", function()
    local ring = nn.Sequential(nn.Linear(1, 1))
    ring.me = ring
    fails("Sequential contains itself at 'me'", ring.parameters, ring)
    fails("Sequential contains itself at 'me'", ring.state_dict, ring)
    fails("Sequential contains itself at 'me'", ring.to, ring, "cpu")
    fails("contains itself", tostring, ring)
    local tower = nn.Linear(1, 1)
    for _ = 1, 5000 do tower = nn.Sequential(tower) end
    fails("modules are nested more than 200 deep", tower.parameters, tower)
    local states = {}
    states.weight = states
    fails("weight is a table, not a tensor", nn.Linear(1, 1).load_state_dict, nn.Linear(1, 1),
          states)
  end)

  it("go backward when they are long only", function()
    local w = core.ones(1, {requires_grad = true})
    local y = w
    for _ = 1, 100000 do y = y + 1 end
    y:backward()
    assert.equal(1, w.grad:item())
  end)
end)

describe("numbers out of range", function()
  local x = core.arange(1, 7):to("f32"):view(2, 3)
  local i64 = function(...) return core.tensor({...}, {dtype = "i64"}) end

  it("are named", function()
    fails("position 9007199254740993 is out of range 1..2", function() return x[2^53 | 1] end)
    fails("positions are integers, got nan", function() return x[0 / 0] end)
    fails("positions are integers, got inf", function() return x[1 / 0] end)
    fails("too large", core.zeros, 1 << 40, 1 << 40)
    fails("too large", core.zeros, math.maxinteger)
    fails("too large", core.ones(1).expand, core.ones(1), math.maxinteger, math.maxinteger)
    fails("too large", x.reshape, x, 1 << 32, 1 << 32)
    fails("negative", x.view, x, -2, -3)
    fails("negative", x.narrow, x, 1, 1, -1)
    fails("out of range", x.narrow, x, 1, 1 << 62, 1)
    fails("do not lie within", x.narrow, x, 2, 2, math.maxinteger)
    fails("do not lie within", x.narrow, x, 2, 2, 2, math.maxinteger)
    fails("there is no dim 99", x.sum, x, 99)
    fails("there is no dim", x.sum, x, math.mininteger)
    fails("out of range", x.select, x, 1, math.mininteger)
    fails("out of memory", core.zeros, 1 << 48)
  end)

  it("leave what would have been changed as it was", function()
    local before = x:clone()
    local far = core.tensor({{1, 2, 9}, {1, 1, 1}}, {dtype = "i64"})
    fails("gather: position 9 is out of range 1..3", x.gather, x, 2, far)
    fails("position 9 is out of range", x.scatter_, x, 2, far, core.zeros(2, 3))
    fails("position 3 is out of range", x.index_add_, x, 1, i64(1, 3), core.ones(2, 3))
    fails("out of range", x.index_copy_, x, 2, i64(1, -9), core.zeros(2, 2))
    fails("out of range", function() x[i64(1, 7)] = 0 end)
    fails("out of range", function() x[{{1, 2}, {2, 9}}] = 0 end)
    fails("does not broadcast", function() x[1] = core.zeros(2) end)
    fails("do not broadcast", x.add_, x, core.zeros(4))
    assert.is_true(same(before, x))
  end)

  it("in a batch leave the model and the optimizer as they were", function()
    local model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 3))
    local optimizer = optim.Adam(model:parameters(), {lr = 0.1})
    local function step(tokens, target)
      local loss = nn.functional.cross_entropy(model(tokens), target)
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
    local tokens = core.tensor({{1, 2}}, {dtype = "i64"})
    step(tokens, i64(1))
    local before = {}
    for name, t in pairs(model:state_dict()) do before[name] = t:clone() end
    fails("embedding: position 99 is out of range 1..10", step,
          core.tensor({{1, 99}}, {dtype = "i64"}), i64(1))
    fails("cross_entropy: position 4 is out of range 1..3", step, tokens, i64(4))
    for name, t in pairs(model:state_dict()) do assert.is_true(same(before[name], t), name) end
    step(tokens, i64(1))
  end)

  it("of backward passes leave the gradients as they were", function()
    local w = core.ones(2, {requires_grad = true})
    local loss = (w * w):sum()
    loss:backward()
    fails("a second time", loss.backward, loss)
    assert.same({2, 2}, w.grad:totable())
    local z = w * 1
    local other = (z * z + w):sum()
    z:add_(1)
    fails("changed in place", other.backward, other)
    fails("needs a gradient of that shape", z.backward, z)
    assert.equal(2, #w.grad)
  end)
end)
