--- Functions of NumPy and PyTorch that are composed of operators: splitting, indices,
-- interpolation, products of several matrices.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local need = options.tensor

-- A dim counted from 1.
local function dim_of(where, x, dim)
  local nd = need(where, "x", x):dim()
  local d = math.type(dim) == "integer" and (dim < 0 and dim + nd + 1 or dim)
  if not d or d < 1 or d > nd then
    fail("%s: there is no dim %s in a tensor of %d dims", where, tostring(dim), nd)
  end
  return d
end

--- Whether two tensors have the same shape and elements, as a boolean.
function M.equal(x, y)
  need("equal", "x", x)
  need("equal", "y", y)
  return x.shape == y.shape and core.eq(x, y):all():item()
end

-- --- pieces ---

local function pieces(where, x, how, dim)
  local size, list, starts = x:size(dim), {}, {1}
  if math.type(how) == "integer" then
    if how < 1 then fail("%s: there must be at least 1 piece, got %d", where, how) end
    for k = 1, how - 1 do
      starts[k + 1] = starts[k] + size // how + (k <= size % how and 1 or 0)
    end
  elseif type(how) == "table" then
    for k, at in ipairs(how) do
      starts[k + 1] = math.max(1, math.min(at < 0 and at + size + 1 or at, size + 1))
    end
  else
    fail("%s: expected a number of pieces or a list of positions, got %s", where, options.kind(how))
  end
  for k, from in ipairs(starts) do
    list[k] = x:narrow(dim, math.min(from, size + 1),
      math.max(0, (starts[k + 1] or size + 1) - from))
  end
  return list
end

--- Splits a tensor along dim into `how` views of nearly equal sizes, or, if `how` is a table, at
-- these positions: each begins a piece.
function M.tensor_split(x, how, dim)
  return pieces("tensor_split", x, how, dim_of("tensor_split", x, dim or 1))
end

--- tensor_split along dim 2, for vectors along dim 1.
function M.hsplit(x, how)
  return pieces("hsplit", x, how, dim_of("hsplit", x, need("hsplit", "x", x):dim() == 1 and 1 or 2))
end

--- tensor_split along dim 1 of a tensor of at least 2 dims.
function M.vsplit(x, how)
  dim_of("vsplit", x, 2)
  return pieces("vsplit", x, how, 1)
end

--- tensor_split along dim 3.
function M.dsplit(x, how) return pieces("dsplit", x, how, dim_of("dsplit", x, 3)) end

-- --- positions and choices ---

--- The indices of the lower triangle of a matrix: (2, n), row numbers, then column numbers.
function M.tril_indices(rows, columns, offset)
  return core.ones(rows, columns):tril(offset or 0):nonzero():t()
end

--- The indices of the upper triangle of a matrix: (2, n), row numbers, then column numbers.
function M.triu_indices(rows, columns, offset)
  return core.ones(rows, columns):triu(offset or 0):nonzero():t()
end

--- The Cartesian product of vectors: a matrix with a row for each choice of one element of each.
function M.cartesian_prod(...)
  local list = {...}
  for k, x in ipairs(list) do
    if not core.is_tensor(x) or x:dim() ~= 1 then
      fail("cartesian_prod: input %d must be a vector", k)
    end
  end
  if #list == 1 then return list[1] end
  local grids = table.pack(require("flare.stacks").meshgrid(...))
  for k = 1, grids.n do grids[k] = grids[k]:flatten() end
  return core.stack(grids, 2)
end

