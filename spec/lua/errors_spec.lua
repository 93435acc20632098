-- What a user sees when something is wrong: the line, the words, the module.
local core = require "flare.core"

local function message(source, env)
  local f = assert(load(source, "=user.lua", "t", setmetatable(env or {}, {__index = _G})))
  local ok, err = pcall(f)
  assert(not ok, "no error: " .. source)
  return err
end

describe("errors", function()
  local x = core.arange(1, 7):to("f32"):view(2, 3)
  local env = {flare = core, x = x, y = core.zeros(4)}

  -- a newcomer's slips and other wrong lines, with the message each one gives
  local slips = {
    {"return x.sum()",
     "user.lua:1: sum: x: expected a tensor, got no value; methods are called with ':', as in "
     .. "x:sum()"},
    {"return x.sum{dim = 1}",
     "user.lua:1: sum: x: expected a tensor, got table; methods are called with ':', as in "
     .. "x:sum()"},
    {"return x[0]",
     "user.lua:1: x[0]: positions count from 1: x[1] is the first, x[-1] the last"},
    {"return x.shape[0]",
     "user.lua:1: shape[0]: positions count from 1; shape[1] is the first size, shape[-1] the "
     .. "last"},
    {"return x < x",
     "user.lua:1: tensors are compared elementwise by methods: x:lt(y), x:le(y), x:gt(y), "
     .. "x:ge(y)"},
    {"return x <= 1",
     "user.lua:1: tensors are compared elementwise by methods: x:lt(y), x:le(y), x:gt(y), "
     .. "x:ge(y)"},
    {"return x .. y",
     "user.lua:1: ..: tensors are joined by flare.cat({x, y}, dim)"},
    {"return x(1)",
     "user.lua:1: a tensor is not a function; elements are x[i], x[{i, j}]"},
    {"return x.softmx",
     "user.lua:1: tensors have no 'softmx'; did you mean 'softmax'?"},
    {"return x:Sum()",
     "user.lua:1: tensors have no 'Sum'; did you mean 'sum'?"},
    {"x.shape = {1}",
     "user.lua:1: 'shape' of a tensor cannot be set; 'grad' and 'requires_grad' can, and "
     .. "elements: x[i] = value"},
    {"return x + y",
     "user.lua:1: add: shapes (2, 3) and (4) do not broadcast: sizes must be equal, or 1"},
    {"return x + nil",
     "user.lua:1: add: b: expected a tensor or a number, got nil"},
    {"return x * {1, 2, 3}",
     "user.lua:1: mul: b: expected a tensor or a number, got table; make a tensor of it: "
     .. "flare.tensor{...}"},
    {"return 'a' - x",
     "user.lua:1: sub: a: expected a tensor or a number, got string"},
    {"return x:sum(0)",
     "user.lua:1: sum: dims: dims count from 1; 0 is none (-1 is the last)"},
    {"return x:sum{dim = 1, keepdims = true}",
     "user.lua:1: sum: unknown option 'keepdims'; did you mean 'keepdim'?"},
    {"return x:softmax(1, 2)",
     "user.lua:1: softmax: too many arguments: it takes (x, dim)"},
    {"return x:to('float64')",
     "user.lua:1: to: there is no dtype \"float64\"; did you mean \"f64\"? (f64 f32 f16 bf16 "
     .. "i64 i32 i16 i8 u8 bool c64 c128)"},
    {"return flare.zeros('2')",
     "user.lua:1: zeros: shape: expected integers or a table of them, got string"},
    {"return flare.tensor{{1, 2}, {3}}",
     "user.lua:1: tensor: the table at [2] has 1 elements, the ones before have 2"},
    {"return flare.tensor('1 2 3')",
     "user.lua:1: tensor: bytes become a tensor by flare.from_bytes(data, dtype, shape)"},
    {"return x[{1, 2, 3}]",
     "user.lua:1: x[...]: 3 positions for a tensor of 2 dims (2, 3)"},
    {"return x[3]",
     "user.lua:1: x[...]: position 3 is out of range 1..2 (dim 1 of (2, 3))"},
    {"return x[1.5]",
     "user.lua:1: x[...]: positions are integers, got 1.5"},
    {"return x[flare.zeros(2)]",
     "user.lua:1: x[...]: an index tensor is i64, i32 or bool (a mask), this one is f32"},
    {"x[1] = {1, 2, 3}",
     "user.lua:1: x[...] = value: value: expected a tensor or a number, got table; make a "
     .. "tensor of it: flare.tensor{...}"},
    {"return flare.scalar_tensor_of(1)[1]", nil},
    {"return flare.tensor(3)[1]",
     "user.lua:1: x[1]: a tensor without dimensions has no elements to pick; its value is "
     .. "x:item()"},
    {"return #flare.tensor(3)",
     "user.lua:1: #: a tensor without dimensions has no length"},
    {"return x:gelu('tan')",
     "user.lua:1: gelu: approx: expected one of erf|tanh, got \"tan\"; did you mean \"tanh\"?"},
    {"return x:backward()",
     "user.lua:1: backward: this tensor does not depend on anything that requires a gradient"},
    {"x.requires_grad = 1",
     "user.lua:1: requires_grad: expected true or false, got an integer"},
    {"return flare.rand({2}, {generator = 1})",
     "user.lua:1: rand: generator: expected one made by flare.generator(seed), got an integer"},
    {"x:register_hook(1)",
     "user.lua:1: register_hook: expected a function, got an integer"},
    {"return x:permute(1, 1)", nil},
    {"return flare.no_grad(1)",
     "user.lua:1: no_grad: expected a function or nothing, got an integer"},
    {"return x:to('cpu:7')", nil},
  }

  for _, case in ipairs(slips) do
    it("are exact: " .. case[1], function()
      if case[2] then
        assert.equal(case[2], message(case[1], env))
      else
        assert.matches("^user.lua:1: ", message(case[1], env))
      end
    end)
  end

  it("name shapes, dtypes and devices of both sides", function()
    assert.matches("matmul: %(2, 3%) x %(2, 3%)", message("return x:matmul(x)", env))
    assert.matches("input 2 is on sim:0, the ones before on cpu",
                   message("return x + x:to('sim:0')", env))
    assert.matches("cat", message("return flare.cat{x, y}", env))
    assert.matches("reshape.*%(2, 3%)", message("return x:reshape(4, 2)", env))
  end)

  it("hint at what Lua itself says", function()
    local _, err = load("if x != y then end")
    assert.matches("and not equal as ~=", core.hint(err))
    for wrong, hint in pairs {["x += 1"] = "x:add_%(1%)", ["x++"] = "x:add_%(1%)",
        ["x -= 1"] = "x:sub_%(1%)", ["x *= 2"] = "x:mul_%(2%)", ["x /= 2"] = "x:div_%(2%)",
        ["y = a && b"] = "and, or, not", ["y = a || b"] = "and, or, not",
        ["y = a ** b"] = "x %^ y", ["y = a @ b"] = "x:matmul%(y%)", ["y = [1, 2]"] = "{1, 2, 3}",
        ["y = a ? x : b"] = "condition and x or y", ["# a"] = "begins with %-%-",
        ["; // a"] = "begins with %-%-", ["y = a[1:2]"] = "x%[{{first, last}}%]",
        ["y = {'a': 2}"] = "{name = value", ["y = f(a=1)"] = "f%(x, {name = value}%)",
        ["if x = 1 then end"] = "compares by ==", ["if x == 1: y = 2"] = "then ... end",
        ["for i in x: print(i)"] = "do ... end", ["import flare"] = 'require "flare"',
        ["function f(x) { return x }"] = "no braces", ["y = a[1, 2]"] = "x%[{1, 2}%]",
        ["y = a[:, 1]"] = "x%[{{}, 1}%]", ["a:repeat(2)"] = "x:tile",
        ["y = a:dim"] = "x:dim%(%)"} do
      local _, problem = load("local x, y, a, b = 1 " .. wrong)
      assert.matches(hint, core.hint(problem))
    end
    assert.matches("for i = 1, n do", core.hint(message("for i in range(3) do end", {})))
    assert.matches("a length is #x", core.hint(message("return len(x)", {})))
    assert.matches('local flare = require "flare"', core.hint(message("return flare.x", {})))
    local flare = require "flare"
    assert.matches("%(here it is flare%.zeros%)$", core.hint(message("return zeros(3)", {})))
    assert.matches("%(global 'zeroes'%)$", core.hint(message("return zeroes(3)", {})))
    assert.matches("called with ':'", core.hint(message(
      "local function f(self) return self.x end return f()", {})))
    err = message("return (x == y):sum()", env)
    assert.matches("elementwise it is x:eq%(y%)", core.hint(err))
    assert.matches("joined by %.%.", core.hint(message("return 'a' + 'b'", {})))
    for wrong, right in pairs {["nn.Linear(2, 2):foward(x)"] = "forward",
        ["x.dtype()"] = "without %(%): x.dtype", ["x.ndim()"] = "without %(%): x.ndim",
        ["x:requires_grad()"] = "without %(%)", ["x.grad:zero_()"] = "there after backward",
        ["('%f'):format(x)"] = "number is x:item%(%)", ["flare.float32"] = '"f32"',
        ["flare.linalg.inv(x)"] = "flare.inv%(x%)", ["flare.cuda.is_available()"] = "available%(%)",
        ["nn.Sequential():add(nn.ReLU())"] = "model:append",
        ["nn.Sequential():evaluate()"] = "did you mean 'eval'",
        ["nn.Parameter(x)"] = "self:param%(tensor%)", ["optim.lr_scheduler"] = "optim.StepLR",
        ["optim.SGD({x}):zerograd()"] = "did you mean 'zero_grad'",
        ["x:type_as(y)"] = "did you mean 'to'",
        ["flare.embedding(x, x)"] = 'dtype = "i64"',
        ["nn.Linear(2, 2):register_buffer('a', x)"] = "self:buffer%(tensor%)"} do
      assert.matches(right, core.hint(message("return (" .. wrong .. ")", {
        x = x, nn = flare.nn, optim = flare.optim, flare = flare})))
    end
    assert.matches("%(method 'state_dict'%)$", core.hint(message("('a'):state_dict()", {})))
    assert.matches("%(method 'unheard_of'%)$", core.hint(message("('a'):unheard_of()", {})))
    assert.equal("anything", core.hint("anything"))
    assert.matches("x.shape%[1%]", core.hint(message("return x.shape()", env)))
  end)

  it("stay on the line of the call", function()
    local err = message("local a = 1\nlocal b = 2\nreturn x:matmul(\n  x\n)", env)
    assert.matches("^user.lua:3: ", err)
    err = message("local function f(t)\n  return t:matmul(t) + 0\nend\nreturn (f(x))", env)
    assert.matches("^user.lua:2: ", err)
    err = message("return select(2, assert(pcall(x.matmul, x, x)))", env)
    assert.matches("matmul", err)
  end)

  it("blame the caller of library files", function()
    local was = core.library()
    core.library("=lib/")
    local lib = assert(load("return function(t) return (t:matmul(t)) end", "=lib/a.lua"))()
    local err = message("local y = 1\nreturn (lib(x))", {lib = lib, x = x})
    core.library(was)
    assert.matches("^user.lua:2: matmul", err)
  end)

  it("say in which module", function()
    local class = {__module = true, __name = "Net"}
    class.__index = class
    class.__call = function(self, ...) return (self:forward(...)) end
    local function module(fields) return setmetatable(fields, class) end
    local inner = module{forward = function(self, t) return (t:matmul(t)) end}
    local block = module{mlp = inner, forward = function(self, t) return (self.mlp(t)) end}
    local net = module{blocks = {module{}, block},
                       forward = function(self, t) return (self.blocks[2](t)) end}
    assert.matches("inner sizes 3 and 2 differ %(in Net%.blocks%.2%.mlp%)$",
                   message("return (net(x))", {net = net, x = x}))
    assert.matches("%(in Net%)$", message("return (net(x))", {net = inner, x = x}))
  end)

  it("pass values and tracebacks of functions through", function()
    local w = core.ones(2, {requires_grad = true})
    local value = {}
    local y = w * 2
    y:register_hook(function() error(value) end)
    local ok, err = pcall(function() y:sum():backward() end)
    assert.is_false(ok)
    assert.is_true(rawequal(value, err))
    local f = core.custom("f", function(_, t) return t * 2 end, function() error("no way", 0) end)
    ok, err = pcall(function() f(w):sum():backward() end)
    assert.is_false(ok)
    assert.equal("no way", err)
    -- the runtime is as it was
    assert.same({2, 4}, (core.tensor{1, 2} * 2):totable())
    assert.is_true(core.grad_enabled())
  end)

  it("find the nearest name", function()
    assert.equal("softmax", core.nearest("sofmtax", {"softmax", "sigmoid"}))
    assert.is_nil(core.nearest("qqqqqq", {"softmax", "sigmoid"}))
  end)
end)

