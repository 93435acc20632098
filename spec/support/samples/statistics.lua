--- Arguments for what is counted, ranked and measured, and for the products and powers beside it.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local inf, nan = math.huge, 0/0

-- --- by element ---

S.frexp = {
  {x = f{2, 3}}, {x = f{}}, {x = f{0}}, {x = A.new({9}, {0, 1, 0.5, -0.25, 4, 3e38, -1e-38, 7, 8}),
    _grad = false, _dtypes = "f64 f32"},
  {x = A.new({6}, {inf, -inf, nan, 2 ^ -1074, 2 ^ 1023, 1 - 2 ^ -53}), _grad = false,
    _dtypes = "f64"},
}
S.mvlgamma = {
  {x = f({2, 3}, {from = 3, to = 6}), p = 1}, {x = f({4}, {from = 3, to = 6}), p = 4},
  {x = f({}, {from = 3, to = 6}), p = 2}, {x = f{0}, p = 2},
  {x = f{2}, p = 0, _refused = "from 1 to 1000"},
}
local function above(shape) return f(shape, {from = 0.3, to = 2}) end
S.float_power = {
  {a = above{2, 3}, b = f{3}}, {a = above{}, b = f{}}, {a = above{0}, b = f{1}},
  {a = above{4}, b = 2}, {a = 2.5, b = f{4}}, {a = above{2}, b = f{3}, _refused = "broadcast"},
}
S.nextafter = {
  {a = f{2, 3}, b = f({3}, {seed = 2}), _grad = {"a"}}, {a = f{}, b = f{}, _grad = false},
  {a = f{0}, b = f{1}, _grad = false}, {a = f{4}, b = 2, _grad = false},
  {a = 2.5, b = f{4}, _grad = false}, {a = f{2}, b = f{3}, _refused = "broadcast"},
  {a = A.new({12}, {0, 0, -0.0, 1, 1, -1, -1, inf, -inf, 2, nan, 0}),
    b = A.new({12}, {1, -1, 0.0, 2, 0, 0, -2, 0, 0, 2, 0, nan}), _grad = false},
}
S.logspace = {
  {start = 0, stop = 2, steps = 5}, {start = -1, stop = 3, steps = 4, base = 2, dtype = "f64"},
  {start = 1, stop = 2, steps = 0}, {start = 1, stop = 2, steps = 1},
  {start = 0, stop = 1, steps = -1, _refused = "at least 0 steps"},
}

-- --- made larger ---

S.diagflat = {
  {x = f{3}}, {x = f{2, 2}, offset = 1}, {x = f{}}, {x = f{0}}, {x = f{2}, offset = -2},
}
local powers = "f64 f32 f16 bf16 i64 i32 i16 i8 u8"
S.vander = {
  {x = f{4}, _dtypes = powers}, {x = f{3}, n = 5, increasing = true, _dtypes = powers},
  {x = A.new({2}, {100, -100}, "i8"), n = 3, _grad = false},
  {x = f{2, 3}, n = 2, _dtypes = powers}, {x = f{3}, n = 0, _dtypes = powers},
  {x = f{0}, _dtypes = powers}, {x = f{}, _refused = "numbers"},
  {x = f{2}, n = -1, _refused = "n columns"},
}
local function g(shape) return f(shape, {seed = 2, from = -1, to = 1}) end
S.inner = {
  {a = f{3}, b = g{3}}, {a = f{2, 3}, b = g{4, 3}}, {a = f{2, 2, 3}, b = g{3}}, {a = f{}, b = g{2}},
  {a = f{2}, b = g{}}, {a = f{0, 3}, b = g{2, 3}}, {a = f{2, 0}, b = g{3, 0}},
  {a = f{3}, b = g{2}, _refused = "the same last size"},
}
S.cdist = {
  {a = f{3, 2}, b = g{4, 2}}, {a = f{3, 2}, b = g{4, 2}, p = 1}, {a = f{3, 2}, b = g{4, 2}, p = 3},
  {a = f{2, 3, 2}, b = g{4, 2}}, {a = f{2, 1, 3, 2}, b = g{3, 4, 2}}, {a = f{0, 2}, b = g{4, 2}},
  {a = A.new({2, 3}, {1, 2, 4, 0, 0, 0}), b = A.new({1, 3}, {0.5, 3.25, 2.25}), p = inf},
  {a = f{}, b = f{}, _refused = "rows, size"}, {a = f{3, 2}, b = g{4, 3}, _refused = "rows, size"},
}

