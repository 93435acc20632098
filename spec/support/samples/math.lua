--- Arguments for the rows of mathematics and statistics that are composed of others.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local inf, nan = math.huge, 0/0
local edges = A.new({6}, {0, inf, -inf, nan, -2, 7})

for _, name in ipairs {"rad2deg", "deg2rad"} do
  S[name] = {{x = f{2, 3}}, {x = f{}}, {x = f{0}}, {x = f{3, 1, 4}}}
end
local function inner(shape) return f(shape, {from = 0.1, to = 0.9}) end
S.logit = {
  {x = inner{2, 3}}, {x = inner{}}, {x = inner{0, 2}},
  {x = f({7}, {from = 0.05, to = 0.95, avoid = {0.25, 0.75}}), eps = 0.25},
  {x = A.new({4}, {0, 1, -1, 2}), eps = 0.01, _grad = false, _dtypes = "f64 f32"},
}
S.nan_to_num = {
  {x = f{2, 3}}, {x = f{}}, {x = f{0}}, {x = A.whole({3}, -9, 9)},
  {x = edges, _grad = false, _dtypes = "f64"}, {x = edges, nan = 3, posinf = 4, neginf = -5,
    _grad = false, _dtypes = "f64 f32"},
}

local function near_pairs()
  return {
    {a = f{2, 3}, b = f{2, 3}}, {a = f{2, 3}, b = f({3}, {seed = 2})}, {a = f{}, b = f{}},
    {a = f{0}, b = f{1}}, {a = A.whole({3}, -5, 5), b = A.whole({3}, -5, 5)},
    {a = f{4}, b = f({4}, {from = -1.9, to = 2.1}), atol = 0.2, rtol = 0.01, _dtypes = "f64 f32"},
    {a = A.new({2}, {3, 250}, "u8"), b = A.new({2}, {4, 251}, "u8"), rtol = 0, atol = 2},
    {a = A.new({6, 1}, edges), b = edges, _dtypes = "f64 f32"},
    {a = A.new({6, 1}, edges), b = edges, equal_nan = true, _dtypes = "f64 f32"},
    {a = f{2, 3}, b = f{2, 4}, _refused = "broadcast"},
  }
end
S.isclose, S.allclose = near_pairs(), near_pairs()

-- --- over dims ---

local function over_dims()
  return {
    {x = f{2, 3}}, {x = f{2, 3}, dims = {1}}, {x = f{2, 3, 4}, dims = {1, 3}, keepdim = true},
    {x = f{}}, {x = f{0, 3}, dims = {2}}, {x = f{5}, dims = {1}, keepdim = true},
    {x = f{2, 3}, dims = {3}, _refused = "no dim 3"},
  }
end
local holes = A.new({2, 3}, {1, nan, 2, nan, nan, nan})
for _, name in ipairs {"nansum", "nanmean"} do
  S[name] = over_dims()
  table.insert(S[name], {x = holes, dims = {2}, _grad = false, _dtypes = "f64 f32"})
  table.insert(S[name], {x = holes, _grad = false, _dtypes = "f64 f32"})
end
for _, name in ipairs {"var_mean", "std_mean"} do
  S[name] = over_dims()
  S[name][4]._grad = false -- one element: 0 / 0
  table.insert(S[name], {x = f{3, 4}, dims = {2}, correction = 0})
end
S.dist = {
  {a = f{2, 3}, b = f({2, 3}, {seed = 2})}, {a = f{2, 3}, b = f({3}, {seed = 2}), p = 1},
  {a = f{4}, b = f({4}, {seed = 2}), p = 3}, {a = f{}, b = f({}, {seed = 2})},
  {a = f{0}, b = f{0}}, {a = A.new({3}, {1, 2, 4}), b = A.new({3}, {0.5, 3.25, 2.25}), p = inf},
}
S.cov = {
  {x = f{3, 5}}, {x = f{3, 5}, correction = 0}, {x = f{6}}, {x = f{0, 4}},
  {x = f{}, _refused = "observations"}, {x = f{2, 2, 2}, _refused = "observations"},
}

-- --- along one dim ---

