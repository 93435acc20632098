--- Arguments for the rows that read and write at positions, which count from 1.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local function at(shape, n, seed, dtype) return A.whole(shape, 1, n, seed or 3, dtype) end
local function list(...) return A.new({select("#", ...)}, {...}, "i64") end

S.embedding = {
  {weight = f{5, 3}, index = at({4}, 5)}, {weight = f{5, 3}, index = at({2, 3}, 5, 7, "i32")},
  {weight = f{5, 3}, index = list(2, 2, 5, 2)}, {weight = f{5, 3}, index = at({}, 5)},
  {weight = f{5, 3}, index = at({0}, 5)}, {weight = f{5, 0}, index = at({2}, 5)},
  {weight = f{30, 70}, index = at({50}, 30), _grad = false},
  {weight = f{5, 3}, index = list(1, 6), _refused = "6"},
  {weight = f{5, 3}, index = list(1, 0), _refused = "0"},
  {weight = f{5}, index = at({2}, 5), _refused = "must be %(rows, width%)"},
  {weight = f{}, index = at({2}, 5), _refused = "must be %(rows, width%)"},
}
S.embedding_backward = {
  {dy = f{4, 3}, index = list(2, 2, 5, 1), rows = 5},
  {dy = f{2, 2, 3}, index = at({2, 2}, 4), rows = 4},
  {dy = f{4, 3}, index = list(2, 2, 5, 1), rows = 5, padding = 2},
  {dy = f{4, 3}, index = list(2, 2, 5, 1), rows = 5, padding = -1},
  {dy = f{3}, index = at({}, 4), rows = 4}, {dy = f{0, 3}, index = at({0}, 4), rows = 4},
  {dy = f{60, 33}, index = at({60}, 9), rows = 9, _grad = false, _dtypes = "f64 f32"},
  {dy = f{3, 2}, index = at({2}, 4), rows = 4, _refused = "must begin with"},
}
-- Bags of rows, and their gradient, in every mode.
local five = list(2, 5, 2, 1, 3)
S.embedding_bag, S.embedding_bag_backward = {}, {
  {dy = f{2}, index = five, rows = 5, _refused = "must be %(bags, size%)"},
  {dy = f{2, 3}, index = at({3, 2}, 5), rows = 5, _refused = "must be %(3, width%)"},
  {dy = f{}, index = at({3, 2}, 5), rows = 5, _refused = "must be %(3, width%)"},
  {dy = f{3, 2}, index = at({3, 2}, 5), rows = 5, padding = 6, _refused = "no row of 5"},
}
for _, mode in ipairs{"mean", "sum", "max"} do
  local function add(index, more, n, width)
    local s = {weight = f{n or 5, width or 3}, index = index, mode = mode}
    for key, v in pairs(more or {}) do s[key] = v end
    table.insert(S.embedding_bag, s)
    if mode == "max" then return end
    local bags = s.offsets and s.offsets.shape[1] - (s.include_last and 1 or 0) or index.shape[1]
    local back = {dy = f({bags, width or 3}, {seed = 5}), rows = n or 5, index = index, mode = mode}
    for key, v in pairs(more or {}) do back[key] = v end
    table.insert(S.embedding_bag_backward, back)
  end
  add(at({3, 4}, 5))
  add(at({3, 4}, 5, 7, "i32"), {padding = 2})
  add(five, {offsets = list(1, 3, 3)})
  add(five, {offsets = A.new({3}, {1, 2, 6}, "i32"), padding = -1})
  add(five, {offsets = list(1, 3, 5), include_last = true})
  add(five, {offsets = list(1), padding = 2}, 5, 4)
  add(at({0}, 5), {offsets = list(1, 1)})
  add(at({2, 0}, 5))
  add(at({0, 2}, 5))
  add(at({2, 2}, 5), nil, 5, 0)
  add(at({0}, 5), {offsets = list(1)}, 0)
  add(at({9, 12}, 30), {_grad = false}, 30, 150)
  add(list(2, 2, 2), {offsets = list(1, 2), padding = 2})
  if mode == "sum" then
    add(at({3, 4}, 5), {weights = f({3, 4}, {seed = 7})})
    add(five, {offsets = list(1, 3, 3), weights = f({5}, {seed = 7}), padding = 2})
    add(five, {offsets = list(1, 3, 4), weights = f({5}, {seed = 7}), include_last = true})
  end
