-- Kernels as strings and as Lua functions: values against the operators one by one, shapes and
-- dtypes, gradients by differences. What wrong ones say is in expr_errors_spec.lua.
local flare = require "flare"
local message = require "spec.support.expect".message

local devices = {"cpu", "sim:0"}

-- Numbers of all kinds in an order of their own, exact in every dtype but bool.
local function numbers(dtype, ...)
  local shape, n = {...}, 1
  for _, d in ipairs(shape) do n = n * d end
  local x = flare.arange(n):mul(7):remainder(13):sub(dtype == "u8" and 0 or 6)
  if dtype:sub(1, 1) == "f" or dtype == "bf16" then x = x:to(dtype) / 4 end
  return x:to(dtype):reshape(shape)
end

local function same(got, want, what)
  what = what or ""
  assert.equal(want.dtype, got.dtype, what)
  assert.equal(tostring(want.shape), tostring(got.shape), what)
  got, want = got:to("cpu"):reshape(-1):totable(), want:to("cpu"):reshape(-1):totable()
  for i = 1, #want do
    if got[i] ~= want[i] and (got[i] == got[i] or want[i] == want[i]) then
      error(("%s at %d: %s, not %s"):format(what, i, got[i], want[i]), 2)
    end
  end
end

local function close(got, want, tolerance)
  assert.equal(tostring(want.shape), tostring(got.shape))
  local off = (got:to("f64") - want:to("f64")):abs() - (want:to("f64"):abs() + 1) * tolerance
  assert.is_true(off:max():item() <= 0, tostring(off:max():item()))
end

