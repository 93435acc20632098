-- What wrong kernels say: the place in the text, the line of the script, what would be right.
local flare = require "flare"
local message = require "spec.support.expect".message

describe("wrong text", function()
  local cases = {
    {{"T x", "T z", "z = tanhh(x)"}, 'no function "tanhh"; did you mean "tanh"', "z = tanhh(x)",
     "    ^"},
    {{"T x", "T z", "T t = x;\n  z = t +\n    (x * tt)"}, 'line 3: tt is not declared',
     "    (x * tt)", "         ^"},
    {{"T x", "T z", "z = (x + 1"}, "expected '%)' at the end", "z = (x + 1", (" "):rep(10) .. "^"},
    {{"T x", "T z", "z = x +"}, "a value is missing at the end"},
    {{"T x", "T z", "z = x 2"}, "expected ';' before '2'"},
    {{"T x", "T z", "T t = x"}, "z is never assigned"},
    {{"T x", "T z, T w", "z = x"}, "w is never assigned"},
    {{"T x", "T z", "T t = z; z = x"}, "z is read before it is assigned"},
    {{"T x", "T z", "x = 1; z = x"}, "x is an input; what changes is a local: T t = x"},
    {{"T x", "T z", "T x = 1; z = x"}, "x is declared already"},
    {{"T x", "T z", "S s = x; z = s"}, 'no type "S" %(a dtype, or a letter'},
    {{"T x, flaot y", "T z", "z = x"}, 'no type "flaot"; did you mean "float"',
     "T x, flaot y", "     ^"},
    {{"T x, T x", "T z", "z = x"}, "x is declared twice"},
    {{"T x T y", "T z", "z = x"}, "expected ',' before 'T'"},
    {{"T x", "T x", "x = 1"}, "x is an input and an output"},
    {{"T", "T z", "z = 1"}, "expected a name after the type T"},
    {{"T x", "T z", "z = sum(x)"}, "sum is not elementwise.*flare.reduce"},
    {{"T x", "T z", "z = matmul(x, x)"}, "matmul is not elementwise"},
    {{"T x", "T z", "z = exp"}, "exp is a function: exp%(%.%.%.%)"},
    {{"T x", "T z", "z = pow(x)"}, "pow takes 2 values, not 1"},
    {{"T x", "T z", "z = exp(x, 2)"}, "exp takes at most 1 value\n"},
    {{"T x", "T z", "z = x > 0 and x"}, "before 'and': and is && here"},
    {{"T x", "T z", "z = (x ~= 0)"}, "before '~': not equal is != here"},
    {{"T x", "T z", "z = x[1]"}, "there are no positions"},
    {{"T x", "T z", "z = gelu(x, 2)"}, "gelu: approx is one of erf|tanh"},
    {{"T x", "T z", "z = leaky_relu(x, x)"}, "leaky_relu: slope must be a number"},
    {{"T x", "T z", "if (x > 0) z = x"}, "if: an expression chooses"},
    {{"T x", "T z", "for (;;) z = x"}, "expressions have no loops"},
    {{"T x", "T z", "z = x ** 2"}, "a power is pow%(x, y%)"},
    {{"T x", "T z, T w", "z = x; w = x; x * 2"}, "a value that nothing is done with"},
    {{"T x", "T z", "z = 1x"}, "is no number"},
    {{"T x", "T z", "z = " .. ("("):rep(100000) .. "x"}, "nested more than 200 deep"},
    {{"T x", "T z", "z = " .. ("-"):rep(100000) .. "x"}, "nested more than 200 deep"},
    {{"T x", "T z", "z = x" .. (" + x * x"):rep(100000)}, "more than 512 values",
      "x * x + x", (" "):rep(60) .. "^"},
    {{"T x", "T z", "z = x", {backward = "gy = gz"}}, "gy is not declared"},
    {{"T x", "T z", "z = x", {backwards = "gx = gz"}}, "did you mean 'backward'"},
    {{"T x", "T z", 3}, "the expression, as .* must be a string, got"},
  }
  for _, case in ipairs(cases) do
    local arguments, pattern, line, caret = case[1], case[2], case[3], case[4]
    it("says: " .. pattern, function()
      local why = message(flare.elementwise, table.unpack(arguments))
      assert.match("elementwise", why)
      assert.match(pattern, why)
      if caret then
        assert.is_truthy(why:find(line, 1, true), why)
        assert.is_truthy(why:find("\n  " .. caret, 1, true), why)
      end
    end)
  end

  it("has the line of the script in front", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local why = message(function() flare.elementwise("T x", "T z", "z = y") end)
    assert.match("expr_errors_spec.lua:" .. line .. ": elementwise: y is not declared", why)
  end)

  it("of types is found by the first call, with both lines", function()
    local here = debug.getinfo(1, "l").currentline + 1
    local k = flare.elementwise("T x", "T z", "z = exp(x)")
    local why = message(function() k(flare.arange(3)) end)
    local both = "_spec.lua:%d: elementwise %%(.*_spec.lua:%d%%): z is T, here i64, but its value"
    assert.match(both:format(here + 1, here), why)
    assert.match("its value is f32", why)
    assert.match("x is declared f32, but a tensor of i64 is given",
      message(flare.elementwise("f32 x", "f32 z", "z = x"), flare.arange(3)))
    assert.match("n is declared i64, but a number of type f64 is given",
      message(flare.elementwise("i64 n", "i64 z", "z = n"), 2.5))
    assert.match("bitwise_xor.*a power is pow",
      message(flare.elementwise("T x", "T z", "z = x ^ 2"), flare.ones(2)))
    assert.match("gelu: input 1 is i64, but must be floats",
      message(flare.elementwise("T x", "Z z", "z = gelu(x)"), flare.arange(3)))
  end)

  it("is found in calls", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x + y", {name = "plus"})
    assert.match("plus takes 2 inputs, not 1: plus%(T x, T y%) %-> T z",
      message(k, flare.ones(2)))
    assert.match("plus takes 2 inputs, not 3", message(k, 1, 2, 3))
    assert.match("plus: input 2 must be a tensor or a number, got", message(k, 1, "a"))
    assert.match("plus: input 2 of shape %(3%) does not broadcast to %(2%)",
      message(k, flare.ones(2), flare.ones(3)))
    local s = flare.reduce("T x", "T z", "x", "sum")
    assert.match("dim 3 is none", message(s, flare.ones(2, 2), 3))
    assert.match("dims count from 1", message(s, flare.ones(2, 2), 0))
    assert.match("dim %-1 is named twice", message(s, flare.ones(2, 2), {2, -1}))
    assert.match('no reduction "mean"', message(flare.reduce, "T x", "T z", "x", "mean"))
    assert.match("expected a function", message(flare.kernel, "z = x"))
    assert.match("a reduction has one output", message(flare.reduce, "T x", "T z, T w",
      "z = x; w = x", "sum"))
  end)

  it("in a Lua function is found when it is recorded, by its line", function()
    local x = flare.ones(3)
    local why = message(flare.kernel(function(t)
      return t:exp():sum()
    end), x)
    assert.match("expr_errors_spec.lua:%d+: kernel: sum is not elementwise", why)
    assert.match("add_ writes in place", message(flare.kernel(function(t)
      return t:add_(1)
    end), x))
    assert.match("input 2 of mul is a tensor that is no argument", message(
      flare.kernel(function(t) return t * x end), x))
    assert.match("result 1 of the function must be a tensor", message(
      flare.kernel(function() return 3 end), x))
    assert.match("item: inside flare.kernel a tensor stands for any element", message(
      flare.kernel(function(t) return t * t:item() end), x))
    assert.match("1 to 5 tensors", message(flare.kernel(function() end), x))
    assert.match("was not made from its arguments", message(
      flare.kernel(function() return x end), x))
    assert.match("on purpose", message(flare.kernel(function() error "on purpose" end), x))
    assert.equal(2, (x + 1)[1]:item()) -- and nothing is recorded any more
    assert.is_true((x:requires_grad_(true) * 2).requires_grad)
  end)
end)