S.diff = {
  {x = f{5}},
    {x = f{2, 5}, n = 2, _dtypes = "f64 f32 i32"}, {x = f{3, 4}, dim = 1},
  {x = f{4}, n = 0}, {x = f{2}, n = 5},
  {x = f{0, 3}}, {x = f{3, 0}}, {x = A.whole({6}, -9, 9), n = 3},
  {x = f{}, _refused = "at least 1 dim"}, {x = f{3}, n = -1, _refused = "negative"},
}
S.trapezoid = {
  {y = f{5}}, {y = f{2, 5}, dx = 0.5}, {y = f{3, 4}, dim = 1}, {y = f{1}}, {y = f{0, 3}},
  {y = f{3, 0}}, {y = f{3, 5}, x = f({5}, {seed = 2})},
  {y = f{3, 5}, x = f({3}, {seed = 2}), dim = 1},
  {y = f{3, 5}, x = f({3, 5}, {seed = 2})},
  {y = f{}, _refused = "at least 1 dim"}, {y = f{3, 5}, x = f{4}, _refused = "as many"},
}
local ties = A.new({8}, {3, 1, 2, 3, 1, 2, 3, 1})
S.argsort = {
  {x = f{7}}, {x = f{3, 5}, dim = 1}, {x = f{3, 5}, descending = true}, {x = f{}}, {x = f{0, 3}},
  {x = ties}, {x = ties, descending = true}, {x = f{2}, dim = 2, _refused = "no dim 2"},
}
S.msort = {{x = f{7}}, {x = f{4, 3}}, {x = f{}}, {x = f{0, 3}}, {x = ties, _grad = false}}

-- --- products ---

local function g(shape) return f(shape, {seed = 2, from = -1, to = 1}) end
local function products(a, b, y, wrong)
  return {
    {x = f(y), a = f(a), b = g(b), _dtypes = "f64 f32 i32 u8"},
    {x = f(y), a = f(a), b = g(b), beta = 0.5, alpha = 2,
      _dtypes = "f64 f32"},
    {x = f{}, a = f(a), b = g(b), alpha = -1, _dtypes = "f32 i32 i8 u8"},
    {x = A.full(y, nan), a = f(a), b = g(b), beta = 0, _grad = {"a", "b"}, _dtypes = "f64 f32"},
    {x = f(y), a = f(wrong), b = g(b), _refused = "%("},
  }
end
S.addmv = products({2, 3}, {3}, {2}, {2, 4})
table.insert(S.addmv, {x = f{2}, a = f{2, 0}, b = g{0}})
S.addr = products({2}, {3}, {2, 3}, {2, 1})
table.insert(S.addr, {x = f{0, 3}, a = f{0}, b = g{3}})
S.baddbmm = products({2, 3, 4}, {2, 4, 2}, {2, 3, 2}, {2, 3, 3})
table.insert(S.baddbmm, {x = f{2, 1, 1}, a = f{2, 3, 0}, b = g{2, 0, 2}})
S.addbmm = products({2, 3, 4}, {2, 4, 2}, {3, 2}, {2, 3, 3})
table.insert(S.addbmm, {x = f{2}, a = f{0, 3, 4}, b = g{0, 4, 2}})

-- --- running, sorted, counted ---

local function running(make)
  return {
    {x = make{5}, dim = 1}, {x = make{2, 3}, dim = 1}, {x = make{2, 3, 4}, dim = -2},
    {x = make{}, dim = 1},
    {x = make{0, 3}, dim = 1}, {x = make{3, 0}, dim = 1}, {x = A.whole({4}, -9, 9), dim = 1},
    {x = make{3, 70}, dim = 1, _grad = false, _dtypes = "f64 f32 i32"},
    {x = f{2}, dim = 2, _refused = "no dim 2"},
  }
end
S.cumprod = running(function(shape) return f(shape, {from = 0.7, to = 1.3}) end)
table.insert(S.cumprod, {x = A.new({2, 4}, {1, 0, 2, 3, 4, 5, 0.5, 2}), dim = 2})
table.insert(S.cumprod, {x = A.new({5}, {2, 0, 3, 0, 5}), dim = 1})
table.insert(S.cumprod, {x = A.new({2, 7}, {0, 2, 0, 0, 3, 5, 0, 1, 2, 3, 4, 5, 6, 0}), dim = 2})
for _, name in ipairs {"cummax", "cummin"} do
  S[name] = running(f)
  table.insert(S[name], {x = ties, dim = 1, _grad = false})
  table.insert(S[name], {x = edges, dim = 1, _grad = false, _dtypes = "f64 f32"})
end

