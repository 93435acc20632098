-- flare.session: marks that copy what is written afterwards. Bits and bytes against a record of its
-- own, over random marks, ways back, forks and drops.
local flare = require "flare"
local message = require "spec.support.expect".message
local nn, optim, memory = flare.nn, flare.optim, flare.memory

local function bits(x) return x:detach():cpu():contiguous():bytes() end

-- A model in training, with plain values and a tensor that is replaced.
local function world(device)
  flare.manual_seed(3)
  local model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Dropout(0.3),
                              nn.Linear(7, 3)):to(device)
  local w = {model = model, optimizer = optim.Adam(model, {lr = 0.05}), notes = {best = 1},
             extra = flare.zeros({11}, {device = device})}
  w.schedule = optim.StepLR(w.optimizer, {every = 3, gamma = 0.7})
  function w.step()
    local x = flare.randn({4, 5}, {device = device})
    local loss = model(x):square():mean()
    w.optimizer:zero_grad()
    loss:backward()
    w.optimizer:step()
    w.schedule:step()
    w.notes.best = math.min(w.notes.best, loss:item())
    return loss:item()
  end
  return w
end

-- Every tensor by a name that stays, and the plain values.
local function tensors_of(w)
  local all = {extra = w.extra}
  for name, x in w.model:named_parameters() do all[name] = x end
  for k, x in ipairs(w.model:buffers()) do all["buffer " .. k] = x end
  for k, p in ipairs(w.model:parameters()) do all["grad " .. k] = p.grad end
  for g, group in ipairs(w.optimizer.groups) do
    for k, state in pairs(group.state) do
      for j, m in ipairs(state.moments or {}) do all[("state %d %s %d"):format(g, k, j)] = m end
    end
  end
  return all
end

local function values_of(w)
  local out = {best = w.notes.best, more = w.notes.more, lr = w.optimizer.groups[1].lr,
               states = 0}
  for _, state in pairs(w.optimizer.groups[1].state) do out.states = out.states + state.step end
  out.seed, out.offset = flare.default_generator():state()
  return out
end

local function record(w)
  local r = {values = values_of(w), bits = {}}
  for name, x in pairs(tensors_of(w)) do r.bits[name] = bits(x) end
  return r
end

local function same(w, r)
  assert.same(r.values, values_of(w))
  local now = record(w).bits
  for name, text in pairs(r.bits) do assert(text == now[name], name) end
  for name in pairs(now) do assert(r.bits[name], name) end
end

-- What memory should be: tensors have contents, numbers that a write renews; a mark has the
-- contents of its tensors. Each content of a live mark that its tensor has no more is a copy.
local Model = {}
Model.__index = Model

function Model:see(w, touched)
  local now = {}
  for _, x in pairs(tensors_of(w)) do
    local id = self.at[x.id]
    if not id or touched == true or touched == x.id then
      self.count = self.count + 1
      id = self.count
    end
    now[x.id], self.bytes[x.id] = id, x:numel() * 4
    if x.dtype == "i64" then self.bytes[x.id] = x:numel() * 8 end
    self.at[x.id] = id
  end
  self.now = now
end

function Model:copies()
  local sum, seen = 0, {}
  for _, contents in pairs(self.marks) do
    for x, id in pairs(contents) do
      if self.at[x] ~= id and not seen[id] then
        sum, seen[id] = sum + self.bytes[x], true
      end
    end
  end
  return sum
end

-- The tensors of marks that the world has no more.
function Model:held()
  local sum, seen = 0, {}
  for _, contents in pairs(self.marks) do
    for x in pairs(contents) do
      if not self.now[x] and not seen[x] then sum, seen[x] = sum + self.bytes[x], true end
    end
  end
  return sum
end

function Model:world()
  local sum = 0
  for x in pairs(self.now) do sum = sum + self.bytes[x] end
  return sum
end

local function live(device)
  collectgarbage()
  collectgarbage()
  return memory.stats(device).live
end