S.pair_distances = {
  {a = f{3, 2}, b = g{4, 2}}, {a = f{2, 3, 2}, b = g{4, 2}}, {a = f{2, 1, 3, 2}, b = g{3, 4, 2}},
  {a = f{0, 2}, b = g{4, 2}}, {a = f{3, 2}, b = g{0, 2}}, {a = f{3, 0}, b = g{4, 0}, _grad = false},
  {a = f{2, 3}, b = g{2, 3}, _all = true},
  {a = f{7, 300}, b = g{35, 300}, _grad = false, _dtypes = "f64 f32"},
  {a = f{130, 5}, b = g{19, 5}, _grad = false, _dtypes = "f64 f32"},
  {a = A.new({2, 2}, {1e-30, 3e-30, 1e30, 0}), b = A.new({2, 2}, {1e-30, 0, 0, 1e30}),
   _grad = false, _dtypes = "f64 f32"},
  {a = A.new({1, 2}, {1e-300, 3e-300}), b = A.new({2, 2}, {0, 0, 1e300, 1e300}), _grad = false,
   _dtypes = "f64"},
  {a = f{}, b = f{}, _refused = "rows, size"}, {a = f{3}, b = g{2}, _refused = "rows, size"},
  {a = f{2, 3, 2}, b = g{3, 4, 2},
   _refused = "leading dims"},
}

-- --- over dims ---

S.aminmax = {
  {x = f{2, 3}}, {x = f{2, 3}, dims = {1}}, {x = f{2, 3, 4}, dims = {1, 3}, keepdim = true},
  {x = f{}}, {x = f{0, 3}, dims = {2}}, {x = f{0}, _refused = "no extreme"},
}
S.corrcoef = {
  {x = f{3, 5}}, {x = f{6}}, {x = f{0, 4}}, {x = f{}, _refused = "observations"},
}
S.renorm = {
  {x = f{3, 4}, p = 2, dim = 1, maxnorm = 1}, {x = f{2, 3, 2}, p = 1, dim = 2, maxnorm = 2},
  {x = f{3, 4}, p = 2, dim = -1, maxnorm = 100}, {x = f{0, 3}, p = 2, dim = 2, maxnorm = 1},
  {x = f{}, p = 2, dim = 1, maxnorm = 1, _refused = "at least 2 dims"},
  {x = f{2, 2}, p = 2, dim = 1, maxnorm = -1, _refused = "not negative"},
}

-- --- along one dim ---

S.cumulative_trapezoid = {
  {y = f{5}}, {y = f{2, 5}, dx = 0.5}, {y = f{3, 4}, dim = 1}, {y = f{1}}, {y = f{0, 3}},
  {y = f{3, 5}, x = f({5}, {seed = 2})}, {y = f{3, 5}, x = f({3, 5}, {seed = 2})},
  {y = f{}, _refused = "at least 1 dim"}, {y = f{3, 5}, x = f{4}, _refused = "as many"},
}
S.logcumsumexp = {
  {x = f{5}, dim = 1}, {x = f{2, 3}, dim = 1}, {x = f{2, 3, 4}, dim = -2}, {x = f{}, dim = 1},
  {x = f{0, 3}, dim = 1}, {x = f{3, 0}, dim = 1}, {x = f{3, 70}, dim = 2, _grad = false},
  {x = f{70, 67}, dim = 1, _grad = false},
  {x = A.new({6}, {-inf, -inf, 1000, -1000, 1001, 5}), dim = 1, _grad = false,
    _dtypes = "f64 f32"},
  {x = A.new({4}, {1, inf, 2, nan}), dim = 1, _grad = false, _dtypes = "f64 f32"},
  {x = f{2}, dim = 2, _refused = "no dim 2"},
}

-- --- ranked ---