S.kthvalue = {
  {x = f{7}, k = 3}, {x = f{3, 5}, k = 2, dim = 1}, {x = f{3, 5}, k = 5, keepdim = true},
  {x = f{}, k = 1}, {x = f{0, 3}, k = 1}, {x = f{3}, k = 4, _refused = "from 1 to 3"},
  {x = f{3, 0}, k = 1, _refused = "no element"},
}
S.median = {
  {x = f{7}}, {x = f{3, 4}}, {x = f{3, 4}, dim = 2}, {x = f{3, 5}, dim = 1, keepdim = true},
  {x = f{2, 3}, keepdim = true}, {x = f{}}, {x = f{0, 3}, dim = 2},
  {x = edges, _grad = false, _dtypes = "f64 f32"}, {x = f{0}, _refused = "no element"},
}
S.mode = {
  {x = f{5}}, {x = f{3, 4}, dim = 1, keepdim = true}, {x = f{}}, {x = f{0, 3}},
  {x = ties, _grad = false}, {x = A.new({2, 5}, {4, 2, 2, 4, 1, 0, 0, 0, 7, 7}), _grad = false},
  {x = f{3, 0}, _refused = "no element"},
}
S.quantile = {
  {x = f{7}, q = 0.3}, {x = f{3, 4}, q = 0.5}, {x = f{3, 4}, q = 0.25, dim = 2},
  {x = f{3, 5}, q = 1, dim = 1, keepdim = true}, {x = f{}, q = 0.5}, {x = f{0, 3}, q = 0, dim = 2},
  {x = edges, q = 0.5, _grad = false, _dtypes = "f64 f32"},
  {x = f{3}, q = 1.5, _refused = "from 0 to 1"}, {x = f{0}, q = 0.5, _refused = "no element"},
}
for _, how in ipairs {"lower", "higher", "midpoint", "nearest"} do
  table.insert(S.quantile, {x = f{6}, q = 0.33, interpolation = how})
end
for _, q in ipairs {0.1, 0.4, 0.9} do
  local x = A.new({3, 4}, {-inf, 1, 2, inf, -inf, -inf, inf, inf, 1, 2, 3, inf})
  table.insert(S.quantile, {x = x, q = q, dim = 2, _grad = false, _dtypes = "f64 f32"})
end
S.unique = {
  {x = f{5}}, {x = f{}}, {x = f{0}}, {x = f{2, 3}}, {x = ties, _grad = false},
  {x = A.whole({3, 4}, 0, 4)}, {x = A.bools({7}, 2)},
  {x = A.whole({6, 2}, 0, 1), dim = 1}, {x = A.whole({2, 6}, 0, 1), dim = 2},
  {x = A.whole({2, 5, 2}, 0, 1), dim = -2}, {x = f{3, 2}, dim = 1}, {x = f{0, 2}, dim = 1},
  {x = f{3, 0}, dim = 1}, {x = f{2, 0}, dim = 2}, {x = f{}, dim = 1},
  {x = f{2}, dim = 2, _refused = "no dim 2"},
}
local stops = A.new({5}, {-1, 0, 0, 1, 1.5})
S.searchsorted = {
  {sorted = stops, x = f{2, 3}}, {sorted = stops, x = A.new({4}, {0, 1, -1, 1.5}), right = true},
  {sorted = stops, x = A.new({4}, {0, 1, -1, 1.5})}, {sorted = stops, x = f{}},
  {sorted = A.new({2, 3}, {1, 2, 3, 0, 0, 1}), x = f{2, 4}}, {sorted = stops, x = 0.5},
  {sorted = f{0}, x = f{3}}, {sorted = stops, x = f{0}},
  {sorted = A.new({2, 3}, {1, 2, 3, 0, 0, 1}), x = f{3, 4}, _refused = "same dims"},
}
S.bucketize = {}
for _, s in ipairs(S.searchsorted) do
  if A.is(s.x) then
    table.insert(S.bucketize, {x = s.x, boundaries = s.sorted, right = s.right,
      _refused = s._refused})
  end
end
S.bincount = {
  {x = A.whole({9}, 1, 4)}, {x = A.whole({2, 3}, 1, 4), minlength = 6}, {x = A.whole({0}, 1, 4)},
  {x = A.whole({}, 1, 4)}, {x = A.whole({3}, 1, 4), minlength = -1, _refused = "negative"},
  {x = A.whole({9}, 1, 4), weight = f{9}}, {x = A.whole({2, 3}, 1, 4), weight = f{2, 3},
    minlength = 6}, {x = A.whole({0}, 1, 4), weight = f{0}},
  {x = A.whole({3}, 1, 4), weight = f{2}, _refused = "the shape of x"},
  {x = A.whole({3}, 1, 4), weight = 2, _refused = "minlength goes by name"},
}

return S
