--- Arguments for the elementwise rows. Every unary row gets a matrix, a number, nothing, a
-- long vector and what it does at the edges; ranges and kinks are named here.
local A = require "spec.support.array"

local S = {}
local inf, nan = math.huge, 0/0

-- name = {from, to, kinks, edges}; `at` is where values are tried by themselves
local unary = {
  neg = {}, square = {}, abs = {avoid = {0}}, sign = {avoid = {0}},
  reciprocal = {from = 0.4, to = 3}, sqrt = {from = 0.2, to = 4}, rsqrt = {from = 0.3, to = 4},
  exp = {}, exp2 = {}, expm1 = {at = {1e-9, -1e-9, 0, -40}},
  log = {from = 0.2, to = 5}, log2 = {from = 0.2, to = 5}, log10 = {from = 0.2, to = 5},
  log1p = {from = -0.7, to = 4, at = {1e-9, -1e-9, 0}},
  sin = {}, cos = {}, tan = {from = -1.2, to = 1.2}, asin = {from = -0.9, to = 0.9},
  acos = {from = -0.9, to = 0.9}, atan = {}, sinh = {}, cosh = {}, tanh = {at = {0, 30, -30}},
  asinh = {at = {1e-9, -40, 1e12}}, acosh = {from = 1.2, to = 4, at = {1, 1.0001, 1e12}},
  atanh = {from = -0.9, to = 0.9, at = {1e-9, -0.99, 0}},
  erfc = {at = {0, 3, -3, 7, -7, 20}}, erfinv = {from = -0.95, to = 0.95, at = {1e-9, 0, 0.999}},
  lgamma = {from = 0.3, to = 6, at = {0.5, -0.5, -1.5, -2.25, 1, 2, 30}},
  digamma = {from = 0.3, to = 6, at = {0.5, -0.5, -1.25, 1e-3, 1, 30, 1e6}},
  sinc = {at = {0, 1e-9, 1e-3, 0.15, 0.17, 1, 40.5}}, signbit = {avoid = {0}},
  cbrt = {from = 0.3, to = 4, at = {0, -8, 1e-30, -1e12}},
  erfcx = {at = {0, 1.99, 2.01, 7, 26, 1e4, 1e9, -4}}, ndtr = {at = {0, -5, 5, -12, 12}},
  log_ndtr = {from = -4, to = 3, at = {-1, -0.99, -5, 5, -40, 9}},
  ndtri = {from = 0.03, to = 0.97, at = {1e-9, 1e-35, 0.5, 0.999, 0, 1, 1.5}},
  entr = {from = 0.1, to = 3, at = {0, -1, 1e-30}},
  bessel_j0 = {from = -9, to = 9, at = {0, 1e-9, 2.404825557695773, 25, 100}},
  bessel_j1 = {from = -9, to = 9, at = {0, 1e-9, 3.831705970207512, 25, 100}},
  bessel_y0 = {from = 0.4, to = 3, at = {1e-9, 0.89357696627916752, 25, 100}},
  bessel_y1 = {from = 0.4, to = 3, at = {1e-9, 2.1971413260310170, 25, 100}},
  i0 = {from = -5, to = 5, at = {0, 1e-9, 29.9, 30.1, -60}},
  i1 = {from = -5, to = 5, at = {0, 1e-9, 29.9, 30.1, -60}},
  i0e = {from = -5, to = 5, avoid = {0}, at = {0, 1e-9, 29.9, 30.1, -60, 1e5}},
  i1e = {from = -5, to = 5, avoid = {0}, at = {0, 1e-9, 29.9, 30.1, -60, 1e5}},
  isposinf = {}, isneginf = {},
  erf = {at = {0, 3, -3, 7, -7}}, sigmoid = {at = {0, 40, -40}},
  logsigmoid = {from = -4, to = 4, at = {0, 40, -40, 800, -800}},
  floor = {avoid = {-2, -1, 0, 1, 2}, at = {-2, -0.5, 0.5, 1e20}},
  ceil = {avoid = {-2, -1, 0, 1, 2}, at = {-2, -0.5, 0.5, -1e20}},
  round = {avoid = {-1.5, -0.5, 0.5, 1.5}, at = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5}},
  trunc = {avoid = {-2, -1, 0, 1, 2}, at = {-2, -0.5, 0.5, 1.5}},
  frac = {avoid = {-2, -1, 0, 1, 2}, at = {-2, -0.5, 0.5, 1.5}},
  relu = {avoid = {0}}, relu6 = {from = -2, to = 8, avoid = {0, 6}, at = {-1, 0, 6, 7}},
  selu = {avoid = {0}, at = {-50, 50}}, silu = {at = {-60, 0, 60}}, mish = {at = {-60, 0, 60}},
  hardsigmoid = {from = -5, to = 5, avoid = {-3, 3}, at = {-3, 0, 3}},
  hardswish = {from = -5, to = 5, avoid = {-3, 3}, at = {-3, 0, 3}},
  softsign = {avoid = {0}}, tanhshrink = {},
  leaky_relu = {avoid = {0}, more = {slope = 0.2}},
  elu = {avoid = {0}, more = {alpha = 0.7}},
  celu = {avoid = {0}, more = {alpha = 0.7}},
  gelu = {from = -4, to = 4, more = {approx = "tanh"}, at = {-6, -9, 0, 9}},
  softplus = {from = -3, to = 3, more = {beta = 2, threshold = 3}, avoid = {1.5},
    at = {-40, 0, 19, 21, 40}},
  huber = {avoid = {-1, 1, -0.6, 0.6}, more = {delta = 0.6}, at = {-1, 0, 1, 40}},
  hardtanh = {avoid = {-1, 1, -0.5, 1.5}, more = {min = -0.5, max = 1.5}},
  softshrink = {avoid = {-0.5, 0.5, -1, 1}, more = {lambda = 1}},
  hardshrink = {avoid = {-0.5, 0.5, -1, 1}, more = {lambda = 1}},
  clamp = {avoid = {-1, 0.5}, more = {min = -1, max = 0.5}},
  bitwise_not = {dtype = "i64", from = -9, to = 9},
  logical_not = {avoid = {0}}, isnan = {}, isinf = {}, isfinite = {},
}

