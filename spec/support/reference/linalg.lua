--- References of linear algebra: the textbook's algorithms, or, where a result is not the
-- only one there is (the signs of vectors), what it must be.
local A = require "spec.support.array"
local M = require "spec.support.matrix"

local R = {}
local abs = math.abs

local function last(x, k) return x.shape[#x.shape - (k or 0)] end

-- How far from true a product of results may be.
local room = {f64 = 1e-10, f32 = 3e-5, f16 = 2e-2, bf16 = 1e-1}

local function near(a, b, dtype, what)
  for i = 1, #a do
    for j = 1, #a[i] do
      local off = abs(a[i][j] - b[i][j])
      if off ~= off or off > room[dtype] * (1 + abs(b[i][j])) then
        return false, ("%s: (%d, %d) is %.12g and should be %.12g"):format(what, i, j, a[i][j],
          b[i][j])
      end
    end
  end
  return true
end

-- f(number of the matrix) for every matrix of x until one returns false.
local function every(x, f)
  for b = 0, M.count(x) - 1 do
    local ok, why = f(b)
    if not ok then return false, why end
  end
  return true
end

local function fits(got, shape)
  for d = 1, math.max(#shape, #got.shape) do
    if got.shape[d] ~= shape[d] then
      return false, ("shape (%s) should be (%s)"):format(table.concat(got.shape, ","),
        table.concat(shape, ","))
    end
  end
  return true
end

local function led(x, ...)
  local shape = {table.unpack(x.shape, 1, #x.shape - 2)}
  for _, n in ipairs {...} do shape[#shape + 1] = n end
  return shape
end

function R.cholesky(a)
  local n = last(a.x)
  return M.each(a.x, {n, n}, function(x)
    if a.upper then x = M.turn(x, n) end
    local l = M.scale(M.eye(n), 0)
    for j = 1, n do
      for i = j, n do
        local sum = x[i][j]
        for k = 1, j - 1 do sum = sum - l[i][k] * l[j][k] end
        l[i][j] = i == j and math.sqrt(sum) or sum / l[j][j]
      end
    end
    return a.upper and M.turn(l, n) or l
  end)
end

-- Both operands of a solution, matrix by matrix, with leading dims broadcast.
local function solutions(a, b, prepare)
  local vector = #b.shape == 1
  local n, k = last(a), vector and 1 or last(b)
  local lead_b = vector and {} or {table.unpack(b.shape, 1, #b.shape - 2)}
  local frame_a = {shape = {table.unpack(a.shape, 1, #a.shape - 2)}}
  local frame_b = {shape = lead_b}
  local lead, list = A.broadcast(frame_a.shape, lead_b), {}
  A.each(lead, function(index)
    local x = prepare(M.of(a, A.place(frame_a, index) - 1), n)
    local y = M.solve(x, M.of(b, A.place(frame_b, index) - 1, n, k))
    for i = 1, n do for j = 1, k do list[#list + 1] = y[i][j] end end
  end)
  local shape = A.copy_list(lead)
  shape[#shape + 1] = n
  if not vector then shape[#shape + 1] = k end
  return A.new(shape, list, "f64")
end

function R.triangular_solve(a)
  return solutions(a.a, a.b, function(x, n)
    for i = 1, n do
      for j = 1, n do
        if i == j and a.unitriangular then x[i][j] = 1 end
        if a.upper and j < i or not a.upper and j > i then x[i][j] = 0 end
      end
    end
    return a.transpose and M.turn(x, n) or x
  end)
end

function R.solve(a) return solutions(a.a, a.b, function(x) return x end) end

function R.inv(a) return M.each(a.x, {last(a.x), last(a.x)}, M.inv) end

function R.det(a) return M.each(a.x, {}, M.det) end

function R.slogdet(a)
  return {
    M.each(a.x, {}, function(x) local d = M.det(x) return d > 0 and 1 or d < 0 and -1 or 0 end),
    M.each(a.x, {}, function(x) return math.log(abs(M.det(x))) end),
  }
end

function R.logdet(a)
  return M.each(a.x, {}, function(x)
    local d = M.det(x)
    return d < 0 and 0/0 or math.log(d)
  end)
end

local function orthonormal(u, dtype)
  return near(M.mul(M.turn(u), u), M.eye(#u[1]), dtype, "columns")
end

function R.qr(a)
  local m, n = last(a.x, 1), last(a.x)
  local k = a.mode == "complete" and m or math.min(m, n)
  local q
  return {
    function(got)
      q = got
      local ok, why = fits(q, led(a.x, m, k))
      if not ok or k == 0 then return ok, why end
      return every(a.x, function(b) return orthonormal(M.of(q, b), q.dtype) end)
    end,
    function(r)
      local ok, why = fits(r, led(a.x, k, n))
      if not ok or k == 0 or n == 0 then return ok, why end
      return every(a.x, function(b)
        local t = M.of(r, b)
        for i = 1, k do for j = 1, math.min(i - 1, n) do
          if t[i][j] ~= 0 then return false, "r is not upper triangular" end
        end end
        return near(M.mul(M.of(q, b), t), M.of(a.x, b), r.dtype, "q r")
      end)
    end,
  }
end

local function singular(x)
  local k = math.min(last(x, 1), last(x))
  return M.each(x, {k}, function(y) return M.singular(y, last(x)) end)
end

function R.svd(a)
  local m, n = last(a.x, 1), last(a.x)
  local k, s = math.min(m, n), singular(a.x)
  local wu, wv = a.full_matrices and m or k, a.full_matrices and n or k
  local u
  return {
    function(got)
      u = got
      local ok, why = fits(u, led(a.x, m, wu))
      if not ok or wu == 0 then return ok, why end
      return every(a.x, function(b) return orthonormal(M.of(u, b), u.dtype) end)
    end,
    s,
    function(vh)
      local ok, why = fits(vh, led(a.x, wv, n))
      if not ok or wv == 0 then return ok, why end
      return every(a.x, function(b)
        local v, left = M.of(vh, b), M.of(u, b)
        ok, why = orthonormal(M.turn(v), vh.dtype)
        if not ok or k == 0 then return ok, why end
        for i = 1, m do
          for j = 1, wu do left[i][j] = j <= k and left[i][j] * s[b * k + j] or nil end
        end
        return near(M.mul(left, v, k), M.of(a.x, b), vh.dtype, "u s vh")
      end)
    end,
  }
end

function R.svdvals(a) return singular(a.x) end

local function symmetric(x, upper)
  local n = #x
  local y = M.scale(x, 1)
  for i = 1, n do
    for j = 1, i - 1 do
      if upper then y[i][j] = x[j][i] else y[j][i] = x[i][j] end
    end
  end
  return y
end

function R.eigvalsh(a)
  return M.each(a.x, {last(a.x)}, function(x) return M.eigenvalues(symmetric(x, a.upper)) end)
end

function R.eigh(a)
  local n, w = last(a.x), R.eigvalsh(a)
  return {w, function(v)
    local ok, why = fits(v, a.x.shape)
    if not ok or n == 0 then return ok, why end
    return every(a.x, function(b)
      local x, y = symmetric(M.of(a.x, b), a.upper), M.of(v, b)
      ok, why = orthonormal(y, v.dtype)
      if not ok then return ok, why end
      local right = M.scale(y, 1)
      for i = 1, n do for j = 1, n do right[i][j] = y[i][j] * w[b * n + j] end end
      return near(M.mul(x, y), right, v.dtype, "x v")
    end)
  end}
end

-- Part k of matrix b of pairs.
local function part(x, b, rows, cols, k)
  local y = {}
  for i = 1, rows do
    y[i] = {}
    for j = 1, cols do y[i][j] = x[((b * rows + i - 1) * cols + j - 1) * 2 + k] end
  end
  return y
end

-- x v = v w for columns of norm 1; sums of the eigenvalues and of their squares are traces,
-- so that none is there twice in the place of another.
function R.eig_pairs(a)
  local n, w = last(a.x), nil
  return {
    function(got)
      w = got
      local shape = led(a.x, n, 2)
      return fits(w, shape)
    end,
    function(v)
      local ok, why = fits(v, led(a.x, n, n, 2))
      if not ok or n == 0 then return ok, why end
      return every(a.x, function(b)
        local x = M.of(a.x, b)
        local wr, wi = part(w, b, 1, n, 1)[1], part(w, b, 1, n, 2)[1]
        local vr, vi = part(v, b, n, n, 1), part(v, b, n, n, 2)
        local re, im, norms = {}, {}, {{}}
        local sums = {{0, 0, 0, 0}}
        for i = 1, n do
          re[i], im[i] = {}, {}
          for j = 1, n do
            re[i][j] = vr[i][j] * wr[j] - vi[i][j] * wi[j]
            im[i][j] = vr[i][j] * wi[j] + vi[i][j] * wr[j]
            norms[1][j] = (norms[1][j] or 0) + vr[i][j] ^ 2 + vi[i][j] ^ 2
          end
          sums[1][1], sums[1][2] = sums[1][1] + wr[i], sums[1][2] + wi[i]
          sums[1][3] = sums[1][3] + wr[i] ^ 2 - wi[i] ^ 2
          sums[1][4] = sums[1][4] + 2 * wr[i] * wi[i]
        end
        local x2, traces, ones = M.mul(x, x), {{0, 0, 0, 0}}, {{}}
        for i = 1, n do
          traces[1][1], traces[1][3] = traces[1][1] + x[i][i], traces[1][3] + x2[i][i]
          ones[1][i] = 1
        end
        for _, pair in ipairs {{M.mul(x, vr), re}, {M.mul(x, vi), im}, {norms, ones},
          {sums, traces}} do
          ok, why = near(pair[1], pair[2], v.dtype, "x v")
          if not ok then return false, why end
        end
        return true
      end)
    end,
  }
end

-- The four conditions that have one solution.
function R.pinv(a)
  local m, n = last(a.x, 1), last(a.x)
  return {function(p)
    local ok, why = fits(p, led(a.x, n, m))
    if not ok or m == 0 or n == 0 then return ok, why end
    return every(a.x, function(b)
      local x, y = M.of(a.x, b), M.of(p, b)
      local xy, yx = M.mul(x, y), M.mul(y, x)
      for _, pair in ipairs {{M.mul(xy, x), x}, {M.mul(yx, y), y}, {xy, M.turn(xy)},
        {yx, M.turn(yx)}} do
        ok, why = near(pair[1], pair[2], p.dtype, "condition")
        if not ok then return false, why end
      end
      return true
    end)
  end}
end

function R.matrix_exp(a) return M.each(a.x, {last(a.x), last(a.x)}, M.exp) end

-- By the normal equations, for a of full rank.
function R.lstsq(a)
  local m, n = last(a.a, 1), last(a.a)
  local vector = #a.b.shape == 1
  local k = vector and 1 or last(a.b)
  local y = M.each(a.a, {n, k}, function(x, b)
    if #a.b.shape <= 2 then b = 0 end
    local right, t = M.of(a.b, b, m, k), M.turn(x, n)
    if m >= n then return M.solve(M.mul(t, x, m, n), M.mul(t, right, m, k)) end
    return M.mul(t, M.solve(M.mul(x, t, n, m), right), m, k)
  end)
  if vector then y.shape[#y.shape] = nil end
  return y
end

function R.matrix_rank(a)
  local eps = a.x.dtype == "f64" and 2 ^ -52 or 2 ^ -23
  local rtol = a.rtol or math.max(last(a.x, 1), last(a.x)) * eps
  return M.each(a.x, {}, function(x)
    local n = 0
    local s = M.singular(x, last(a.x))
    for _, v in ipairs(s) do if v > rtol * s[1] then n = n + 1 end end
    return n
  end, "i64")
end

local function sums(x, columns)
  local s = {}
  for i, row in ipairs(x) do
    for j, v in ipairs(row) do
      local k = columns and j or i
      s[k] = (s[k] or 0) + abs(v)
    end
  end
  return s
end

local norms = {
  fro = function(x)
    local sum = 0
    for _, row in ipairs(x) do for _, v in ipairs(row) do sum = sum + v * v end end
    return math.sqrt(sum)
  end,
  nuc = function(x, n)
    local sum = 0
    for _, v in ipairs(M.singular(x, n)) do sum = sum + v end
    return sum
  end,
  ["2"] = function(x, n) return M.singular(x, n)[1] end,
  ["-2"] = function(x, n) local s = M.singular(x, n) return s[#s] end,
  inf = function(x) return math.max(table.unpack(sums(x))) end,
  ["-inf"] = function(x) return math.min(table.unpack(sums(x))) end,
  ["1"] = function(x) return math.max(table.unpack(sums(x, true))) end,
  ["-1"] = function(x) return math.min(table.unpack(sums(x, true))) end,
}

function R.matrix_norm(a)
  return M.each(a.x, a.keepdim and {1, 1} or {}, function(x)
    return norms[a.ord or "fro"](x, last(a.x))
  end)
end

function R.vector_norm(a)
  local shape, kept, groups = A.groups(a.x, A.dim_set(a.dims, #a.x.shape))
  local p = a.ord or 2
  local y = {shape = a.keepdim and kept or shape, dtype = "f64"}
  for k, list in ipairs(groups) do
    local sum, most = 0, 0
    for _, i in ipairs(list) do
      sum, most = sum + abs(a.x[i]) ^ p, math.max(most, abs(a.x[i]))
    end
    y[k] = p == math.huge and most or sum ^ (1 / p)
  end
  return y
end

function R.matrix_power(a)
  local n = last(a.x)
  return M.each(a.x, {n, n}, function(x)
    if a.n < 0 then x = M.inv(x) end
    local y = M.eye(n)
    for _ = 1, abs(a.n) do y = M.mul(y, x) end
    return y
  end)
end

-- l l^T, or u^T u.
local function product(l, upper, n)
  local t = {}
  for i = 1, n do
    t[i] = {}
    for j = 1, n do
      t[i][j] = (upper and j >= i or not upper and j <= i) and l[i][j] or 0
    end
  end
  return upper and M.mul(M.turn(t, n), t) or M.mul(t, M.turn(t, n))
end

function R.cholesky_solve(a)
  return solutions(a.l, a.b, function(x, n) return product(x, a.upper, n) end)
end

function R.cholesky_inverse(a)
  local n = last(a.l)
  return M.each(a.l, {n, n}, function(x) return M.inv(product(x, a.upper, n)) end)
end

local function is_whole(...)
  for _, x in ipairs {...} do if A.is_float(x.dtype) then return false end end
  return true
end

function R.trace(a)
  return M.each(a.x, {}, function(x)
    local sum = 0
    for i = 1, math.min(#x, last(a.x)) do sum = sum + x[i][i] end
    return sum
  end, is_whole(a.x) and "i64" or "f64")
end

local function dtype_of(a, b)
  if not is_whole(a, b) then return "f64" end
  return require("spec.support.dtypes").promote_all {a, b}
end

function R.kron(a)
  local x, y = a.a, a.b
  local nd = math.max(#x.shape, #y.shape)
  local function size(s, d) return s[d - nd + #s] or 1 end
  local shape = {}
  for d = 1, nd do shape[d] = size(x.shape, d) * size(y.shape, d) end
  local dtype = dtype_of(x, y)
  return A.build(shape, function(index)
    local i, j = {}, {}
    for d = 1, nd do
      local n = size(y.shape, d)
      i[d], j[d] = (index[d] - 1) // n + 1, (index[d] - 1) % n + 1
    end
    return A.convert(A.get(x, i) * A.get(y, j), dtype)
  end, dtype)
end

function R.cross(a)
  local x, y = a.a, a.b
  local from_end = #x.shape - A.dim(a.dim or -1, #x.shape)
  local shape, dtype = A.broadcast(x, y), dtype_of(x, y)
  local dim = #shape - from_end
  return A.build(shape, function(index)
    local p, q = A.copy_list(index), A.copy_list(index)
    p[dim], q[dim] = index[dim] % 3 + 1, (index[dim] + 1) % 3 + 1
    return A.convert(A.get(x, p) * A.get(y, q) - A.get(x, q) * A.get(y, p), dtype)
  end, dtype)
end

R._parts = {last = last, near = near, every = every, fits = fits, led = led, room = room,
  solutions = solutions, orthonormal = orthonormal}
require "spec.support.reference.factors"(R)
return R