-- Random actions, until there were `ways` marks, ways back and forks.
local function campaign(device, ways, seed)
  local before = live(device)
  local w = world(device)
  local s = flare.session(w)
  local random = flare.generator(seed)
  local function below(n) return flare.randint(1, n + 1, {1}, {generator = random})[1]:item() end
  local model = setmetatable({at = {}, bytes = {}, marks = {}, count = 0, now = {}}, Model)
  local records, done = {}, {mark = 0, back = 0, fork = 0, drop = 0}
  local fixed = nil
  model:see(w)
  local function note(mark)
    records[mark], model.marks[mark] = record(w), {}
    for x, id in pairs(model.now) do model.marks[mark][x] = id end
  end
  local function went(mark)
    same(w, records[mark])
    for x, id in pairs(model.marks[mark]) do model.at[x] = id end
    model:see(w)
  end
  local actions = {
    function() -- all that is trained changes; gradients are new
      w.step()
      for name, x in pairs(tensors_of(w)) do
        if name ~= "extra" and not name:find "^grad" then model:see(w, x.id) end
      end
    end,
    function() -- a view of one parameter
      flare.no_grad(function() w.model[1].weight[2]:mul_(1.5) end)
      model:see(w, w.model[1].weight.id)
    end,
    function()
      w.extra:add_(1)
      model:see(w, w.extra.id)
    end,
    function()
      w.extra = flare.full({11}, below(100), {device = device})
      model:see(w)
    end,
    function() w.notes.more = not w.notes.more and below(9) or nil end,
    function()
      note(s:mark())
      done.mark = done.mark + 1
    end,
    function()
      if not s.marks[1] then return end
      local mark = s.marks[below(#s.marks)]
      s:back(mark)
      went(mark)
      done.back = done.back + 1
    end,
    function()
      if not s.base then return end
      local base = s.base
      local now = record(w)
      local tip = s:fork()
      records[tip], model.marks[tip] = now, {}
      for x, id in pairs(model.now) do model.marks[tip][x] = id end
      went(base)
      done.fork = done.fork + 1
    end,
    function()
      if #s.marks < 6 then return end
      local mark = s.marks[below(#s.marks)]
      s:drop(mark)
      records[mark], model.marks[mark] = nil, nil
      done.drop = done.drop + 1
    end,
  }
  for k = 6, 8 do actions[#actions + 1] = actions[k] end -- twice as often
  local round = 0
  while done.mark + done.back + done.fork < ways do
    round = round + 1
    actions[#s.marks > 8 and 9 or below(#actions)]()
    assert.equal(model:copies(), s:bytes())
    if round % 50 == 0 then
      -- what the runtime itself holds: the generators' numbers, nothing that grows
      local rest = live(device) - before - model:world() - model:copies() - model:held()
      fixed = fixed or rest
      assert.equal(fixed, rest)
    end
  end
  return done
end

describe("flare.session", function()
  it("goes back bit for bit over random marks, with memory as predicted", function()
    local done = campaign("cpu", 1000, 7)
    for name, n in pairs(done) do assert(n > 100, name) end
  end)

  it("does so on an asynchronous device", function()
    local done = campaign("sim:0", 150, 8)
    assert.is_true(done.back > 20 and done.fork > 20)
  end)

  it("costs nothing until something is written, and then only that", function()
    local x, y = flare.ones(1000), flare.ones(500)
    local before = live()
    local s = flare.session {x = x, y = y}
    local a, b = s:mark(), s:mark()
    assert.equal(0, live() - before)
    y[7] = 3
    y[8] = 4
    assert.equal(2000, live() - before)
    assert.same({2000, 2000, 2000}, {s:bytes(), a:bytes(), b:bytes()})
    s:back(a)
    assert.equal(0, live() - before)
    assert.equal(500, y:sum():item())
    y:zero_()
    s:drop(a)
    assert.equal(2000, s:bytes())
    s:drop(b)
    assert.equal(0, live() - before)
  end)

  it("keeps what pure functions and compiled steps write", function()
    local world_ = world "cpu"
    local run = flare.compile(world_.step, {exact = true})
    for _ = 1, 6 do run() end
    local s = flare.session(world_)
    local losses, again = {}, {}
    local mark = s:mark()
    for k = 1, 6 do losses[k] = run() end
    local after = record(world_)
    for _ = 1, 2 do
      s:back(mark)
      for k = 1, 6 do again[k] = run() end
      assert.same(losses, again)
      same(world_, after)
    end
    local token, w = flare.ones(1, 8), flare.full({8, 8}, 0.1)
    local decode = flare.compile(function()
      token:copy_((token:matmul(w) + token):tanh())
      return token:sum()
    end, {pure = true})
    for _ = 1, 10 do decode() end
    s = flare.session {token, w}
    local before = bits(token)
    mark = s:mark()
    local third
    for k = 1, 5 do third = k == 3 and decode():item() or decode() and third end
    s:back(mark)
    assert.equal(before, bits(token))
    for _ = 1, 2 do decode() end
    assert.equal(third, decode():item())
    assert.is_true(flare.compile_stats(decode).traced > 0)
  end)

  it("copies memory that other code may write at once", function()
    local x = flare.ones(100)
    local raw = flare.from_dlpack(x:to_dlpack())
    local s = flare.session {x}
    local mark = s:mark()
    assert.equal(400, s:bytes())
    raw:fill_(5)
    s:back(mark)
    assert.equal(100, x:sum():item())
  end)

  it("goes to steps, compares branches and says what is wrong", function()
    local w = world "cpu"
    local own = flare.generator(5)
    w.own, w.list = own, {1, 2, 3}
    local s = flare.session(w)
    assert.match("session:back: there is no mark; :mark%(%) makes one", message(s.back, s))
    assert.match("session:fork: there is no mark", message(s.fork, s))
    local first = s:mark(10)
    w.list[4] = 4
    local number = flare.rand({1}, {generator = own}):item()
    w.step()
    s:mark(20)
    w.list = nil
    assert.equal(first, s:at(15))
    assert.same({1, 2, 3}, w.list)
    assert.equal(number, flare.rand({1}, {generator = own}):item())
    assert.match("session:at: no mark has a step of at most 9", message(s.at, s, 9))
    s:back(first)
    w.model[1].weight:detach():mul_(2)
    w.notes.best = 0.5
    local tip = s:fork()
    assert.equal(1, w.notes.best)
    local other = s:mark()
    local d = s:compare(tip, other)
    assert.equal(2, #d)
    assert.match("^model%..*weight$", d[1].path)
    assert.equal(w.model[1].weight:detach():abs():max():item(), d[1].most)
    assert.same({path = "notes.best", first = 0.5, second = 1}, d[2])
    assert.match("notes.best +0.5, 1", tostring(d))
    assert.equal("no difference", tostring(s:compare(other, other)))
    w.extra:close()
    assert.match("session: extra was closed after the mark", message(s.back, s, first))
    s:drop(tip)
    assert.match("session:back: the mark was dropped", message(s.back, s, tip))
    assert.match("session: a table such as {model = model, optimizer = optimizer} is expected",
      message(flare.session, 7))
    assert.match("> Mark %d+, step %d+: [%d.]+ MiB, after 1", tostring(s))
  end)

  it("marks all globals by itself", function()
    _G.session_spec_value, _G.session_spec_tensor = 1, flare.ones(3) -- luacheck: ignore
    finally(function()
      _G.session_spec_value, _G.session_spec_tensor = nil, nil -- luacheck: ignore
    end)
    local mark = flare.session.mark()
    _G.session_spec_value = 2 -- luacheck: ignore
    _G.session_spec_tensor:zero_()
    flare.session.back(mark)
    assert.equal(1, _G.session_spec_value)
    assert.equal(3, _G.session_spec_tensor:sum():item())
    flare.session.drop(mark)
  end)

  it("is commands of the prompt, with its locals", function()
    local tree = require "spec.support.tree"
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local path = tree.written [[
:back
local n, x = 1, flare.ones(3)
g = "a"
:mark
n = 2; x:zero_(); g = "b"
late = 5
:fork
n, x:sum():item(), g, late
:back 2
n, x:sum():item(), g, late
:at 1
:back 7
:marks
:at
]]
    finally(function() os.remove(path) end)
    local text = tree.output(("FLARE_HISTORY= '%s' -i < '%s' 2>&1"):format(program, path))
    for _, line in ipairs {"there is no mark; :mark makes one\n", "Mark 1, step 1: 0.0 MiB\n",
      "1\n3.0\na\nnil\n", "Mark 2, step 2: 0.0 MiB\n", "2\n0.0\nb\n5\n",
      "there is no mark 7; :marks lists them\n", "> Mark 1, step 1",
      "Mark 2, step 2: 0.0 MiB, after 1",
      "the step is missing: :at step\n"} do
      assert(text:find(line, 1, true), line .. " in " .. text)
    end
  end)
end)