end
for _, s in ipairs{
  {index = five, _refused = "must be %(bags, size%), or %(n%) with offsets, got %(5%)"},
  {index = at({2, 3}, 5), offsets = list(1), _refused = "got %(2, 3%) with offsets"},
  {index = five, offsets = at({1, 1}, 1), _refused = "offsets must be a vector, got"},
  {index = five, offsets = at({0}, 1), include_last = true, _refused = "ends with the last bag"},
  {index = five, offsets = list(1, 7), _refused = "7"},
  {index = list(1, 6), offsets = list(1), _refused = "6"},
  {index = at({2, 3}, 5), padding = 6, _refused = "padding 6 is no row of 5"},
  {index = at({2, 3}, 5), weights = f{2, 3}, _refused = "weights go with mode = 'sum'"},
  {index = at({2, 3}, 5), weights = f{2, 1}, mode = "sum", _refused = "the shape of index"},
  {weight = f{5}, index = at({2, 3}, 5), _refused = "must be %(rows, width%)"},
  {weight = f{}, index = at({2, 3}, 5), _refused = "must be %(rows, width%)"},
} do
  s.weight = s.weight or f{5, 3}
  table.insert(S.embedding_bag, s)
end
S.gather = {
  {x = f{3, 4}, dim = 1, index = at({2, 4}, 3)}, {x = f{3, 4}, dim = 2, index = at({3, 6}, 4)},
  {x = f{3, 4}, dim = -1, index = at({2, 3}, 4, 9, "i32")},
  {x = f{2, 3, 2}, dim = 2, index = at({2, 4, 1}, 3)},
  {x = f{5}, dim = 1, index = list(3, 3, 1, 5)}, {x = f{}, dim = 1, index = at({}, 1)},
  {x = f{3, 4}, dim = 1, index = at({0, 4}, 3)},
  {x = f{20, 30}, dim = 2, index = at({20, 50}, 30), _grad = false},
  {x = f{3, 4}, dim = 2, index = A.full({3, 1}, 5, "i64"), _refused = "5"},
  {x = f{3, 4}, dim = 1, index = at({2, 5}, 3), _refused = "must not be larger"},
}
local function scatters(unique, more)
  local s = {
    {x = f{3, 4}, dim = 2, index = unique, src = f({3, 2}, {seed = 5})},
    {x = f{3, 4}, dim = 2, index = unique, src = f({3, 4}, {seed = 5})},
    {x = f{3, 4}, dim = 2, index = unique, src = 1.5},
    {x = f{3, 4}, dim = 2, index = unique, src = f({}, {seed = 5})},
    {x = f{5}, dim = 1, index = list(3, 1, 5), src = f({3}, {seed = 5})},
    {x = f{}, dim = 1, index = at({}, 1), src = f({}, {seed = 5})},
    {x = f{3, 4}, dim = 1, index = at({0, 4}, 3), src = f({0, 4}, {seed = 5})},
    {x = f{0, 4}, dim = 1, index = at({0, 4}, 3), src = f({0, 4}, {seed = 5})},
    {x = f{5}, dim = 1, index = list(6), src = f({1}), _refused = "6"},
    {x = f{5}, dim = 1, index = list(1, 2), src = f({1}), _refused = "must not be larger"},
  }
  for _, m in ipairs(more or {}) do s[#s + 1] = m or nil end
  return s
end
local unique = A.new({3, 2}, {1, 3, 4, 2, 2, 1}, "i64")
S.scatter = scatters(unique)
S.scatter_add = scatters(unique, {
  {x = f{3, 4}, dim = 1, index = at({5, 4}, 3), src = f({5, 4}, {seed = 5})},
  {x = f{9, 3}, dim = 1, index = at({300, 3}, 9), src = f({300, 3}, {seed = 5}), _grad = false,
    _dtypes = "f64 f32 i64"}})
local function combined(more)
  return scatters(unique, {
    {x = f{3, 4}, dim = 1, index = at({5, 4}, 3), src = f({5, 4}, {seed = 5, avoid = {0}})},
    {x = f{9, 3}, dim = 1, index = at({300, 3}, 9), src = f({300, 3}, {seed = 5, from = 0.8,
      to = 1.2}), _grad = false, _dtypes = "f64 f32 i64"}, more})
end
for _, name in ipairs {"scatter_prod", "scatter_amax", "scatter_amin"} do
  S[name] = combined(name ~= "scatter_prod" and {
    x = A.new({3}, {1, 2, 3}), dim = 1, index = list(1, 1, 2, 2), _grad = false,
    src = A.new({4}, {0, 4, 0 / 0, 5}), _dtypes = "f64 f32 bf16"})
end
S.scatter_reduce = {
  {x = f{}, dim = 1, index = at({}, 1), src = f({}, {seed = 5})},
  {x = f{0, 4}, dim = 1, index = at({0, 4}, 3), src = f({0, 4}, {seed = 5})},
  {x = f{3, 4}, dim = 2, index = unique, src = 1.5, reduce = "mean"},
  {x = f{5}, dim = 1, index = list(6), src = f({1}), _refused = "6"},
}
for _, reduce in ipairs {"sum", "prod", "mean", "amax", "amin"} do
  for _, self in ipairs {true, false} do
    table.insert(S.scatter_reduce, {x = f{4, 3}, dim = 1, index = at({5, 3}, 3, 11),
      src = f({5, 3}, {seed = 5, avoid = {0}}), reduce = reduce, include_self = self})
  end
end
local pairs_of_two = A.new({3, 2}, {1, 2, 3, 4, 2, 1}, "i64")
S.gather_nd = {
  {x = f{3, 4}, index = pairs_of_two}, {x = f{3, 4, 2}, index = pairs_of_two},
  {x = f{3, 4}, index = at({2, 5, 1}, 3)}, {x = f{3, 4}, index = at({2}, 3, 3, "i32")},
  {x = f{3, 2, 4}, index = A.whole({3, 5, 1}, 1, 2, 4), batch_dims = 1},
  {x = f{2, 2, 3, 2}, index = A.whole({2, 2, 3, 1}, 1, 3, 4), batch_dims = 2},
  {x = f{2, 3}, index = A.zeros({2, 0}, "i64")}, {x = f{}, index = A.zeros({3, 0}, "i64")},
  {x = f{3, 4}, index = A.zeros({0, 2}, "i64")}, {x = f{3, 0}, index = at({2, 1}, 3)},
  {x = f{3, 4}, index = list(1, 5), _refused = "5"},
  {x = f{3, 4}, index = list(1, 1, 1), _refused = "does not fit"},
  {x = f{3, 4}, index = at({2, 1}, 3), batch_dims = 1, _refused = "does not fit"},
}
S.scatter_nd = {
  {x = f{3, 4}, index = pairs_of_two, src = f({3}, {seed = 5})},
  {x = f{3, 4, 2}, index = pairs_of_two, src = f({3, 2}, {seed = 5})},
  {x = f{3, 4}, index = A.new({2, 1}, {3, 1}, "i64"), src = f({2, 4}, {seed = 5})},
  {x = f{3, 4}, index = A.new({2, 1}, {3, 1}, "i64"), src = 1.5},
  {x = f{}, index = A.zeros({1, 0}, "i64"), src = f({1}, {seed = 5})},
  {x = f{0, 3}, index = A.zeros({0, 1}, "i64"), src = f({0, 3}, {seed = 5})},
  {x = f{3, 4}, index = list(4, 4), src = 1.5, _refused = "4"},
  {x = f{3, 4}, index = pairs_of_two, src = f{2}, _refused = ""},
}
for _, reduce in ipairs {"sum", "prod", "mean", "amax", "amin"} do
  table.insert(S.scatter_nd, {x = f{3, 2}, index = A.new({4, 1}, {3, 1, 3, 3}, "i64"),
    src = f({4, 2}, {seed = 5, avoid = {0}}), reduce = reduce})
end
S.take = {
  {x = f{3, 4}, index = at({2, 5}, 12)}, {x = f{3, 4}, index = list(1, 12, 1)},
  {x = f{5}, index = at({}, 5)}, {x = f{}, index = list(1, 1)}, {x = f{0}, index = at({0}, 3)},
  {x = f{3, 4}, index = list(13), _refused = "13"},
}
S.put = {
  {x = f{3, 4}, index = list(2, 12, 7), src = f({3}, {seed = 5})},
  {x = f{3, 4}, index = A.new({2, 2}, {2, 12, 7, 1}, "i64"), src = f({2, 2}, {seed = 5})},
  {x = f{3, 4}, index = list(2, 2, 7), src = f({3}, {seed = 5}), accumulate = true},
  {x = f{3, 4}, index = list(2, 12), src = 1.5}, {x = f{}, index = at({}, 1), src = f{}},
  {x = f{0}, index = at({0}, 3), src = f{0}},
  {x = f{3, 4}, index = list(13), src = 1.5, _refused = "13"},
  {x = f{3, 4}, index = list(1, 2), src = f{3}, _refused = "it must be index's"},
}
S.index_fill = {
  {x = f{3, 4}, dim = 1, index = list(3, 1), value = 1.5, _dtypes = "f64 f32 bf16"},
  {x = f{3, 4}, dim = 1, index = list(3, 1), value = 2},
  {x = f{3, 4}, dim = -1, index = list(3, 1, 3), value = f({}, {seed = 5})},
  {x = f{}, dim = 1, index = list(1), value = 3},
  {x = f{3, 0}, dim = 1,
    index = list(1), value = 3},
  {x = f{3}, dim = 1, index = list(4), value = 1.5, _refused = "4"},
  {x = f{3}, dim = 1, index = list(1), value = f{2}, _refused = "one number"},
}
S.index_select = {
  {x = f{3, 4}, dim = 1, index = list(3, 1, 3)}, {x = f{3, 4}, dim = 2, index = list(4)},
  {x = f{2, 3, 2}, dim = -2, index = at({4}, 3, 2, "i32")}, {x = f{}, dim = 1, index = list(1)},
  {x = f{3, 4}, dim = 1, index = at({}, 3)}, {x = f{3, 4}, dim = 1, index = at({0}, 3)},
  {x = f{3, 0}, dim = 1, index = list(2, 2)},
  {x = f{40, 17}, dim = 1, index = at({90}, 40), _grad = false},
  {x = f{3}, dim = 1, index = list(4), _refused = "4"},
  {x = f{3}, dim = 1, index = at({2, 2}, 3), _refused = "vector"},
}
for _, name in ipairs {"index_add", "index_copy"} do
  S[name] = {
    {x = f{3, 4}, dim = 1, index = list(3, 1), src = f({2, 4}, {seed = 5})},
    {x = f{3, 4}, dim = -1, index = list(2, 4, 1), src = f({3, 3}, {seed = 5})},
    {x = f{2, 3, 2}, dim = 2, index = list(3), src = f({2, 1, 2}, {seed = 5})},
    {x = f{3, 4}, dim = 1, index = list(3, 1), src = 1.5},
    {x = f{5}, dim = 1, index = list(5, 2), src = f({2}, {seed = 5})},
    {x = f{}, dim = 1, index = list(1), src = f({}, {seed = 5})},
    {x = f{3, 4}, dim = 1, index = at({0}, 3), src = f({0, 4}, {seed = 5})},
    {x = f{3, 0}, dim = 1, index = list(1), src = f({1, 0}, {seed = 5})},
    {x = f{3}, dim = 1, index = list(4), src = f{1}, _refused = "4"},
    {x = f{3}, dim = 1, index = list(1, 2), src = f{3}, _refused = "as many as index has"},
  }
end
table.insert(S.index_add, {x = f{3, 4}, dim = 1, index = list(2, 2, 1), src = f({3, 4},
{seed = 5})})
local function m(shape, seed) return A.bools(shape, seed or 3) end
S.masked_select = {
  {x = f{3, 4}, mask = m{3, 4}}, {x = f{3, 4}, mask = m{4}}, {x = f{3, 4}, mask = m{3, 1}},
  {x = f{4}, mask = m{3, 4}}, {x = f{5}, mask = A.zeros({5}, "bool")},
  {x = f{}, mask = A.full({}, 1, "bool")},
  {x = f{0, 3}, mask = m{0, 3}}, {x = f{900}, mask = m{900}, _grad = false},
  {x = f{3}, mask = m{2}, _refused = "do not broadcast"},
}
S.masked_scatter = {
  {x = f{3, 4}, mask = m{3, 4}, src = f({12}, {seed = 5})},
  {x = f{3, 4}, mask = m{4}, src = f({3, 5}, {seed = 5})},
  {x = f{3, 4}, mask = m{3, 1}, src = f({12}, {seed = 5})},
  {x = f{}, mask = A.full({}, 1, "bool"), src = f({1}, {seed = 5})},
  {x = f{0}, mask = m{0}, src = f({0}, {seed = 5})},
  {x = f{5}, mask = A.zeros({5}, "bool"), src = f({2}, {seed = 5})},
  {x = f{3}, mask = A.full({3}, 1, "bool"), src = f{2}, _refused = ""},
}
S.masked_fill = {
  {x = f{3, 4}, mask = m{3, 4}, value = 1.5}, {x = f{3, 4}, mask = m{4}, value = f({}, {seed = 5})},
  {x = f{3, 1}, mask = m{3, 4}, value = -1 / 0, _grad = false, _dtypes = "f64 f32 bf16"},
  {x = f{}, mask = m{}, value = 2}, {x = f{0}, mask = m{0}, value = 2},
  {x = A.whole({4}, 0, 9), mask = m{4}, value = 3},
  {x = A.whole({4}, 0, 9), mask = m{4}, value = 1.5, _refused = "cannot be kept"},
}
S.masked_fill[1]._dtypes = "f64 f32 f16 bf16"
S.nonzero = {
  {x = A.new({2, 3}, {0, 1, 0, 2, 0, 3})}, {x = m{5}}, {x = f{}}, {x = A.zeros{}}, {x = f{0, 3}},
  {x = A.zeros{4}}, {x = m({30, 40}, 5)}, {x = A.whole({2, 3, 2}, 0, 1, 9)},
}
S.one_hot = {
  {index = at({4}, 3), classes = 3}, {index = at({2, 2}, 3, 5, "i32"), classes = 5, dtype = "f32"},
  {index = at({}, 3), classes = 3}, {index = at({0}, 3), classes = 3, dtype = "bool"},
  {index = list(4), classes = 3, _refused = "4"},
  {index = list(1), classes = 0, _refused = "at least 1"},
}

return S