describe("memory that runs out", function()
  it("fails cleanly wherever it does while kernels are made, called and differentiated", function()
    local fail = flare.core.memory.fail
    local function work(i)
      local o = {name = "k" .. i} -- new operators each time
      local k = flare.elementwise("T x, T y", "T z, T w",
        "z = gelu(x) * y + 1; w = x > y ? x : tanh(y)", o)
      local f = flare.kernel(function(x, y) return x * y:sigmoid() end, o)
      local s = flare.reduce("T x, T y", "T z", "x * y + exp(x)", "prod", o)
      local t = flare.elementwise("T x", "T z", "z = x * x",
        {name = o.name, backward = "gx = 2 * gz * x"})
      local x = flare.ones(3, 4, {requires_grad = true})
      local y = flare.ones(4, {requires_grad = true})
      local z, w = k(x, y)
      local sum = (z + w + f(x, t(y))):sum() + s(x, y, 1):sum()
      flare.grad(sum, x, {create_graph = true}):sum():backward()
      return x.grad:sum():item()
    end
    local want, failures = work(0), 0
    for skip = 0, 10000 do
      fail(skip, 1)
      local ok, why = pcall(work, skip + 1)
      local asked = fail(0, 0)
      if ok and asked < skip then break end
      if not ok then
        failures = failures + 1
        assert.match("memory", tostring(why))
      end
    end
    assert.is_true(failures > 100, failures)
    assert.equal(want, work(-1))
  end)
end)
