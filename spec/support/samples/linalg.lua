--- Arguments for linear algebra. Matrices that are to be inverted are near 3 times the
-- identity, those of symmetric rows are symmetric also while they are differentiated. _signs: of
-- columns and rows the signs depend on the library.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local nan = 0/0

local function g(shape) return f(shape, {seed = 2, from = -1, to = 1}) end

-- Values around 0, with `by` added on the diagonals of the last two dims.
local function near_identity(shape, by, seed)
  local nd = #shape
  local x = f(shape, {from = -1, to = 1, seed = seed})
  A.each(shape, function(index, k)
    if index[nd] == index[nd - 1] then x[k] = x[k] + (by or 3) end
  end)
  return x
end
local e = near_identity

local function symmetric(shape, by)
  local nd, x = #shape, near_identity(shape, by)
  return A.build(shape, function(index, k)
    local other = A.copy_list(index)
    other[nd], other[nd - 1] = index[nd - 1], index[nd]
    return (x[k] + x[A.place(x, other)]) / 2
  end)
end

-- Eigenvalues near 1, 2, 3, ...
local function spread(shape)
  local nd, x = #shape, f(shape, {from = -0.1, to = 0.1})
  A.each(shape, function(index, k)
    if index[nd] == index[nd - 1] then x[k] = x[k] + index[nd] end
  end)
  return x
end

