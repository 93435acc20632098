--- Arguments for the rows that make complex numbers or take them apart. A.complex makes
-- complex numbers of pairs.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local function c(shape) return A.complex(f(shape, {avoid = {0}, gap = 0.2})) end
local function g(shape) return f(shape, {seed = 2, from = -1, to = 1}) end

S.view_as_real = {
  {x = c{3, 2}}, {x = c{2, 3, 2}}, {x = c{2}}, {x = c{0, 2}}, {x = c{2, 0, 3, 2}},
  {x = f{3}, _refused = "input 1 is f64, but must be complex"}, {x = f{}, _refused = "complex"},
}
S.view_as_complex = {
  {x = f{3, 2}, _dtypes = "f64 f32", _contiguous = true},
  {x = f{2, 3, 2}, _dtypes = "f64 f32", _contiguous = true},
  {x = f{2}, _dtypes = "f64 f32", _contiguous = true},
  {x = f{0, 2}, _dtypes = "f64 f32", _contiguous = true},
  {x = f{}, _refused = "last dim of 2"}, {x = f{3}, _refused = "last dim of 2"},
  {x = f({2, 2}, {dtype = "bf16"}), _refused = "needs f32 or f64"},
}
S.complex_mul = {
  {a = f{3, 2}, b = g{3, 2}}, {a = f{2, 3, 2}, b = g{3, 2}, conj = true}, {a = f{2}, b = g{4, 2}},
  {a = f{4, 1, 2}, b = g{1, 3, 2}, conj = true}, {a = f{3, 2}, b = g{2}}, {a = f{0, 2}, b = g{2}},
  {a = f{2, 1, 2}, b = g{2, 40, 2}, _grad = false}, {a = f{5, 2}, b = g{5, 2}, conj = true},
  {a = f{}, b = g{2}, _refused = "last dim of 2"}, {a = f{3, 1}, b = g{3, 2}, _refused = "pairs"},
  {a = f{3, 2}, b = g{4, 2}, _refused = "broadcast"},
}
for _, name in ipairs {"complex", "polar"} do
  local one, two = name == "complex" and "re" or "size", name == "complex" and "im" or "angle"
  S[name] = {
    {[one] = f{3}, [two] = g{3}}, {[one] = f{2, 3}, [two] = g{3}},
    {[one] = f{1, 3}, [two] = g{2, 1}},
    {[one] = f{}, [two] = g{}}, {[one] = f{0}, [two] = g{1}}, {[one] = f{2}, [two] = 0.5},
    {[one] = f{2}, [two] = g{3}, _refused = name == "complex" and "expand" or "broadcast"},
  }
end
for _, name in ipairs {"real", "imag", "conj", "angle"} do
  S[name] = {
    {x = c{3, 2}}, {x = c{2, 3, 2}}, {x = c{2}}, {x = c{0, 2}}, {x = f{3}, _grad = false},
    {x = f{}}, {x = A.whole({3}, -2, 2), _grad = false},
  }
end
for _, s in ipairs(S.imag) do if not s.x.complex then s._grad = false end end
for _, s in ipairs(S.angle) do if not s.x.complex then s._grad = false end end

-- Eigenvalues near 1, 2, 3, ...
local function spread(shape)
  local nd, x = #shape, f(shape, {from = -0.1, to = 0.1})
  A.each(shape, function(index, k)
    if index[nd] == index[nd - 1] then x[k] = x[k] + index[nd] end
  end)
  return x
end

for _, name in ipairs {"eig", "eigvals"} do
  S[name] = {
    {x = spread{3, 3}}, {x = spread{2, 2, 2}}, {x = A.new({2, 2}, {0, -1, 1, 0}), _grad = false},
    {x = f{0, 0}}, {x = f{0, 2, 2}}, {x = f{}, _refused = "needs square"},
    {x = f{2, 3}, _refused = "needs square"},
  }
end

return S