local special = {0, -0.0, 1, -1, 0.5, 1e-300, 700, inf, -inf, nan}

for name, u in pairs(unary) do
  local function values(shape, seed)
    return A.fill(shape, {from = u.from, to = u.to, avoid = u.avoid, seed = seed, dtype = u.dtype})
  end
  local whole = u.dtype == "i64"
  local list = {
    {x = values({2, 3}, 1)},
    {x = values({}, 2)},
    {x = values({0}, 3)},
    {x = values({2, 0, 3}, 3)},
    {x = values({3, 1, 4}, 4)},
    {x = values({1037}, 5), _grad = false},
  }
  if u.at then list[#list + 1] = {x = A.new({#u.at}, u.at), _grad = false, _dtypes = "f64 f32"} end
  if not whole then
    list[#list + 1] = {x = A.new({#special}, special), _grad = false, _dtypes = "f64", _edge = true}
  end
  if u.more then
    local s = {x = values({2, 5}, 6)}
    for k, v in pairs(u.more) do s[k] = v end
    list[#list + 1] = s
  end
  S[name] = list
end
S.clamp[#S.clamp + 1] = {x = A.fill({7}, {avoid = {0.5}}), max = 0.5}
S.clamp[#S.clamp + 1] = {x = A.fill({7}, {avoid = {-1}}), min = -1}
S.clamp[#S.clamp + 1] = {x = A.fill({5}), min = 1, max = -1, _grad = false}
for _, d in ipairs {"i32", "i16", "i8", "u8", "bool"} do
  S.bitwise_not[#S.bitwise_not + 1] = {x = A.whole({2, 3}, 0, 9, 2, d)}
end

-- Binary: equal shapes, each side broadcast, a number on each side, none and nothing.
local function pairs_of(from, to, from2, to2, avoid)
  local function l(shape, seed)
    return A.fill(shape, {from = from, to = to, seed = seed, avoid = avoid})
  end
  local function r(shape, seed)
    return A.fill(shape, {from = from2 or from, to = to2 or to, seed = seed + 0.5, avoid = avoid})
  end
  return {
    {a = l({2, 3}, 1), b = r({2, 3}, 2)},
    {a = l({2, 3}, 3), b = r({3}, 4)},
    {a = l({4, 1}, 5), b = r({1, 3}, 6)},
    {a = l({3, 1, 2}, 5), b = r({4, 1}, 6)},
    {a = l({}, 7), b = r({2, 2}, 8)},
    {a = l({2, 2}, 9), b = r({}, 10)},
    {a = l({}, 7), b = r({}, 8)},
    {a = l({0}, 7), b = r({1}, 8)},
    {a = l({2, 1, 0}, 7), b = r({3, 1}, 8)},
    {a = l({5}, 11), b = 1.75},
    {a = 2.25, b = r({5}, 12)},
    {a = l({5}, 11), b = 2},
    {a = 3, b = r({5}, 12)},
    {a = l({1029}, 13), b = r({1029}, 14), _grad = false},
    {a = l({7, 33}, 13), b = r({33}, 14), _grad = false},
    {a = l({33, 1}, 13), b = r({33, 17}, 14), _grad = false},
    {a = l({2, 3}, 1), b = r({2, 4}, 2), _refused = "do not broadcast"},
  }
end

for _, name in ipairs {"add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_xor"} do
  S[name] = pairs_of(-2, 2)
end
for _, name in ipairs {"div", "atan2", "floor_div", "remainder", "fmod"} do
  S[name] = pairs_of(-2, 2, 0.6, 1.9)
end
S.pow = pairs_of(0.3, 2, -2, 2)
S.xlogy = pairs_of(-2, 2, 0.3, 2)
for _, name in ipairs {"fmax", "fmin", "hypot", "copysign", "logaddexp", "heaviside"} do
  S[name] = pairs_of(-2, 2)
end
table.insert(S.heaviside, {a = A.new({3}, {-1, 0, 2}), b = A.new({3}, {0.5, 0.25, 3}),
  _grad = {"b"}})
table.insert(S.copysign, {a = A.new({5, 1}, {0.0, -0.0, 1, -1, inf}),
  b = A.new({4}, {0.0, -0.0, -inf, 2}), _grad = false, _dtypes = "f64 f32"})
table.insert(S.xlogy, {a = A.new({2, 1}, {0.0, 1}), b = A.new({4}, {0.0, inf, nan, -1}),
  _grad = false, _dtypes = "f64 f32"})
table.insert(S.hypot, {a = A.new({2}, {3e200, 4e-200}), b = A.new({2}, {4e200, 3e-200}),
  _grad = false, _dtypes = "f64"})

S.logaddexp2 = pairs_of(-2, 2)
S.xlog1py = pairs_of(-2, 2, -0.6, 2)
table.insert(S.xlog1py, {a = A.new({2, 1}, {0.0, 1}), b = A.new({4}, {0.0, inf, nan, -3}),
  _grad = false, _dtypes = "f64 f32"})

-- Gamma functions: what to try with names of their own.
local function of_gamma(first, second, make, grad)
  local list = {
    {make({2, 3}, 1, 1), make({2, 3}, 2, 2)}, {make({2, 1}, 3, 1), make({3}, 4, 2)},
    {make({}, 5, 1), make({}, 6, 2)}, {make({0}, 5, 1), make({1}, 6, 2)},
    {make({5}, 7, 1), 2}, {make({3}, 8, 1), make({2, 1}, 9, 2)},
    {make({33}, 13, 1), make({33}, 14, 2), _grad = false},
    {make({2, 3}, 1, 1), make({2, 4}, 2, 2), _refused = "do not broadcast"},
  }
  for k, s in ipairs(list) do
    list[k] = {[first] = s[1], [second] = s[2], _refused = s._refused,
      _dtypes = "f64 f32 f16 bf16"}
    if s._grad == false then list[k]._grad = false else list[k]._grad = grad end
  end
  return list
end
S.polygamma = of_gamma("x", "n", function(shape, seed, k)
  if k == 2 then return A.whole(shape, 0, 4, seed, "f64") end
  return A.fill(shape, {from = 0.4, to = 6, seed = seed})
end, {"x"})
table.insert(S.polygamma, {x = A.new({4}, {0.5, 1, 20, 300}), n = A.new({3, 1}, {1, 3, 12}),
  _grad = false, _dtypes = "f64 f32"})
S.zeta = of_gamma("s", "q", function(shape, seed, k)
  return A.fill(shape, {from = k == 1 and 1.5 or 0.4, to = k == 1 and 9 or 6, seed = seed})
end, {"q"})
table.insert(S.zeta, {s = A.new({6, 1}, {1, 1.001, 2, 3, 60, 0.5}),
  q = A.new({6}, {0.25, 1, 30, -0.5, 0, -3}), _grad = false, _dtypes = "f64 f32"})
S.ldexp = of_gamma("a", "n", function(shape, seed, k)
  if k == 2 then return A.whole(shape, -3, 3, seed, "f64") end
  return A.fill(shape, {seed = seed})
end, {"a"})
table.insert(S.ldexp, {a = A.new({5, 1}, {1, -3, 0, inf, nan}),
  n = A.new({4}, {0, 1e9, -1e9, 2000}), _grad = false, _dtypes = "f64"})
for _, name in ipairs {"igamma", "igammac", "gamma_da", "gamma_daa"} do
  S[name] = of_gamma("a", "x", function(shape, seed)
    return A.fill(shape, {from = 0.4, to = 5, seed = seed})
  end)
  table.insert(S[name], {a = A.new({4, 1}, {0.1, 1, 7.5, 30}), x = A.new({4}, {0.25, 1, 8, 25}),
    _grad = false, _dtypes = "f64 f32"})
end
for _, d in ipairs {"i64", "i32", "i16", "i8", "u8"} do
  table.insert(S.ldexp, {a = A.whole({2, 3}, 1, 9, 1, d), n = A.whole({3}, 0, 4, 2, d)})
  table.insert(S.polygamma, {x = A.whole({2, 3}, 1, 9, 1, d), n = A.whole({3}, 0, 3, 2, d)})
  for _, name in ipairs {"igamma", "igammac", "gamma_da", "gamma_daa"} do
    table.insert(S[name], {a = A.whole({2, 3}, 1, 6, 1, d), x = A.whole({3}, 1, 7, 2, d)})
  end
end
for _, d in ipairs {"i64", "i32", "i16", "i8", "u8"} do
  table.insert(S.zeta, {s = A.whole({2, 3}, 2, 9, 1, d), q = A.whole({3}, 1, 6, 2, d)})
end
for _, name in ipairs {"gamma_da", "gamma_daa"} do -- igamma's second gradient is made of them
  for _, s in ipairs(S[name]) do s._grad = false end
end

local edge_a = {0.0, 1.0, -1.0, inf, -inf, nan, 5.5, -5.5}
local edge_b = {0.0, 2.0, inf, -inf, nan, -2.0, 3.0, 0.0}
for _, name in ipairs {"fmax", "fmin", "hypot", "logaddexp", "logaddexp2", "heaviside", "add",
    "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "logical_xor"} do
  table.insert(S[name], {a = A.new({8, 1}, edge_a), b = A.new({8}, edge_b), _grad = false,
    _dtypes = "f64 f32"})
end
for _, name in ipairs {"floor_div", "remainder", "fmod"} do
  local few_a, few_b = {7.5, -7.5, 6, -6, 1e10, 0.3}, {2, -2, 0.1, 3, -0.7}
  table.insert(S[name], {a = A.new({6, 1}, few_a), b = A.new({5}, few_b), _grad = false,
    _dtypes = "f64"})
  for _, d in ipairs {"i64", "i32", "i8"} do
    table.insert(S[name], {a = A.new({5, 1}, {7, -7, 6, 0, -128}, d),
      b = A.new({5}, {2, -2, 0, -1, 3}, d)})
  end
end
for _, d in ipairs {"i64", "i8", "u8"} do
  table.insert(S.pow, {a = A.new({5, 1}, {2, 3, 1, 0, 7}, d), b = A.new({4}, {0, 1, 3, 9}, d)})
end
table.insert(S.pow, {a = A.new({4, 1}, {2, -1, 1, 0}, "i64"), b = A.new({3}, {-1, -2, -3}, "i64")})
table.insert(S.pow, {a = A.fill({4}, {from = -2, to = 2, avoid = {0}}), b = 3})
table.insert(S.pow, {a = A.fill({4}, {from = -2, to = 2, avoid = {0}}), b = 2})
table.insert(S.pow, {a = A.fill({4}, {from = -2, to = 2, avoid = {0}}), b = -1})
table.insert(S.pow, {a = A.fill({4}, {from = 0.5, to = 2}), b = 0.5})
table.insert(S.pow, {a = A.fill({4}), b = 0})

for _, name in ipairs {"bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"} do
  S[name] = {}
  for _, d in ipairs {"i64", "i32", "i16", "i8", "u8", "bool"} do
    table.insert(S[name], {a = A.whole({2, 3}, 0, 120, 1, d), b = A.whole({3}, 0, 120, 2, d)})
  end
  table.insert(S[name], {a = A.whole({40}, -99, 99, 1), b = A.whole({40}, -99, 99, 2)})
  table.insert(S[name], {a = A.whole({}, -99, 99, 1), b = A.whole({4, 1}, -99, 99, 2)})
  table.insert(S[name], {a = A.whole({0}, -99, 99, 1), b = A.whole({}, -99, 99, 2)})
  table.insert(S[name], {a = A.whole({4}, -99, 99, 1), b = 6})
  table.insert(S[name], {a = A.fill({2}), b = 6, _refused = "integers"})
end
for _, name in ipairs {"shift_left", "shift_right"} do
  S[name] = {}
  for _, d in ipairs {"i64", "i32", "i16", "i8", "u8"} do
    table.insert(S[name], {a = A.whole({2, 3}, 0, 90, 1, d), b = A.whole({3}, 0, 5, 2, d)})
  end
  table.insert(S[name], {a = A.whole({40}, -99, 99, 1), b = A.whole({40}, 0, 30, 2)})
  table.insert(S[name], {a = A.whole({}, -99, 99, 1), b = A.whole({4, 1}, 0, 9, 2)})
  table.insert(S[name], {a = A.whole({0}, -99, 99, 1), b = A.whole({}, 0, 9, 2)})
  table.insert(S[name], {a = A.whole({4}, -99, 99, 1), b = 3})
  table.insert(S[name], {a = A.new({4}, {1, -1, 5, -7}, "i64"), b = A.new({4}, {62, 62, -1, -3},
    "i64")})
end

S.where = {
  {condition = A.bools({2, 3}, 1), a = A.fill{2, 3}, b = A.fill({2, 3}, {seed = 2})},
  {condition = A.bools({3, 1}, 2), a = A.fill{4}, b = A.fill({3, 1}, {seed = 2})},
  {condition = A.bools({3, 4}, 2), a = A.fill{4}, b = 0.5},
  {condition = A.bools({3, 4}, 2), a = 1.5, b = A.fill{3, 1}},
  {condition = A.bools({3, 4}, 2), a = 1.5, b = 2},
  {condition = A.bools({}, 2), a = A.fill{}, b = A.fill({}, {seed = 3})},
  {condition = A.bools({0}, 2), a = A.fill{1}, b = A.fill({}, {seed = 3})},
  {condition = A.bools({611}, 2), a = A.fill{611}, b = A.fill({611}, {seed = 3}), _grad = false},
}
S.lerp = {
  {a = A.fill{2, 3}, b = A.fill({2, 3}, {seed = 2}), weight = 0.3},
  {a = A.fill{2, 3}, b = A.fill({2, 3}, {seed = 2}), weight = A.fill({2, 3}, {seed = 3})},
  {a = A.fill{3}, b = A.fill({2, 1}, {seed = 2}), weight = A.fill({}, {seed = 3})},
  {a = A.fill{}, b = A.fill({}, {seed = 2}), weight = A.fill({}, {seed = 3})},
  {a = A.fill{0, 2}, b = A.fill({2}, {seed = 2}), weight = 0.5},
  {a = A.fill{601}, b = A.fill({601}, {seed = 2}), weight = A.fill({601}, {seed = 3}),
    _grad = false},
}
for _, name in ipairs {"addcmul", "addcdiv"} do
  local function d(shape, seed) return A.fill(shape, {from = 0.5, to = 2, seed = seed}) end
  S[name] = {
    {x = A.fill{2, 3}, a = A.fill({2, 3}, {seed = 2}), b = d({2, 3}, 3)},
    {x = A.fill{2, 3}, a = A.fill({3}, {seed = 2}), b = d({2, 1}, 3), value = 0.5},
    {x = A.fill{}, a = A.fill({}, {seed = 2}), b = d({}, 3), value = -2},
    {x = A.fill{3}, a = A.fill({2, 1}, {seed = 2}), b = d({}, 3)},
    {x = A.fill{0}, a = A.fill({1}, {seed = 2}), b = d({}, 3)},
    {x = A.fill{601}, a = A.fill({601}, {seed = 2}), b = d({601}, 3), _grad = false},
  }
end

return S
