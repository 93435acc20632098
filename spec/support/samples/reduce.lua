--- Arguments for the reductions, sorts, products and softmax.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local inf, nan = math.huge, 0/0

-- What all reductions over several dims have in common; `g` makes values.
local function common(g, empty)
  local list = {
    {x = g{2, 3}}, {x = g{2, 3}, dims = {1}}, {x = g{2, 3}, dims = {2}, keepdim = true},
    {x = g{2, 3, 4}, dims = {1, 3}}, {x = g{2, 3, 4}, dims = {-2}, keepdim = true},
    {x = g{2, 3, 2, 2}, dims = {4, 2}}, {x = g{3, 1, 2}, dims = {2}}, {x = g{1, 5}, dims = {1}},
    {x = g{5}}, {x = g{}}, {x = g{}, dims = {1}},
    {x = g{0, 3}, dims = {2}}, {x = g{2, 0, 3}, dims = {1}},
    {x = g{3, 270}, dims = {2}, _grad = false, _dtypes = "f64 f32 i32"},
    {x = g{270, 5}, dims = {1}, _grad = false, _dtypes = "f64 f32 i32"},
    {x = g{6, 41, 7}, dims = {2}, _grad = false, _dtypes = "f64 f32"},
    {x = g{2, 3}, dims = {3}, _refused = "no dim 3"},
    {x = g{2, 3}, dims = {1, 1}, _refused = "named twice"},
    {x = g{2, 3}, dims = {0}, _refused = "count from 1"},
  }
  if empty == true then
    list[#list + 1] = {x = g{0, 3}, dims = {1}}
    list[#list + 1] = {x = g{0}}
    list[#list + 1] = {x = g{2, 0, 3}, dims = {2, 3}, keepdim = true}
  elseif empty then
    list[#list + 1] = {x = g{0, 3}, dims = {1}, _refused = empty}
    list[#list + 1] = {x = g{0}, _refused = empty}
  end
  return list
end

local function with_more(list, more)
  for _, s in ipairs(more) do list[#list + 1] = s end
  return list
end

local function without(list, key)
  local new = {}
  for _, s in ipairs(list) do if s[key] == nil then new[#new + 1] = s end end
  return new
end

local function away(shape) return f(shape, {avoid = {0}, gap = 0.2}) end

S.sum = with_more(common(f, true), {
  {x = A.bools{3, 4}, dims = {1}}, {x = A.whole({3, 4}, -9, 9), dims = {2}},
  {x = A.full({3}, math.maxinteger, "i64")}, {x = A.new({3},
  {1, nan, 2}), _grad = false, _dtypes = "f64"},
  {x = A.new({3}, {1, inf, 2}), _grad = false, _dtypes = "f64"}})
S.mean = common(f, true)
S.prod = with_more(common(function(shape) return f(shape, {from = 0.7, to = 1.3}) end, true), {
  {x = A.new({2, 3}, {1, 0, 2, 3, 4, 5}), dims = {2}},
  {x = A.new({2, 3}, {1, 0, 2, 0, 0, 5}), dims = {2}},
  {x = A.whole({3, 4}, -3, 3), dims = {2}}, {x = A.full({70}, 3, "i64")}})
for _, name in ipairs {"amax", "amin"} do
  S[name] = with_more(common(f, "empty dim"), {
    {x = A.new({2, 3}, {1, nan, 2, 3, 4, 5}), dims = {2}, _grad = false, _dtypes = "f64 f32"},
    {x = A.new({3}, {-inf, -inf, -inf}), _grad = false, _dtypes = "f64 f32"}})
end
for _, name in ipairs {"any", "all"} do
  S[name] = with_more(common(f, true), {
    {x = A.bools({3, 4}, 3), dims = {1}}, {x = A.zeros{2, 3}, dims = {2}},
    {x = A.new({2, 3}, {0, 1, 0, 2, 3, nan}), dims = {2}, _dtypes = "f64 f32"},
    {x = A.full({3, 300}, 1), dims = {2}}})
end
S.count_nonzero = with_more(without(common(f, true), "keepdim"), {
  {x = A.bools({3, 4}, 3), dims = {1}}, {x = A.new({2, 3}, {0, 1, 0, 2, 3, -0.0}), dims = {2}}})
local function spread(shape) return f(shape, {from = 0, to = 3}) end
S.var = with_more(without(without(common(spread, true), "_none"), "_none"), {
  {x = f{3, 4}, dims = {2}, correction = 0}, {x = f{3, 4}, correction = 2, keepdim = true},
  {x = f({200}, {from = 1000, to = 1001}), _grad = false, _dtypes = "f64 f32"}})
S.std = with_more(common(spread, true), {
  {x = f{3, 4}, dims = {2}, correction = 0}, {x = f{3, 4}, correction = 2, keepdim = true}})
-- one element: 0 / 0, which has no derivative to compare
for _, name in ipairs {"var", "std"} do
  for _, s in ipairs(S[name]) do
    local n = 1
    if not s._refused then
      local set = A.dim_set(s.dims, #s.x.shape)
      for d, size in ipairs(s.x.shape) do if set[d] then n = n * size end end
    end
    if n - (s.correction or 1) <= 0 then s._grad = false end
  end
end
S.logsumexp = with_more(common(f, true), {
  {x = A.new({2, 3}, {900, 901, 902, -900, -901, -902}), dims = {2}, _dtypes = "f64 f32"},
  {x = A.new({3, 2}, {-inf, -inf, inf, 1, -inf, 2}), dims = {2}, _grad = false,
    _dtypes = "f64 f32"}})
S.norm = with_more(common(away, true), {
  {x = away{2, 3}, p = 1, dims = {2}}, {x = away{2, 3}, p = 3, dims = {1}},
  {x = away{2, 3}, p = 2.5}, {x = away{2, 3}, p = 0, dims = {2}},
  {x = away{2, 3}, p = inf, dims = {2}},
  {x = away{2, 3}, p = -inf, dims = {1}}, {x = away{2, 3}, p = 0.5},
  {x = A.zeros{3}, _grad = false}, {x = f({4},
  {from = 1e200, to = 2e200}), _grad = false, _dtypes = "f64"}})

local function along(with_none)
  local list = {
    {x = f{2, 3}, dim = 1}, {x = f{2, 3}, dim = 2, keepdim = true}, {x = f{2, 3, 4}, dim = -2},
    {x = f{5}, dim = 1}, {x = f{}, dim = 1}, {x = f{0, 3}, dim = 2}, {x = f{3, 0}, dim = 1},
    {x = A.new({6}, {1, 3, 2, 3, 1, 1}), dim = 1, _grad = false},
    {x = A.new({2, 3}, {1, nan, 2, nan, 4, nan}), dim = 2, _grad = false, _dtypes = "f64 f32"},
    {x = f{3, 300}, dim = 2, _grad = false, _dtypes = "f64 f32 i32"},
    {x = f{300, 5}, dim = 1, _grad = false, _dtypes = "f64 f32 i32"},
    {x = f{0, 3}, dim = 1, _refused = "empty dim"}, {x = f{2}, dim = 2, _refused = "no dim 2"},
  }
  if with_none then
    list[#list + 1] = {x = f{2, 3}}
    list[#list + 1] = {x = f{}}
    list[#list + 1] = {x = f{0}, _refused = "empty dim"}
  end
  return list
end
S.max_dim, S.min_dim = along(), along()
S.argmax, S.argmin = along(true), along(true)

S.cumsum = {
  {x = f{5}, dim = 1}, {x = f{2, 3}, dim = 1}, {x = f{2, 3, 4}, dim = -2}, {x = f{}, dim = 1},
  {x = f{0, 3}, dim = 1}, {x = f{3, 0}, dim = 1}, {x = A.whole({4}, -9, 9), dim = 1},
  {x = f{3, 200}, dim = 2, _grad = false, _dtypes = "f64 f32"},
  {x = f{2}, dim = 2, _refused = "no dim 2"},
}
S.sum_to = {
  {x = f{2, 3}, shape = {3}}, {x = f{2, 3}, shape = {2, 1}}, {x = f{2, 3, 4}, shape = {1, 4}},
  {x = f{2, 3}, shape = {2, 3}}, {x = f{2, 3}, shape = {}}, {x = f{}, shape = {}},
  {x = f{0, 3}, shape = {3}}, {x = f{2, 3}, shape = {2}, _refused = "broadcasts to"},
}

S.sort = {
  {x = f{7}}, {x = f{3, 5}, dim = 1}, {x = f{3, 5}, descending = true}, {x = f{2, 3, 4}, dim = 2},
  {x = f{}}, {x = f{0, 3}}, {x = f{3, 0}}, {x = f{1}},
  {x = A.new({8}, {3, 1, 2, 3, 1, 2, 3, 1}), _grad = false},
  {x = A.new({8}, {3, 1, 2, 3, 1, 2, 3, 1}), descending = true, _grad = false},
  {x = A.new({6}, {3, nan, inf, -inf, nan, 0}), _grad = false, _dtypes = "f64 f32"},
  {x = A.new({6}, {3, nan, inf, -inf, nan, 0}), descending = true, _grad = false,
    _dtypes = "f64 f32"},
  {x = f{3, 400}, _grad = false, _dtypes = "f64 f32 i32 i8"},
  {x = f{2}, dim = 2, _refused = "no dim 2"},
}
S.topk = {
  {x = f{7}, k = 3}, {x = f{3, 5}, k = 2, dim = 1}, {x = f{3, 5}, k = 2, largest = false},
  {x = f{2, 3, 4}, k = 3, dim = 2}, {x = f{5}, k = 5}, {x = f{5}, k = 0}, {x = f{}, k = 1},
  {x = f{0, 3}, k = 2}, {x = f{3, 400}, k = 9, _grad = false, _dtypes = "f64 f32 i32"},
  {x = A.new({8}, {3, 1, 2, 3, 1, 2, 3, 1}), k = 4, _grad = false},
  {x = A.new({6}, {3, nan, inf, -inf, nan, 0}), k = 3, _grad = false, _dtypes = "f64 f32"},
  {x = f{3}, k = 4, _refused = "from 0 to 3"},
}

-- --- products ---

local function g(shape) return f(shape, {seed = 2, from = -1, to = 1}) end
S.matmul = {
  {a = f{2, 3}, b = g{3, 4}}, {a = f{3}, b = g{3}}, {a = f{3}, b = g{3, 2}},
  {a = f{2, 3}, b = g{3}},
  {a = f{2, 2, 3}, b = g{2, 3, 2}}, {a = f{2, 2, 3}, b = g{3, 2}}, {a = f{2, 3}, b = g{2, 3, 2}},
  {a = f{2, 1, 2, 3}, b = g{3, 3, 2}}, {a = f{3}, b = g{2, 3, 2}}, {a = f{2, 2, 3}, b = g{3}},
  {a = f{1, 4}, b = g{4, 1}}, {a = f{0, 3}, b = g{3, 2}}, {a = f{2, 0}, b = g{0, 3}},
  {a = f{0, 2, 3}, b = g{3, 2}}, {a = f{0}, b = g{0}},
  {a = f{37, 65}, b = g{65, 43}, _grad = false, _dtypes = "f64 f32 bf16 i32"},
  {a = f{130, 9}, b = g{9, 70}, _grad = false, _dtypes = "f64 f32"},
  {a = f{1, 300}, b = g{300, 9}, _grad = false, _dtypes = "f64 f32 f16"},
  {a = f{3, 20, 17}, b = g{3, 17, 33}, _grad = false, _dtypes = "f64 f32"},
  {a = f{}, b = g{3}, _refused = "single number"},
  {a = f{2, 3}, b = g{4, 2}, _refused = "inner sizes 3 and 4"},
  {a = f{2, 2, 3}, b = g{3, 3, 2}, _refused = "leading sizes"},
}
S.matmul_add = {
  {c = f{2, 4}, a = f{2, 3}, b = g{3, 4}}, {c = f{}, a = f{3}, b = g{3}},
  {c = f{2, 2, 2}, a = f{2, 2, 3}, b = g{3, 2}}, {c = f{3, 2, 2}, a = f{2, 3}, b = g{3, 3, 2}},
  {c = f{0, 2}, a = f{0, 3}, b = g{3, 2}}, {c = f{2, 3}, a = f{2, 0}, b = g{0, 3}},
  {c = f{37, 43}, a = f{37, 65}, b = g{65, 43}, _dtypes = "f64 f32 bf16"},
  {c = f{130, 70}, a = f{130, 9}, b = g{9, 70}, _dtypes = "f64 f32"},
  {c = f{3, 2}, a = f{2, 3}, b = g{3, 2}, _refused = "c has shape"},
  {c = f{2, 2}, a = f{2, 3}, b = g{4, 2}, _refused = "inner sizes 3 and 4"},
}
for _, s in ipairs(S.matmul_add) do s._grad = false end

-- Groups of rows, empty ones among them, rows after the last; and groups of a sum.
local function ends(...) return A.new({select("#", ...)}, {...}, "i64") end
S.grouped_mm = {
  {a = f{5, 3}, b = g{2, 3, 4}, ends = ends(2, 5)},
  {a = f{6, 2}, b = g{4, 2, 3}, ends = ends(0, 3, 3, 5)},
  {a = f{2, 5}, b = g{5, 3}, ends = ends(2, 2, 5)}, {a = f{2, 5}, b = g{5, 3}, ends = ends(1, 4)},
  {a = f{4, 3}, b = g{1, 3, 2}, ends = A.new({1}, {4}, "i32")},
  {a = f{0, 3}, b = g{2, 3, 2}, ends = ends(0, 0)}, {a = f{3, 2}, b = g{0, 2, 2}, ends = ends()},
  {a = f{3, 0}, b = g{2, 0, 2}, ends = ends(1, 3)}, {a = f{2, 0}, b = g{0, 3}, ends = ends(0, 0)},
  {a = f{2, 3}, b = g{3, 2}, ends = ends()}, {a = f{3, 2}, b = g{2, 2, 0}, ends = ends(1, 3)},
  {a = f{90, 72}, b = g{3, 72, 40}, ends = ends(17, 17, 85), _grad = false},
  {a = f{40, 90}, b = g{90, 72}, ends = ends(17, 17, 85), _grad = false},
  {a = f{140, 160}, b = g{2, 160, 200}, ends = ends(136, 140), _grad = false,
    _dtypes = "f32"},
  {a = f{3}, b = g{2, 3, 2}, ends = ends(1, 3), _refused = "a must be %(rows, k%)"},
  {a = f{3, 2}, b = g{2, 3, 2}, ends = ends(1, 3), _refused = "inner sizes 2 and 3"},
  {a = f{3, 2}, b = g{2, 2, 2}, ends = ends(3), _refused = "one number for each group"},
  {a = f{3, 2}, b = g{2, 2, 2}, ends = ends(2, 4), _refused = "at most 3"},
  {a = f{3, 2}, b = g{2, 2, 2}, ends = ends(2, 1), _refused = "must not fall"},
  {a = f{2, 3}, b = g{3, 2}, ends = ends(-1, 3), _refused = "must not fall"},
}

S.linear = {
  {x = f{2, 3}, weight = g{4, 3}}, {x = f{2, 3}, weight = g{4, 3}, bias = g{4}},
  {x = f{3}, weight = g{2, 3}, bias = g{2}}, {x = f{2, 2, 3}, weight = g{2, 3}, bias = g{2}},
  {x = f{0, 3}, weight = g{2, 3}, bias = g{2}}, {x = f{2, 0}, weight = g{2, 0}, bias = g{2}},
  {x = f{33, 40}, weight = g{21, 40}, bias = g{21}, act = "gelu", _grad = false,
    _dtypes = "f64 f32 bf16"},
  {x = f{1, 260}, weight = g{35, 260}, bias = g{35}, _grad = false, _dtypes = "f64 f32 f16 bf16"},
  {x = f{6, 70}, weight = g{9, 70}, bias = g{9}, act = "silu", _grad = false,
    _dtypes = "f16 bf16"}, -- weights of 16 bits with a few rows
  {x = f{2, 3}, weight = g{4, 3}, bias = g{4}, act = "gelu", _all = true},
  {x = f{}, weight = g{2, 3}, _refused = "does not fit"},
  {x = f{2, 3}, weight = g{3, 2}, _refused = "does not fit"},
}
for _, act in ipairs {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"} do
  table.insert(S.linear, {x = f{2, 3}, weight = g{4, 3}, bias = g{4}, act = act})
  table.insert(S.linear, {x = f{3}, weight = g{2, 3}, act = act})
end
S.outer = {
  {a = f{2}, b = g{3}}, {a = f{0}, b = g{3}}, {a = f{1}, b = g{1}},
  {a = f{}, b = g{3}, _refused = "outer"}, {a = f{2, 2}, b = g{3}, _refused = "outer"},
}
S.addmm = {
  {x = f{2, 4}, a = f{2, 3}, b = g{3, 4}},
  {x = f{4}, a = f{2, 3}, b = g{3, 4}, beta = 0.5, alpha = 2, _dtypes = "f32 f16 bf16"},
  {x = f{}, a = f{2, 3}, b = g{3, 4}, alpha = -1, _dtypes = "f32 i32 i8 u8"},
  {x = f{2, 1}, a = f{2, 0}, b = g{0, 4}},
  {x = A.full({2, 4}, nan), a = f{2, 3}, b = g{3, 4}, beta = 0, _grad = {"a", "b"},
    _dtypes = "f64 f32"},
  {x = f{2}, a = f{2, 3}, b = g{3}},
}

-- --- softmax ---

for _, name in ipairs {"softmax", "log_softmax"} do
  S[name] = {
    {x = f{2, 3}}, {x = f{2, 3}, dim = 1}, {x = f{2, 3, 4}, dim = 2}, {x = f{5}}, {x = f{}},
    {x = f{0, 3}}, {x = f{3, 0}}, {x = f{1}},
    {x = A.new({2, 3}, {900, 901, 902, -900, -901, -902}), _dtypes = "f64 f32"},
    {x = A.new({2, 3}, {-inf, 1, 2, 3, -inf, -inf}), _grad = false, _dtypes = "f64 f32"},
    {x = f{5, 130}, _grad = false, _dtypes = "f64 f32 bf16"},
    {x = f{130, 5}, dim = 1, _grad = false, _dtypes = "f64 f32"},
    {x = f{2}, dim = 2, _refused = "no dim 2"},
  }
  S[name .. "_backward"] = {
    {dy = f{2, 3}, y = f({2, 3}, {seed = 3})}, {dy = f{2, 3}, y = f({2, 3}, {seed = 3}), dim = 1},
    {dy = f{2, 3, 2}, y = f({2, 3, 2}, {seed = 3}), dim = -2}, {dy = f{}, y = f({}, {seed = 3})},
    {dy = f{0, 3}, y = f({0, 3}, {seed = 3})}, {dy = f{2, 0}, y = f({2, 0}, {seed = 3})},
    {dy = f{3, 70}, y = f({3, 70},
    {seed = 3, from = 0, to = 0.03}), _grad = false, _dtypes = "f64 f32"},
  }
end

return S