-- What all rows over square matrices have in common.
local function squares(make, extra)
  local list = {
    {x = make{3, 3}}, {x = make{1, 1}}, {x = make{2, 2, 2}}, {x = make{2, 1, 3, 3}},
    {x = make{0, 0}}, {x = make{0, 3, 3}}, {x = make{2, 0, 0}},
    {x = make{40, 4, 4}, _grad = false, _dtypes = "f64 f32"},
    {x = make{23, 23}, _grad = false, _dtypes = "f64 f32"},
    {x = f{}, _refused = "needs square matrices"}, {x = f{3}, _refused = "needs square"},
    {x = f{2, 3}, _refused = "needs square matrices"},
  }
  for _, s in ipairs(extra or {}) do list[#list + 1] = s end
  return list
end

local function with(key, value, list)
  for _, s in ipairs(list) do s[key] = value end
  return list
end

local function definite(s) return symmetric(s, 4 + s[#s]) end
S.cholesky = with("_symmetric", "x", squares(definite, {
  {x = symmetric({3, 3}, 4), upper = true}, {x = symmetric({2, 4, 4}, 4), upper = true},
  {x = e({3, 3}, -1), _refused = "the matrix is not positive definite"},
  {x = A.new({2, 1, 1}, {1, -1}), _refused = "matrix 2 of the batch is not positive definite"},
  {x = A.new({1, 1}, {nan}), _refused = "not positive definite"},
}))
S.cholesky_pivoted = with("_symmetric", "x", squares(definite, {
  {x = symmetric({3, 3}, 4), upper = true}, {x = symmetric({2, 4, 4}, 4), upper = true},
  {x = A.new({3, 3}, {4, 2, 2, 2, 1, 1, 2, 1, 10}), _grad = false, _dtypes = "f64 f32"},
  {x = A.zeros{2, 2}, _grad = false, _dtypes = "f64 f32"},
  {x = A.new({2, 2}, {4, 0, 0, 0.25}), tol = 0.5, _grad = false, _dtypes = "f64 f32"},
  {x = A.new({2, 1, 1}, {1, nan}), _refused = "matrix 2 of the batch has an inf or NaN"},
}))
S.triangular_solve = {
  {a = e{3, 3}, b = g{3, 2}}, {a = e{3, 3}, b = g{3, 2}, upper = true},
  {a = e{3, 3}, b = g{3, 2}, transpose = true}, {a = e{3, 3}, b = g{3}},
  {a = e{3, 3}, b = g{3, 2}, upper = true, transpose = true},
  {a = e{3, 3}, b = g{3, 2}, unitriangular = true},
  {a = e{2, 3, 3}, b = g{3, 1}, upper = true, unitriangular = true, transpose = true},
  {a = e{2, 2, 2}, b = g{2, 2, 3}}, {a = e{2, 1, 2, 2}, b = g{3, 2, 1}},
  {a = e{2, 2}, b = g{2, 2, 2}}, {a = e{0, 0}, b = g{0, 2}}, {a = e{2, 2}, b = g{2, 0}},
  {a = e{0, 2, 2}, b = g{2, 1}}, {a = e{2, 2, 2}, b = g{2}},
  {a = e{30, 5, 5}, b = g{30, 5, 3}, _grad = false, _dtypes = "f64 f32"},
  {a = A.new({2, 2}, {1, 2, 3, 0}), b = g{2, 1}, _refused = "element 2 of its diagonal is zero"},
  {a = f{}, b = g{3}, _refused = "needs square matrices"},
  {a = f{3, 3}, b = g{}, _refused = "b %(%)"},
  {a = f{3, 3}, b = g{2, 2}, _refused = "it must have 3 rows"},
}
S.solve = {
  {a = e{3, 3}, b = g{3, 2}}, {a = e{3, 3}, b = g{3}}, {a = e{1, 1}, b = g{1, 1}},
  {a = e{2, 3, 3}, b = g{3, 2}}, {a = e{3, 3}, b = g{2, 3, 2}},
  {a = e{2, 1, 2, 2}, b = g{3, 2, 1}}, {a = e{2, 3, 3}, b = g{3}},
  {a = e{0, 0}, b = g{0, 2}}, {a = e{2, 2}, b = g{2, 0}},
  {a = e{0, 2, 2}, b = g{2, 1}},
  {a = e{40, 6, 6}, b = g{40, 6, 2}, _grad = false, _dtypes = "f64 f32"},
  {a = e({31, 31}, 9), b = g{31, 40}, _grad = false, _dtypes = "f64 f32"},
  {a = A.zeros{2, 2}, b = g{2, 1}, _refused = "the matrix is singular: pivot 1 is zero"},
  {a = f{}, b = g{3}, _refused = "needs square matrices"},
  {a = f{2, 3, 3}, b = g{3, 3, 1}, _refused = "leading dims that broadcast"},
}
S.inv = squares(e, {
  {x = A.new({2, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 4}), _refused = "matrix 2 of the batch is singular"},
})
S.det = squares(e, {{x = A.new({2, 2}, {0, 1, 1, 0})}})
S.slogdet = squares(e, {{x = A.new({2, 2}, {0, 1, 1, 0}), _grad = false}})
S.logdet = squares(e, {{x = A.new({2, 2}, {0, 1, 1, 0}), _grad = false}})
S.matrix_exp = squares(function(s) return e(s, 0) end, {
  {x = f({3, 3}, {from = -9, to = 9}), _grad = false, _dtypes = "f64"}})

local function any_matrices(extra)
  local list = {
    {x = f{3, 3}}, {x = f{4, 2}}, {x = f{2, 4}}, {x = f{2, 3, 2}}, {x = f{2, 1, 2, 3}},
    {x = f{1, 1}}, {x = f{0, 0}}, {x = f{0, 3}}, {x = f{3, 0}}, {x = f{0, 3, 2}}, {x = f{2, 0, 3}},
    {x = f{20, 3, 4}, _grad = false, _dtypes = "f64 f32"},
    {x = f{23, 17}, _grad = false, _dtypes = "f64 f32"},
    {x = f{17, 23}, _grad = false, _dtypes = "f64 f32"},
    {x = f{}, _refused = "needs matrices"}, {x = f{3}, _refused = "needs matrices"},
  }
  for _, s in ipairs(extra or {}) do list[#list + 1] = s end
  return list
end

S.qr = any_matrices {
  {x = f{2, 4}, mode = "complete"}, {x = f{4, 2}, mode = "complete", _grad = false},
  {x = f{2, 3, 3}, mode = "complete"}, {x = f{3, 0}, mode = "complete"},
}
S.lu_factor = any_matrices {
  {x = A.new({2, 2}, {0, 1, 1, 0}), _grad = false}, {x = A.zeros{2, 2}, _grad = false},
  {x = A.new({2, 2}, {1, 2, 2, 4}), _grad = false},
}
S.lu = any_matrices {{x = A.new({2, 2}, {0, 1, 1, 0}), _grad = false}}
local function order(shape, ...) return A.new(shape, {...}, "i64") end
S.lu_solve = {
  {factors = e{3, 3}, order = order({3}, 2, 3, 1), b = g{3, 2}},
  {factors = e{3, 3}, order = order({3}, 3, 2, 1), b = g{3}},
  {factors = e{2, 2, 2}, order = order({2, 2}, 1, 2, 2, 1), b = g{2, 3}},
  {factors = e{2, 1, 2, 2}, order = order({2, 1, 2}, 1, 2, 2, 1), b = g{3, 2, 1}},
  {factors = e{2, 2, 2}, order = order({2, 2}, 1, 2, 2, 1), b = g{2}},
  {factors = e{0, 0}, order = order{0}, b = g{0, 2}},
  {factors = e{2, 2}, order = order({2}, 1, 2), b = g{2, 0}},
  {factors = e{0, 2, 2}, order = order{0, 2}, b = g{2, 1}},
  {factors = f{2, 3}, order = order({2}, 1, 2), b = g{2}, _refused = "square matrices"},
  {factors = f{2, 2}, order = order({1}, 1), b = g{2}, _refused = "do not fit"},
  {factors = f{2, 2}, order = order({2}, 1, 2), b = g{3, 1}, _refused = "do not fit"},
  {factors = f{}, order = order({1}, 1), b = g{}, _refused = "do not fit"},
  {factors = A.new({1, 1}, {0}), order = order({1}, 1), b = g{1}, _refused = "diagonal is zero"},
}
S.geqrf = any_matrices {{x = A.new({2, 2}, {1, 0, 0, 1})}}
local function tau(shape) return f(shape, {from = 0.3, to = 1.6, seed = 3}) end
S.householder_product = {
  {x = f{4, 3}, tau = tau{3}}, {x = f{3, 3}, tau = tau{2}}, {x = f{2, 3, 2}, tau = tau{2, 2}},
  {x = f{3, 2}, tau = tau{0}}, {x = f{2, 0}, tau = tau{0}}, {x = f{0, 2, 2}, tau = tau{0, 2}},
  {x = f{3, 2}, tau = A.new({2}, {0, 0.5}), _grad = {"x"}},
  {x = f{2, 3}, tau = tau{2}, _refused = "more columns than rows"},
  {x = f{3, 2}, tau = tau{3}, _refused = "does not fit"}, {x = f{}, tau = tau{}, _refused = "tau"},
  {x = f{2, 3, 2}, tau = tau{2}, _refused = "does not fit"},
}
S.ormqr = {
  {x = f{4, 3}, tau = tau{3}, c = g{4, 2}},
  {x = f{4, 3}, tau = tau{3}, c = g{4, 2}, transpose = true},
  {x = f{4, 3}, tau = tau{2}, c = g{2, 4}, left = false},
  {x = f{4, 3}, tau = tau{3}, c = g{2, 4}, left = false, transpose = true},
  {x = f{2, 3, 2}, tau = tau{2, 2}, c = g{2, 3, 1}}, {x = f{3, 2}, tau = tau{2}, c = g{0, 3, 1}},
  {x = f{3, 2}, tau = tau{2}, c = g{3, 0}}, {x = f{3, 2}, tau = tau{0}, c = g{3, 2}},
  {x = f{3, 2}, tau = tau{2}, c = g{2, 2}, _refused = "must have 3 rows"},
  {x = f{3, 2}, tau = tau{2}, c = g{3, 2}, left = false, _refused = "must have 3 columns"},
  {x = f{3, 2}, tau = tau{2}, c = g{3}, _refused = "must have 3 rows"},
  {x = f{}, tau = tau{1}, c = g{3, 2}, _refused = "tau"},
}
S.svd = with("_signs", true, any_matrices {
  {x = f{4, 2}, full_matrices = true, _grad = false}, {x = f{3, 3}, full_matrices = true},
  {x = f{2, 4}, full_matrices = true, _grad = false}, {x = f{3, 0}, full_matrices = true},
  {x = f{0, 2}, full_matrices = true},
  {x = A.new({2, 1, 1}, {1, nan}), _refused = "matrix 2 of the batch has an inf or NaN"},
})
S.pinv = any_matrices {
  {x = A.new({2, 2}, {1, 2, 2, 4}), _grad = false}, {x = A.zeros{2, 3}, _grad = false},
  {x = A.new({1, 1}, {nan}), _refused = "has an inf or NaN"},
}
S.svdvals = any_matrices()
S.eigh = with("_signs", true, with("_symmetric", "x", squares(symmetric, {
  {x = symmetric{3, 3}, upper = true}, {x = e{3, 3}, _grad = false},
  {x = e{3, 3}, upper = true, _grad = false},
  {x = A.new({1, 1}, {nan}), _refused = "has an inf or NaN"}})))
S.eigvalsh = with("_symmetric", "x", squares(symmetric, {{x = symmetric{3, 3}, upper = true}}))
S.eig_pairs = squares(spread, {
  {x = A.new({2, 2}, {0, -1, 1, 0}), _grad = false}, {x = f{5, 5}, _grad = false,
    _dtypes = "f64 f32"},
  {x = f{1, 1, 1, 1, 1, 1, 2, 2}, _refused = "leave none for the pairs"},
  {x = A.new({1, 1}, {nan}), _refused = "has an inf or NaN"}})

S.lstsq = {
  {a = f{4, 2}, b = g{4, 3}}, {a = f{4, 2}, b = g{4}}, {a = f{2, 4}, b = g{2, 1}},
  {a = e{3, 3}, b = g{3, 2}}, {a = f{2, 4, 2}, b = g{2, 4, 1}}, {a = f{2, 4, 2}, b = g{4, 1}},
  {a = f{0, 4, 2}, b = g{4, 1}}, {a = f{4, 2}, b = g{4, 0}},
  {a = f{}, b = g{2}, _refused = "needs matrices"}, {a = f{4, 2}, b = g{3}, _refused = "4 rows"},
  {a = f{4, 2}, b = g{}, _refused = "4 rows"},
}
S.matrix_rank = {
  {x = f{3, 3}}, {x = A.new({2, 2}, {1, 2, 2, 4})}, {x = A.zeros{2, 3}}, {x = f{2, 4, 2}},
  {x = A.new({2, 2}, {1, 0, 0, 0.01}), rtol = 0.1},
  {x = f{0, 3}}, {x = f{0, 2, 2}}, {x = f{2, 0, 0}},
  {x = f{}, _refused = "needs matrices"},
}
S.matrix_norm = {
  {x = f{3, 2}}, {x = f{2, 3, 2}, keepdim = true}, {x = f{0, 2, 2}}, {x = f{0, 3}},
  {x = f{2, 2, 3, 2}}, {x = f{3}, _refused = "needs matrices"}, {x = f{}, _refused = "needs"},
}
for _, ord in ipairs {"nuc", "inf", "-inf", "1", "-1", "2", "-2"} do
  table.insert(S.matrix_norm, {x = f{3, 2}, ord = ord})
  table.insert(S.matrix_norm, {x = f{2, 2, 3}, ord = ord, keepdim = true})
end
S.vector_norm = {
  {x = f{5}}, {x = f{2, 3}, dims = {2}}, {x = f{2, 3}, ord = 1}, {x = f{2, 3}, ord = 3, dims = {1},
    keepdim = true}, {x = f{}}, {x = f{0}}, {x = f{2, 3}, ord = math.huge, dims = {2}},
}
S.matrix_power = {
  {x = e{3, 3}, n = 3}, {x = e{2, 2, 2}, n = 1}, {x = e{3, 3}, n = -2}, {x = e{2, 2}, n = 5},
  {x = e{2, 3, 3}, n = 0, _grad = false}, {x = e{0, 0}, n = 2}, {x = e{0, 2, 2}, n = -1},
  {x = f{2, 3}, n = 2, _refused = "needs square"}, {x = f{}, n = 2, _refused = "needs square"},
}
S.cholesky_solve = {
  {b = g{3, 2}, l = e{3, 3}}, {b = g{3, 2}, l = e{3, 3}, upper = true}, {b = g{3}, l = e{2, 3, 3}},
  {b = g{2, 2, 1}, l = e{2, 2}}, {b = g{0, 1}, l = e{0, 0}}, {b = g{}, l = e{2, 2},
    _refused = "must have 2 rows"},
}
S.cholesky_inverse = {
  {l = e{3, 3}}, {l = e{2, 2, 2}, upper = true}, {l = e{0, 0}}, {l = e{0, 2, 2}},
  {l = f{2, 3}, _refused = "needs square"}, {l = f{}, _refused = "needs square"},
}

S.trace = {
  {x = f{3, 3}}, {x = f{2, 3}}, {x = f{2, 3, 2}}, {x = f{0, 0}}, {x = f{0, 2, 2}},
  {x = A.whole({3, 3}, -9, 9)}, {x = f{3}, _refused = "needs matrices"},
  {x = f{}, _refused = "needs matrices"},
}
S.kron = {
  {a = f{2, 3}, b = g{3, 2}}, {a = f{2}, b = g{3}}, {a = f{2, 2}, b = g{3}}, {a = f{}, b = g{2, 2}},
  {a = f{2, 1, 2}, b = g{2, 2}}, {a = f{0, 2}, b = g{2, 2}}, {a = f{}, b = g{}},
  {a = A.whole({2, 2}, -9, 9), b = A.whole({2, 2}, -9, 9, 2)},
  {a = f{1, 1, 1, 1, 1}, b = g{2}, _refused = "at most 4 dims"},
}
S.cross = {
  {a = f{3}, b = g{3}}, {a = f{2, 3}, b = g{2, 3}}, {a = f{2, 3}, b = g{3}},
  {a = f{3, 2}, b = g{3, 2}, dim = 1}, {a = f{2, 1, 3}, b = g{4, 3}}, {a = f{0, 3}, b = g{0, 3}},
  {a = A.whole({3}, -9, 9), b = A.whole({3}, -9, 9, 2)},
  {a = f{2}, b = g{2}, _refused = "3 elements along dim"}, {a = f{}, b = g{3}, _refused = "cross"},
}
return S