local holes = A.new({3, 5}, {1, nan, 2, 4, -3, nan, nan, 7, 5, nan, nan, nan, nan, nan, nan})
local function known(more)
  local list = {
    {x = f{7}}, {x = f{3, 4}}, {x = f{3, 4}, dim = 2}, {x = f{3, 5}, dim = 1, keepdim = true},
    {x = f{}}, {x = f{0, 3}, dim = 2}, {x = f{0}, _refused = "no element"},
    {x = holes, dim = 2, _grad = false, _dtypes = "f64 f32"},
    {x = holes, _grad = false, _dtypes = "f64 f32"},
  }
  for _, s in ipairs(list) do for k, v in pairs(more) do s[k] = v end end
  return list
end
S.nanmedian = known {}
S.nanquantile = known {q = 0.3}
for _, how in ipairs {"lower", "higher", "midpoint", "nearest"} do
  table.insert(S.nanquantile, {x = holes, dim = 2, q = 0.55, interpolation = how, _grad = false,
    _dtypes = "f64 f32"})
end
table.insert(S.nanquantile, {x = A.new({4}, {1, inf, 2, nan}), q = 1, _grad = false,
  _dtypes = "f64 f32"})
table.insert(S.nanquantile, {x = f{3}, q = -0.5, _refused = "from 0 to 1"})

-- --- counted ---

S.histc = {
  {x = f{20}, bins = 4, min = -1, max = 1}, {x = f{3, 4}, bins = 5}, {x = f{}, bins = 3},
  {x = f{0}, bins = 3}, {x = A.whole({9}, -3, 5), bins = 4}, {x = A.full({4}, 2), bins = 3},
  {x = A.new({6}, {0, 0.5, 1, nan, 2, -inf}), bins = 4, min = 0, max = 1, _dtypes = "f64 f32"},
  {x = f{3}, bins = 0, _refused = "at least 1 bin"},
  {x = f{3}, min = 2, max = 1, _refused = "range that rises"},
}
for _, s in ipairs(S.histc) do s._grad = false end -- counts have no slope
S.histogram = {
  {x = f{20}, min = -1, max = 1, _grad = false}, {x = f{3, 4}, bins = 5, _grad = false},
  {x = f{}, bins = 3, _grad = false}, {x = f{0}, bins = 3, _grad = false},
  {x = A.full({4}, 2), bins = 3, _grad = false},
  {x = f{20}, bins = 7, density = true, _grad = false, _dtypes = "f64"},
  {x = f{12}, weight = g{12}, bins = 4, min = -1.5, max = 2, _grad = {"weight"},
    _dtypes = "f64 f32 i32"},
  {x = f{2, 3}, weight = f({2, 3}, {seed = 3, from = 0.5, to = 1}), bins = 2, density = true,
    _grad = {"weight"}, _dtypes = "f64 f32"},
  {x = f{3}, weight = f{2}, _refused = "the shape of x"},
  {x = f{3}, bins = 2, min = 1, max = -1, _refused = "range that rises"},
}
local ties = A.new({9}, {3, 3, 1, 2, 2, 2, 3, 1, 1})
S.unique_consecutive = {
  {x = f{5}}, {x = f{}}, {x = f{0}}, {x = f{2, 3}}, {x = ties, _grad = false},
  {x = A.whole({3, 4}, 0, 1)}, {x = A.bools({7}, 2)},
  {x = A.whole({9, 2}, 0, 1), dim = 1}, {x = A.whole({2, 9}, 0, 1), dim = -1},
  {x = f{0, 2}, dim = 1},
  {x = f{3, 0}, dim = 1}, {x = f{}, dim = 1}, {x = f{2}, dim = 2, _refused = "no dim 2"},
}
S.isin = {
  {x = ties, values = A.new({2}, {3, 7})}, {x = ties, values = A.new({2}, {3, 7}), invert = true},
  {x = f{2, 3}, values = f{4}}, {x = f{}, values = f{2}}, {x = f{0}, values = f{2}},
  {x = f{3}, values = f{0}}, {x = f{3}, values = f{0}, invert = true},
  {x = A.whole({9}, 0, 5), values = A.whole({2, 2}, 3, 8)},
}

return S