local rows = {}
for _, row in ipairs(flare.core.ops()) do
  row.n = ({unary = 1, test = 1, binary = 2, compare = 2, ternary = 3})[row.family]
  if row.n then rows[#rows + 1] = row end
end

describe("an elementwise kernel", function()
  it("has every elementwise row as a function, in every dtype", function()
    assert.is_true(#rows > 70)
    local names, tried = {"x", "y", "w"}, 0
    for _, row in ipairs(rows) do
      local types = {"A x", "B y", "C w"}
      local k = flare.elementwise(table.concat(types, ", ", 1, row.n), "Z z",
        ("z = %s(%s)"):format(row.name, table.concat(names, ", ", 1, row.n)))
      for _, dtype in ipairs {"f64", "f32", "i64", "i32", "u8", "bool"} do
        local x, y, w = numbers(dtype, 39), numbers(dtype, 39):flip(1), numbers(dtype, 39) + 1
        if row.name == "where" then x = x:ne(0) end
        if row.name:find "shift" and dtype ~= "bool" then y = y:abs() end
        local inputs = table.move({x, y, w}, 1, row.n, 1, {})
        local can, want = pcall(flare[row.name], table.unpack(inputs))
        if can then
          same(k(table.unpack(inputs)), want, row.name .. " " .. dtype)
          tried = tried + 1
        else
          assert.match(row.name, message(k, table.unpack(inputs)))
        end
      end
    end
    assert.is_true(tried > 300, tried)
  end)

  it("computes the same as the operators in sequence, for any strides", function()
    local k = flare.elementwise("T x, T y, T w", "T z, bool more",
      "T t = x * y - w; z = t > 0.5 ? tanh(t) : abs(t) / 2; more = t >= x || w == 0")
    local function steps(x, y, w)
      local t = x * y - w
      return flare.where(t:gt(0.5), t:tanh(), t:abs() / 2), t:ge(x):logical_or(w:eq(0))
    end
    for _, device in ipairs(devices) do
      for _, dtype in ipairs {"f64", "f32"} do
        for _, shape in ipairs {{1}, {7}, {3, 5}, {70, 33}, {129, 128}, {40000}, {3, 1, 65, 2}} do
          local n = #shape
          local x, y, w = numbers(dtype, table.unpack(shape)), numbers(dtype, shape[n]),
            numbers(dtype, table.unpack(shape)):flip(1):clone()
          x, y, w = x:to(device), y:to(device), w:to(device)
          if n > 1 then w = w:transpose(-1, -2):clone():transpose(-1, -2) end
          for _, inputs in ipairs {{x, y, w}, {x, 0.25, w}, {w, x:narrow(1, 1, 1), y}} do
            local z, more = k(table.unpack(inputs))
            local want, also = steps(table.unpack(inputs))
            close(z, want, dtype == "f64" and 1e-14 or 1e-6)
            same(more, also)
          end
        end
      end
    end
  end)

  it("reads stepped, negative and expanded strides", function()
    local k = flare.elementwise("T x, T y", "T z", "z = 2 * x + y * y")
    local big = numbers("f32", 64, 130)
    local x = big[{{1, 64, 3}, {1, 130, 2}}]
    local y = numbers("f32", 65):expand(22, 65)
    same(k(x, y), 2 * x + y * y)
    same(k(x:t(), numbers("f32", 65, 1)), 2 * x:t() + numbers("f32", 65, 1):square())
    same(k(big:flip(2), 3), 2 * big:flip(2) + 9)
    same(k(flare.zeros(0, 3), 1), flare.zeros(0, 3))
  end)

  it("rounds 16-bit floats once, at the end", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x * y + x / 3")
    for _, dtype in ipairs {"f16", "bf16"} do
      local x, y = numbers(dtype, 50), numbers(dtype, 50):flip(1)
      local a, b = x:to("f32"), y:to("f32")
      same(k(x, y), (a * b + a / 3):to(dtype))
    end
  end)

  it("takes a letter for what its inputs promote to", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x + y")
    local half, single, double = numbers("f16", 4), numbers("f32", 4), numbers("f64", 4)
    local whole = numbers("i32", 4)
    assert.equal("f64", k(single, double).dtype)
    assert.equal("f32", k(half, single).dtype)
    assert.equal("f16", k(half, whole).dtype)
    assert.equal("f16", k(half, 2.5).dtype)
    assert.equal("i32", k(whole, 2).dtype)
    assert.equal("f32", k(whole, 2.5).dtype)
    assert.equal("f32", k(single, flare.tensor(1, {dtype = "f64"})).dtype)
    assert.equal("f32", k(1, 2.5).dtype)
    local two = flare.elementwise("T x, A a", "Z z", "z = x * a") -- a number stays one
    assert.equal("f16", two(half, 2.5).dtype)
    assert.equal("f32", two(whole, 2.5).dtype)
    assert.equal("f32", two(half, single).dtype)
    same(two(double, 0.1), double * 0.1)
  end)

  it("converts to declared types, and by casts", function()
    local k = flare.elementwise("T x, i64 n, bool flip", "f64 z, i32 whole",
      "z = (f64)x / n; whole = (i32)(flip ? -x : x)")
    local x, n = flare.tensor {2.75, -3.5, 8.0}, flare.tensor({3, 7, 1}, {dtype = "i64"})
    local z, whole = k(x, n, flare.tensor {true, false, true})
    same(z, x:to("f64") / n)
    same(whole, flare.tensor({-2, -3, -8}, {dtype = "i32"}))
    z, whole = k(x, 2, false)
    same(z, x:to("f64") / 2)
    same(whole, flare.tensor({2, -3, 8}, {dtype = "i32"}))
  end)

  it("reads C: precedence, comments, compound assignment, literals", function()
    local function value(text, x)
      local dtype = math.type(x) == "integer" and "i64" or "f32"
      return flare.elementwise("T x", "Z z", text)(flare.tensor({x}, {dtype = dtype})):item()
    end
    assert.equal(2 + 3 * 4 - 6 / 2, value("z = 2.0 + x * 4 - 6 / 2", 3.0))
    assert.equal(-7, value("z = -x - 2 - 2", 3.0))
    assert.equal(1, value("// first\nT t = x; /* then */ t *= 2; t -= 5; z = t", 3.0))
    assert.equal(10, value("z = x > 2 ? x > 5 ? 1 : 10 : 100", 3.0))
    assert.equal(27, value("z = x << 2 | 0x3 ^ 24 >> 10 & 7", 6))
    assert.is_true(value("z = !(x < 2) && x != 4 || false", 3))
    assert.equal(-4, value("z = ~x", 3))
    assert.equal(1.5, value("auto t = x / 2; z = t", 3))
    assert.equal(2.5, value("z = .5f + 1e0 + x", 1.0))
    assert.equal(math.pi, flare.elementwise("f64 x", "f64 z", "pi * x")(1.0):item())
    assert.equal(-2, value("z = x % -4", 6.0))
  end)

  it("knows functions by all their names, as Lua does", function()
    local x, y = flare.tensor{1, 0 / 0, 2}, flare.tensor{0 / 0, 3, 1}
    for _, name in ipairs{"fmax", "fmin", "max", "minimum"} do
      local z = flare.elementwise("T x, T y", "T z", ("z = %s(x, y)"):format(name))(x, y)
      local want = flare[name](x, y)
      assert(z:eq(want):logical_or(z:isnan():logical_and(want:isnan())):all():item(), name)
    end
    local z = flare.elementwise("T x", "T z", "z = arcsin(clip(fabs(x), 0, 1))")
    assert.equal(flare.tensor{-0.5}:abs():asin():item(), z(flare.tensor{-0.5}):item())
  end)

  it("infers shapes alone in meta mode", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x + y")
    flare.meta(function()
      assert.equal("(3, 4)", tostring(k(flare.zeros(3, 1), flare.zeros(4)).shape))
    end)
  end)

  it("is the same operator for the same text", function()
    local function make() return flare.elementwise("T x", "T z", "z = x * x", {name = "again"}) end
    local x = flare.ones(3, {requires_grad = true})
    assert.equal(make()(x).grad_fn, make()(x).grad_fn)
    for _ = 1, 200 do same(make()(x), x * x) end
  end)

  it("shows its instructions as text", function()
    local k = flare.elementwise("T x", "T z", "z = exp(x) * 2")
    local text = k:source(flare.ones(2))
    assert.match("fl_exp%(x%)", text)
    assert.match("typedef float T", text)
    assert.match("typedef double T", k:source(flare.ones(2, {dtype = "f64"})))
    assert.equal("flare.kernel elementwise(T x) -> T z", tostring(k))
    assert.equal("flare.kernel kernel(...)", tostring(flare.kernel(function(x) return x end)))
  end)
end)

describe("the gradient of a kernel", function()
  local function positive(...) return flare.rand(...):to("f64") + 0.3 end
  local x, y
  setup(function()
    flare.manual_seed(5)
    x, y = positive(3, 4), positive(4)
  end)

  local texts = {
    ["z = x * y + 1"] = true,
    ["z = tanh(x) * y / sqrt(x)"] = true,
    ["T t = x - y; z = t > 0 ? exp(t) : 0.1 * t"] = true,
    ["z = pow(x, y) + pow(x, 3) + atan2(x, y)"] = true,
    ["z = gelu(x) + gelu(y, tanh) + silu(x) * softplus(y) + mish(x)"] = true,
    ["z = max(x, y) * min(x, 0.7) + clamp(x, y, 1.1)"] = true,
    ["z = lerp(x, y, x) + addcmul(x, x, y, 2) - addcdiv(x, y, x)"] = true,
    ["z = (f64)(i64)(x * 3) * y + (floor(x) + 2) * x"] = true,
  }
  for text in pairs(texts) do
    it("is derived, twice: " .. text, function()
      assert(flare.gradcheck(flare.elementwise("T x, T y", "T z", text), {x, y}, {second = true}))
    end)
  end

  it("is there to any order", function()
    local function derivatives(text, at, n)
      local v = flare.tensor({at}, {dtype = "f64", requires_grad = true})
      local d, list = flare.elementwise("T x", "T z", "z = " .. text)(v), {}
      for i = 1, n do
        d = flare.grad(d:sum(), v, {create_graph = true})
        list[i] = d:item()
      end
      return list
    end
    local function near(got, want)
      for i = 1, #want do
        assert.is_true(math.abs(got[i] - want[i]) < 1e-9 * (1 + math.abs(want[i])), i)
      end
    end
    local e, s, c = math.exp(1.5), math.sin(1.5), math.cos(1.5)
    near(derivatives("pow(x, 5.0)", 1.5, 4), {25.3125, 67.5, 135, 180})
    near(derivatives("exp(x) * sin(x)", 1.5, 5),
      {e * (s + c), 2 * e * c, 2 * e * (c - s), -4 * e * s, -4 * e * (s + c)})
    near(derivatives("log(x)", 2.0, 6), {1 / 2, -1 / 4, 1 / 4, -3 / 8, 3 / 4, -15 / 8})
    -- of every row: the third by differences of the second
    flare.manual_seed(8)
    local at, checked = flare.rand(3):to("f64") * 0.8 + 0.1, 0
    for _, row in ipairs(rows) do
      local smooth = row.family == "unary" and row.name ~= "bitwise_not"
      local k = smooth and flare.elementwise("T x", "T z",
        row.name .. (row.name == "acosh" and "(x + 1)" or "(x)"))
      local function second(v)
        local _ <close> = flare.enable_grad()
        local leaf = v.requires_grad and v or v:detach():requires_grad_(true)
        local d = flare.grad(k(leaf):sum(), leaf, {create_graph = true})
        return d.requires_grad and flare.grad(d:sum(), leaf, {create_graph = true}) or d
      end
      local ok, why = true, nil
      if k and row.differentiable then ok, why = flare.gradcheck(second, {at}) end
      if ok and k then checked = checked + 1 end
      assert(ok or why == "no result requires a gradient", row.name)
    end
    assert.is_true(checked > 40, checked)
  end)

  it("goes to several inputs from several results, also unused ones", function()
    local k = flare.elementwise("T a, T b, T c, T d, T e, T f", "T p, T q",
      "p = a * b + c * d; q = e * e * f + a")
    local inputs = {}
    for i = 1, 6 do inputs[i] = positive(3, i % 2 == 0 and 1 or 2) end
    assert(flare.gradcheck(k, inputs, {second = true}))
    local a = positive(2):requires_grad_(true)
    local p, q = k(a, 1, 2, 3, 4, 5)
    assert.is_nil((flare.grad(q:sum(), positive(1):requires_grad_(true), {allow_unused = true})))
    p:sum():backward()
    same(a.grad, flare.ones(2, {dtype = "f64"}))
  end)

  it("keeps dtypes and goes back through conversions", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x * y")
    local a = flare.ones(3, {requires_grad = true})
    local b = flare.full({3}, 2, {dtype = "f64"}):requires_grad_(true)
    k(a, b):sum():backward()
    same(a.grad, flare.full({3}, 2))
    same(b.grad, flare.ones(3, {dtype = "f64"}))
  end)

  it("may be given as text, and is then that", function()
    local k = flare.elementwise("T x, T y", "T z", "z = exp(x) * y",
      {backward = "gx = z * gz; gy = exp(x) * gz"})
    assert(flare.gradcheck(k, {x, y}, {second = true}))
    local wrong = flare.elementwise("T x", "T z", "z = x * x", {backward = "gx = 3 * x * gz"})
    local ok, why = flare.gradcheck(wrong, {x})
    assert.is_nil(ok)
    assert.match("by the rule", why)
    local through = flare.elementwise("T x", "T z", "z = round(x)", {backward = "gx = gz"})
    local a = flare.tensor({0.4, 1.7}, {requires_grad = true})
    through(a):sum():backward()
    same(a.grad, flare.ones(2))
  end)

  it("keeps what it needs, and refuses when that was changed", function()
    local k = flare.elementwise("T x, T y", "T z", "z = x * y")
    local a = flare.ones(3, {requires_grad = true})
    local b = flare.ones(3)
    local z = k(a, b):sum()
    b:add_(1)
    assert.match("changed in place", message(z.backward, z))
  end)

  it("is the same on every device", function()
    local k = flare.elementwise("T x, T y", "T z", "z = tanh(x * y) + y")
    for _, device in ipairs(devices) do
      local a = x:to(device):detach():requires_grad_(true)
      local b = y:to(device):detach():requires_grad_(true)
      k(a, b):sum():backward()
      local t = 1 - (x * y):tanh():square()
      close(a.grad:to("cpu"), t * y, 1e-12)
      close(b.grad:to("cpu"), (t * x + 1):sum(1), 1e-12)
    end
  end)
end)

describe("a reduction", function()
  local reductions = {sum = "sum", prod = "prod", max = "amax", min = "amin"}

  for how, row in pairs(reductions) do
    it("by " .. how .. " is the row of what it reduces", function()
      local k = flare.reduce("T x, T y", "T z", "x * 0.5 + y", how)
      local function want(x, y, o) return flare[row](x * 0.5 + y, o) end
      for _, device in ipairs(devices) do
        for _, shape in ipairs {{5}, {3, 4, 5}, {2, 70, 33}, {300, 17}, {7, 1100}, {2, 40000}} do
          local x = numbers("f64", table.unpack(shape)):to(device)
          local y = numbers("f64", shape[#shape]):to(device) / 8 + 0.75
          if how == "prod" then x, y = x / 64 + 1, y / 64 end
          close(k(x, y):to("cpu"), want(x, y):to("cpu"), 1e-9)
          for d = 1, #shape do
            for _, o in ipairs {{dim = d}, {dim = d, keepdim = true}, {dim = d - #shape - 1}} do
              close(k(x, y, o):to("cpu"), want(x, y, o):to("cpu"), 1e-9)
            end
          end
          if #shape == 3 then
            close(k(x, y, 1, 3):to("cpu"), want(x, y, {dim = {1, 3}}):to("cpu"), 1e-9)
            close(k(x, y, {1, 2}):to("cpu"), want(x, y, {dim = {1, 2}}):to("cpu"), 1e-9)
          end
        end
      end
    end)
  end

  it("sums floats in f64 and integers in i64", function()
    local k = flare.reduce("T x", "Z z", "x", "sum")
    local x = flare.full({1000003}, 0.1)
    close(k(x), flare.tensor(1000003 * 0.10000000149011612), 1e-7)
    local n = flare.full({70000}, 100, {dtype = "i8"})
    assert.equal("i64", k(n).dtype)
    assert.equal(7000000, k(n):item())
    assert.equal(3, k(flare.tensor {true, false, true, true}):item())
    assert.equal("f16", k(numbers("f16", 9)).dtype)
  end)

  it("keeps NaN, and knows what of nothing is", function()
    local max = flare.reduce("T x", "T z", "x", "max")
    local x = flare.tensor {1, 0 / 0, 3}
    assert.is_true(max(x):isnan():item())
    same(flare.reduce("T x", "T z", "x", "sum")(flare.zeros(0, 2), 1), flare.zeros(2))
    same(flare.reduce("T x", "T z", "x", "prod")(flare.zeros(2, 0), 2), flare.ones(2))
    assert.match("empty dim", message(max, flare.zeros(0)))
  end)

  it("reads inputs of any strides", function()
    local k = flare.reduce("T x, T y", "T z", "x * y", "sum")
    local x, y = numbers("f64", 40, 50):t(), numbers("f64", 50, 1)
    for d = 1, 2 do close(k(x, y, d), (x * y):sum(d), 1e-12) end
    local step = numbers("f64", 9, 200)[{{1, 9, 2}, {1, 200, 3}}]
    for d = 1, 2 do close(k(step, 2, d), (step * 2):sum(d), 1e-12) end
  end)

  it("has a derived gradient", function()
    flare.manual_seed(6)
    local x, y = flare.rand(3, 4):to("f64") + 0.3, flare.rand(4):to("f64") + 0.3
    for how in pairs(reductions) do
      local k = flare.reduce("T x, T y", "T z", "T t = x * y; t + exp(x)", how)
      assert(flare.gradcheck(k, {x, y}, {second = true}))
      assert(flare.gradcheck(function(a, b) return k(a, b, 1) end, {x, y}, {second = true}))
      assert(flare.gradcheck(function(a, b) return k(a, b, {dim = 2, keepdim = true}) end,
        {x, y}, {second = true}))
    end
  end)
end)

describe("a Lua function as a kernel", function()
  it("is one kernel with the function's values and gradient", function()
    local runs = 0
    local function f(x, y)
      runs = runs + 1
      local t = x * y:sigmoid() - 2
      return flare.where(t:gt(0), t, t:exp() - 1), -x // 2 + 3 % y
    end
    local k = flare.kernel(f)
    local x, y = numbers("f32", 20, 30), numbers("f32", 30) + 0.125
    local a, b = k(x, y)
    assert.equal(1, runs)
    local want, also = f(x, y)
    close(a, want, 1e-6)
    same(b, also)
    k(x:t():clone():t(), y)
    assert.equal(2, runs)
    k(x:to("f64"), y)
    assert.equal(3, runs)
    flare.manual_seed(7)
    local g = flare.kernel(function(u, v) return u * v:sigmoid(), (u / v):exp() end)
    local u = flare.rand(3, 4):to("f64") + 0.3
    assert(flare.gradcheck(g, {u, u[1] + 1}, {second = true}))
  end)

  it("takes numbers from outside as they are, and numbers as inputs", function()
    local slope, calls = 0.5, 0
    local k = flare.kernel(function(x, a)
      calls = calls + 1
      return x * slope + a
    end)
    local x = numbers("f32", 5)
    same(k(x, 2.5), x * 0.5 + 2.5)
    same(k(x, 3.5), x * 0.5 + 3.5)
    assert.equal(1, calls)
    same(k(x, 3), x * 0.5 + 3)
    assert.equal("f32", k(x, flare.tensor(1, {dtype = "f64"})).dtype)
  end)

  it("may call other kernels and composed operators", function()
    local inner = flare.elementwise("T x", "T z", "z = x * x + 1")
    local x = numbers("f64", 12)
    local k = flare.kernel(function(t) return inner(t):masked_fill(t:gt(0), 7) + 1 end)
    same(k(x), (x * x + 1):masked_fill(x:gt(0), 7) + 1)
    local outer = flare.kernel(function(t) return k(t) * 2 end)
    same(outer(x), k(x) * 2)
  end)
end)