describe("tampering", function()
  local mt = debug.getmetatable(core.zeros(1))

  it("with finalisers is harmless", function()
    local x = core.ones(3)
    mt.__gc(x)
    mt.__gc(x)
    mt.__gc(io.stdout)
    mt.__gc(nil)
    mt.__gc({})
    assert.error_matches(function() return x:sum() end, "tensor is closed")
    assert.has_error(function() mt.__close(io.stdout) end)
  end)

  it("with metamethods gives clean errors", function()
    assert.error_matches(function() mt.__add(io.stdout, 1) end, "expected a tensor or a number")
    assert.error_matches(function() mt.__add() end, "add: a: expected")
    assert.error_matches(function() mt.__unm() end, "neg: x: expected")
    assert.error_matches(function() mt.__index(nil, "nothing_here") end,
                         "nothing_here: x: expected a tensor")
    assert.error_matches(function() mt.__index(nil, "shape") end, "expected a tensor, got nil")
    assert.error_matches(function() mt.__index(io.stdout, 1) end, "expected a tensor, got FILE")
    assert.error_matches(function() mt.__newindex(io.stdout, 1, 1) end, "expected a tensor")
    assert.error_matches(function() mt.__len(core) end, "expected a tensor")
    assert.error_matches(function() mt.__tostring({}) end, "expected a tensor")
    assert.is_false(mt.__eq(1, 2))
  end)

  it("with metatables does not confuse types", function()
    local x, g, ch = core.zeros(2), core.generator(1), core.channel(1)
    local gmt, cmt = debug.getmetatable(g), debug.getmetatable(ch)
    debug.setmetatable(g, mt)
    assert.has_error(function() return g + 1 end)
    assert.has_error(function() return g[1] end)
    debug.setmetatable(g, gmt)
    debug.setmetatable(x, gmt)
    assert.has_error(function() return x.seed end)
    debug.setmetatable(x, cmt)
    assert.has_error(function() return x:pop() end)
    debug.setmetatable(x, {})
    debug.setmetatable(x, mt)
    assert.same({0, 0}, x:totable())
    debug.setuservalue(x, {}, 1)
    assert.same({1, 1}, (x + 1):totable())
    -- a generator whose words look like a handle is still none
    g.offset = 0xf1a7e0a1 << 32
    assert.has_error(function() return core.add(g, 1) end)
    for _, method in ipairs{"sum", "backward", "to", "totable", "register_hook", "close"} do
      assert.has_error(function() x[method](g) end)
      assert.has_error(function() x[method](io.stdout) end)
    end
  end)

  it("with tensors from beyond the grave finds them closed", function()
    local found
    do
      local x = core.ones(3)
      setmetatable({}, {__gc = function() found = x end})
      x = nil
    end
    collectgarbage()
    collectgarbage()
    if found then assert.has_no_error(function() return tostring(found) end) end
  end)
end)
