--- Matrices in plain Lua for references: lists of rows, and the textbook's algorithms.
local A = require "spec.support.array"

local M = {}

function M.eye(n)
  local a = {}
  for i = 1, n do
    a[i] = {}
    for j = 1, n do a[i][j] = i == j and 1 or 0 end
  end
  return a
end

--- Matrix b (from 0) of an array's last two dims, `cols` wide where it has none.
function M.of(x, b, rows, cols)
  local a = {}
  rows, cols = rows or x.shape[#x.shape - 1], cols or x.shape[#x.shape]
  for i = 1, rows do
    a[i] = {}
    for j = 1, cols do a[i][j] = x[(b * rows + i - 1) * cols + j] end
  end
  return a
end

function M.mul(a, b, inner, cols)
  local y = {}
  for i = 1, #a do
    y[i] = {}
    for j = 1, cols or #b[1] do
      local sum = 0
      for k = 1, inner or #b do sum = sum + a[i][k] * b[k][j] end
      y[i][j] = sum
    end
  end
  return y
end

function M.turn(a, cols)
  local y = {}
  for j = 1, cols or #a[1] do
    y[j] = {}
    for i = 1, #a do y[j][i] = a[i][j] end
  end
  return y
end

function M.scale(a, s)
  local y = {}
  for i, row in ipairs(a) do
    y[i] = {}
    for j, v in ipairs(row) do y[i][j] = v * s end
  end
  return y
end

--- Gauss with pivots: the solution of a x = b (b is changed) and the determinant of a.
function M.solve(a, b)
  local n, det = #a, 1
  a = M.scale(a, 1)
  b = M.scale(b, 1)
  for k = 1, n do
    local p = k
    for i = k + 1, n do if math.abs(a[i][k]) > math.abs(a[p][k]) then p = i end end
    if p ~= k then
      a[k], a[p], b[k], b[p], det = a[p], a[k], b[p], b[k], -det
    end
    det = det * a[k][k]
    for i = 1, n do
      if i ~= k and a[k][k] ~= 0 then
        local f = a[i][k] / a[k][k]
        for j = 1, n do a[i][j] = a[i][j] - f * a[k][j] end
        for j = 1, #b[1] do b[i][j] = b[i][j] - f * b[k][j] end
      end
    end
  end
  for k = 1, n do
    for j = 1, #b[1] do b[k][j] = b[k][j] / a[k][k] end
  end
  return b, det
end

function M.inv(a) return (M.solve(a, M.eye(#a))) end

function M.det(a) return select(2, M.solve(a, M.eye(#a))) end

--- Singular values, descending: columns are turned until they are orthogonal (Jacobi).
function M.singular(a, cols)
  local rows = #a
  local c = M.turn(a, cols)
  for _ = 1, 60 do
    for p = 1, cols - 1 do
      for q = p + 1, cols do
        local x, y, z = 0, 0, 0
        for i = 1, rows do
          x, y, z = x + c[p][i] ^ 2, y + c[q][i] ^ 2, z + c[p][i] * c[q][i]
        end
        if math.abs(z) > 1e-300 then
          local t = (y - x) / (2 * z)
          t = (t >= 0 and 1 or -1) / (math.abs(t) + math.sqrt(1 + t * t))
          local cos = 1 / math.sqrt(1 + t * t)
          for i = 1, rows do
            local u, v = c[p][i], c[q][i]
            c[p][i], c[q][i] = cos * (u - t * v), cos * (v + t * u)
          end
        end
      end
    end
  end
  local s = {}
  for k = 1, cols do
    local sum = 0
    for i = 1, rows do sum = sum + c[k][i] ^ 2 end
    s[k] = math.sqrt(sum)
  end
  table.sort(s, function(u, v) return u > v end)
  for k = #s, math.min(rows, cols) + 1, -1 do s[k] = nil end
  return s
end

--- Eigenvalues of a symmetric matrix, ascending: by the singular values of a shifted one,
-- which is positive definite.
function M.eigenvalues(a)
  local n, shift = #a, 1
  for i = 1, n do
    local sum = 0
    for j = 1, n do sum = sum + math.abs(a[i][j]) end
    shift = math.max(shift, sum)
  end
  local b = M.scale(a, 1)
  for i = 1, n do b[i][i] = b[i][i] + 2 * shift end
  local s, w = M.singular(b, n), {}
  for i = 1, n do w[i] = s[n + 1 - i] - 2 * shift end
  return w
end

--- The exponential, by its series for a / 2^12 and squares of that.
function M.exp(a)
  local n = #a
  local x, y, term = M.scale(a, 2 ^ -12), M.eye(n), M.eye(n)
  for k = 1, 20 do
    term = M.scale(M.mul(term, x), 1 / k)
    for i = 1, n do for j = 1, n do y[i][j] = y[i][j] + term[i][j] end end
  end
  for _ = 1, 12 do y = M.mul(y, y) end
  return y
end

--- How many matrices an array holds.
function M.count(x)
  return A.count {table.unpack(x.shape, 1, #x.shape - 2)}
end

--- An array of f(matrix, number from 0) for each matrix of x: lists of rows, lists or numbers.
function M.each(x, own, f, dtype)
  local shape, list = {table.unpack(x.shape, 1, #x.shape - 2)}, {}
  for b = 0, M.count(x) - 1 do
    local y = f(M.of(x, b), b)
    if type(y) ~= "table" then y = {y} end
    for _, row in ipairs(y) do
      if type(row) ~= "table" then row = {row} end
      for _, v in ipairs(row) do list[#list + 1] = v end
    end
  end
  for _, size in ipairs(own) do shape[#shape + 1] = size end
  return A.new(shape, list, dtype or "f64")
end

return M