--- All combinations of r elements of a vector: a matrix with a row for each, in order.
-- @param r the number of elements, 2 by default
-- @param opts {replacement = false}: whether an element may occur more than once
function M.combinations(x, r, opts)
  local o = options.check("combinations", opts, {replacement = false})
  r = r or 2
  if not core.is_tensor(x) or x:dim() ~= 1 or math.type(r) ~= "integer" or r < 0 then
    fail "combinations: expected a vector and a number of elements"
  end
  local n, list, count = x:numel(), {}, 0
  local function choose(from, chosen)
    if #chosen == r then
      for k = 1, r do list[#list + 1] = chosen[k] end
      count = count + 1
      return
    end
    for k = from, n do
      chosen[#chosen + 1] = k
      choose(o.replacement and k or k + 1, chosen)
      chosen[#chosen] = nil
    end
  end
  choose(1, {})
  if count * r == 0 then return x[{{1, 0}}]:reshape(0, r) end
  local at = core.tensor(list, {dtype = "i64", device = x.device})
  return x:index_select(1, at):reshape(count, r)
end

--- Converts flat indices, in row-major order, to indices into a tensor of a shape.
-- @return a tensor of indices for each dim
function M.unravel_index(index, shape)
  local left, list = need("unravel_index", "index", index) - 1, {}
  for d = #shape, 1, -1 do
    list[d] = left % shape[d] + 1
    left = left // shape[d]
  end
  return table.unpack(list)
end

--- The inverse of unravel_index: flat indices from a list of indices along each dim.
function M.ravel_multi_index(list, shape)
  if #list ~= #shape then
    fail("ravel_multi_index: %d tensors of positions for %d dims", #list, #shape)
  end
  local place
  for d, at in ipairs(list) do
    place = place and place * shape[d] + at - 1 or need("ravel_multi_index", "a position", at) - 1
  end
  return place + 1
end

-- --- x with a part replaced ---

--- A copy of x with src at a position along dim.
function M.select_scatter(x, src, dim, index)
  local y = need("select_scatter", "x", x):clone()
  y:select(dim, index):copy_(src)
  return y
end

--- A copy of x with src in a range along dim.
-- @param range {first, last} or {first, last, step}, as between brackets
function M.slice_scatter(x, src, dim, range)
  local y, place = need("slice_scatter", "x", x):clone(), {}
  for d = 1, dim_of("slice_scatter", x, dim) do place[d] = {} end
  place[#place] = range
  y[place] = src
  return y
end

--- A copy of x with src on a diagonal.
-- @param opts {offset = 0, dim1 = 1, dim2 = 2}
function M.diagonal_scatter(x, src, opts)
  local y = need("diagonal_scatter", "x", x):clone()
  y:diagonal(opts or {}):copy_(src)
  return y
end

-- --- curves ---

--- The derivative along a dim by finite differences: central ones inside, one-sided ones at the
-- ends.
-- @param opts {dim = 1, spacing = 1}: the distance between elements, or a vector of coordinates
function M.gradient(y, opts)
  local o = options.check("gradient", opts, {dim = 1, spacing = options.none})
  local dim = dim_of("gradient", y, o.dim)
  local n = y:size(dim)
  if n < 2 then fail("gradient: needs at least 2 elements along dim %d, got %d", dim, n) end
  local x = o.spacing or 1
  if core.is_tensor(x) then
    if x:dim() ~= 1 or x:numel() ~= n then
      fail("gradient: spacing has shape %s, there are %d elements", tostring(x.shape), n)
    end
    local shape = {}
    for d = 1, y:dim() do shape[d] = d == dim and n or 1 end
    x = x:reshape(shape)
  else
    local shape = {}
    for d = 1, y:dim() do shape[d] = d == dim and n or 1 end
    x = core.arange(0, n, {dtype = y.dtype == "f64" and "f64" or "f32", device = y.device})
    x = x:reshape(shape) * (o.spacing or 1)
  end
  local slope = y:diff{dim = dim} / x:diff{dim = dim}
  local step = x:diff{dim = dim}
  local before, after = step:narrow(dim, 1, n - 2), step:narrow(dim, 2, n - 2)
  local middle = (slope:narrow(dim, 1, n - 2) * after + slope:narrow(dim, 2, n - 2) * before)
    / (before + after)
  return core.cat({slope:narrow(dim, 1, 1), middle, slope:narrow(dim, n - 1, 1)}, dim)
end

--- Linear interpolation at x between points (xp, fp), with xp ascending; beyond the ends the value
-- of the nearest end.
function M.interp(x, xp, fp)
  need("interp", "x", x)
  need("interp", "xp", xp)
  need("interp", "fp", fp)
  local n = xp:numel()
  if xp:dim() ~= 1 or fp:dim() ~= 1 or fp:numel() ~= n or n == 0 then
    fail("interp: xp and fp must be vectors of as many points, got %s and %s", tostring(xp.shape),
      tostring(fp.shape))
  end
  if n == 1 then return fp:expand(x.shape):clone() end
  local right = core.searchsorted(xp, x):clamp(2, n)
  local left = right - 1
  local x0, y0 = xp:take(left), fp:take(left)
  local part = ((x - x0) / (xp:take(right) - x0)):clamp(0, 1)
  return y0 + (fp:take(right) - y0) * part
end

--- Evaluates a polynomial at x; p is the vector of coefficients, the highest power first.
function M.polyval(p, x)
  need("polyval", "p", p)
  local y = p:numel() > 0 and need("polyval", "x", x) * 0 or x * 0
  for k = 1, p:numel() do y = y * x + p[k] end
  return y
end

--- The discrete convolution of two vectors, in either order.
-- @param mode "full" (every overlap, the default), "same" (the size of the longer vector) or
--   "valid" (complete overlaps only)
function M.convolve(a, v, mode)
  need("convolve", "a", a)
  need("convolve", "v", v)
  mode = mode or "full"
  if a:dim() ~= 1 or v:dim() ~= 1 or a:numel() == 0 or v:numel() == 0 then
    fail("convolve: needs two vectors with elements, got %s and %s", tostring(a.shape),
      tostring(v.shape))
  end
  if a:numel() < v:numel() then a, v = v, a end
  local m, n = a:numel(), v:numel()
  local full = core.conv(a:reshape(1, 1, m), v:flip(1):reshape(1, 1, n), {padding = {n - 1}})
  full = full:reshape(m + n - 1)
  if mode == "full" then return full end
  if mode == "same" then return full:narrow(1, (n - 1) // 2 + 1, m) end
  if mode == "valid" then return full:narrow(1, n, m - n + 1) end
  fail("convolve: mode is 'full', 'same' or 'valid', got '%s'", tostring(mode))
end

-- --- products and equations ---

--- Inner products along a dim, by default the last; a is conjugated.
function M.vecdot(a, b, dim)
  local x = need("vecdot", "a", a)
  return ((x.dtype:find "^c" and x:conj() or x) * need("vecdot", "b", b)):sum(dim or -1)
end

--- The condition number of a matrix: the norm of the matrix times the norm of its inverse. It
-- bounds the growth of relative errors in linear systems.
-- @param ord the norm, as in matrix_norm; "2" by default
function M.cond(x, ord)
  ord = ord and tostring(ord) or "2"
  if ord ~= "2" and ord ~= "-2" then
    return need("cond", "x", x):matrix_norm(ord) * x:inv():matrix_norm(ord)
  end
  local s = need("cond", "x", x):svdvals()
  local large, small = s:select(-1, 1), s:select(-1, -1)
  return ord == "2" and large / small or small / large
end

-- The optimal parenthesization of a matrix chain (Cormen and others, Introduction to Algorithms,
-- 15.2).
local function brackets(sizes)
  local n = #sizes - 1
  local cost, split = {}, {}
  for i = 1, n do cost[i], split[i] = {[i] = 0}, {} end
  for length = 2, n do
    for i = 1, n - length + 1 do
      local j = i + length - 1
      cost[i][j] = math.huge
      for k = i, j - 1 do
        local c = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
        if c < cost[i][j] then cost[i][j], split[i][j] = c, k end
      end
    end
  end
  return split
end

--- The product of matrices (the first and the last one may be vectors), multiplied in the order
-- that needs the fewest operations.
function M.multi_dot(...)
  local list = type((...)) == "table" and not core.is_tensor((...)) and {table.unpack((...))}
    or {...}
  local sizes = {}
  for k, x in ipairs(list) do
    if not core.is_tensor(x) or x:dim() > 2 or x:dim() == 0
        or x:dim() == 1 and k > 1 and k < #list then
      fail("multi_dot: input %d must be a matrix, or a vector at an end", k)
    end
    sizes[k] = x:dim() == 1 and k == 1 and 1 or x:size(1)
  end
  if #list < 2 then fail "multi_dot: needs at least two matrices" end
  local last = list[#list]
  sizes[#list + 1] = last:dim() == 2 and last:size(2) or 1
  local split = brackets(sizes)
  local function product(i, j)
    if i == j then return list[i] end
    return product(i, split[i][j]):matmul(product(split[i][j] + 1, j))
  end
  return product(1, #list)
end

local function elements(shape, from, to)
  local n = 1
  for d = from, to do n = n * shape[d] end
  return n
end

--- Solves tensordot(a, x) = b for x, over the last dims of a.
function M.tensorsolve(a, b)
  local n, shape = need("tensorsolve", "b", b):numel(), {}
  for d = b:dim() + 1, need("tensorsolve", "a", a):dim() do shape[#shape + 1] = a:size(d) end
  if a:numel() ~= n * n then
    fail("tensorsolve: a of shape %s is not a square matrix for b of shape %s", tostring(a.shape),
      tostring(b.shape))
  end
  return a:reshape(n, n):solve(b:reshape(n)):reshape(shape)
end

--- The inverse of a, taken as a matrix whose rows are the first `ind` dims.
function M.tensorinv(a, ind)
  ind = ind or 2
  local shape, nd = {}, need("tensorinv", "a", a):dim()
  local rows, columns = elements(a.shape, 1, ind), elements(a.shape, ind + 1, nd)
  if rows ~= columns then
    fail("tensorinv: %s cut after dim %d is not a square matrix", tostring(a.shape), ind)
  end
  for d = ind + 1, nd do shape[#shape + 1] = a:size(d) end
  for d = 1, ind do shape[#shape + 1] = a:size(d) end
  return a:reshape(rows, columns):inv():reshape(shape)
end

return M
