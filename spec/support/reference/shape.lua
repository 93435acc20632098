--- References of the rows that make tensors, move elements or only look at them otherwise.
local A = require "spec.support.array"

local R = {}

function R.copy(a)
  local to = a.dtype or a.x.dtype
  return A.new(a.x.shape, a.x, to)
end

function R.assign(a)
  return A.build(a.x.shape, function(index)
    return A.convert(A.get(a.from, index), a.x.dtype)
  end, a.x.dtype)
end

function R.full(a) return A.full(a.shape, a.value or 0, a.dtype or "f32") end

function R.fill(a)
  local v = A.is(a.value) and a.value[1] or a.value
  return A.full(a.x.shape, v, a.x.dtype)
end

function R.arange(a)
  local step, list = a.step or 1, {}
  for k = 0, math.ceil((a.stop - a.start) / step) - 1 do list[#list + 1] = a.start + k * step end
  return A.new({#list}, list, a.dtype or "i64")
end

function R.linspace(a)
  local list, n = {}, a.steps
  for k = 0, n - 1 do list[k + 1] = n == 1 and a.start
    or a.start + (a.stop - a.start) * k / (n - 1) end
  return A.new({n}, list, a.dtype or "f32")
end

function R.eye(a)
  return A.build({a.n, a.m or a.n}, function(i) return i[1] == i[2] and 1 or 0 end,
    a.dtype or "f32")
end

function R.cat(a)
  local parts, dim = {}, a.dim or 1
  for _, x in ipairs(a.xs) do
    if not (#x.shape == 1 and x.shape[1] == 0 and #a.xs > 1) then parts[#parts + 1] = x end
  end
  if #parts == 0 then parts[1] = a.xs[1] end
  dim = A.dim(dim, #a.xs[1].shape)
  local shape = A.copy_list(parts[1].shape)
  shape[dim] = 0
  for _, x in ipairs(parts) do shape[dim] = shape[dim] + x.shape[dim] end
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    for _, x in ipairs(parts) do
      if i[dim] <= x.shape[dim] then return x[A.place(x, i)] end
      i[dim] = i[dim] - x.shape[dim]
    end
  end)
end

function R.stack(a)
  local x = a.xs[1]
  local dim = A.dim(a.dim or 1, #x.shape + 1)
  local shape = A.copy_list(x.shape)
  table.insert(shape, dim, #a.xs)
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    local from = a.xs[table.remove(i, dim)]
    return from[A.place(from, i)]
  end)
end

-- Where element i of a padded dim comes from, nil: from nowhere. All from 1.
local function source(i, before, size, mode)
  i = i - before
  if i >= 1 and i <= size then return i end
  if mode == "replicate" then return i < 1 and 1 or size end
  if mode == "circular" then return (i - 1) % size + 1 end
  if mode == "reflect" then
    if i < 1 then return 2 - i end
    return 2 * size - i
  end
end

local function padded(shape, pad)
  local big, before = {}, {}
  for d = 1, #shape do
    local k = 2 * (#shape - d) + 1
    before[d] = pad[k] or 0
    big[d] = shape[d] + before[d] + (pad[k + 1] or 0)
  end
  return big, before
end

function R.pad(a)
  local x, big, before = a.x, padded(a.x.shape, a.pad)
  return A.build(big, function(index)
    local from = {}
    for d = 1, #big do
      from[d] = source(index[d], before[d], x.shape[d], a.mode or "constant")
      if not from[d] then return A.convert(a.value or 0, x.dtype) end
    end
    return x[A.place(x, from)]
  end)
end

function R.pad_backward(a)
  local dx, _, before = A.zeros(a.shape), padded(a.shape, a.pad)
  A.each(a.dy.shape, function(index, k)
    local from = {}
    for d = 1, #index do
      from[d] = source(index[d], before[d], a.shape[d], a.mode or "constant")
      if not from[d] then return end
    end
    local at = A.place(dx, from)
    dx[at] = dx[at] + a.dy[k]
  end)
  return dx
end

function R.flip(a)
  local x, set = a.x, A.dim_set(a.dims, #a.x.shape)
  if #a.dims == 0 then set = {} end
  return A.build(x.shape, function(index)
    local i = {}
    for d = 1, #index do i[d] = set[d] and x.shape[d] + 1 - index[d] or index[d] end
    return x[A.place(x, i)]
  end)
end

function R.roll(a)
  local x, n = a.x, A.count(a.x.shape)
  if not a.dims or #a.dims == 0 then
    return A.build(x.shape, function(_, k) return x[(k - 1 - a.shifts[1]) % n + 1] end)
  end
  return A.build(x.shape, function(index)
    local i = A.copy_list(index)
    for k, d in ipairs(a.dims) do
      d = A.dim(d, #index)
      i[d] = (i[d] - 1 - a.shifts[k]) % x.shape[d] + 1
    end
    return x[A.place(x, i)]
  end)
end

R["repeat"] = function(a)
  local x, shape = a.x, {}
  local skip = #a.repeats - #x.shape
  for d = 1, #a.repeats do shape[d] = (d > skip and x.shape[d - skip] or 1) * a.repeats[d] end
  return A.build(shape, function(index)
    local i = {}
    for d = 1, #x.shape do i[d] = (index[d + skip] - 1) % x.shape[d] + 1 end
    return x[A.place(x, i)]
  end)
end

function R.repeat_interleave(a)
  local x = a.x
  local dim, shape = A.dim(a.dim or 1, #x.shape), A.copy_list(x.shape)
  if not a.dim then -- elements are in row-major order
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    return A.build({n * a.repeats}, function(index) return x[(index[1] - 1) // a.repeats + 1] end)
  end
  shape[dim] = shape[dim] * a.repeats
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    i[dim] = (i[dim] - 1) // a.repeats + 1
    return x[A.place(x, i)]
  end)
end

local function triangle(keeps)
  return function(a)
    local x, n = a.x, #a.x.shape
    return A.build(x.shape, function(index, k)
      if keeps(index[n] - index[n - 1], a.diagonal or 0) then return x[k] end
      return A.convert(0, x.dtype)
    end)
  end
end
R.tril = triangle(function(off, diagonal) return off <= diagonal end)
R.triu = triangle(function(off, diagonal) return off >= diagonal end)

function R.as_strided_backward(a)
  local dx = A.zeros(a.shape)
  A.each(a.size, function(index, k)
    local at = 1 + (a.offset or 0)
    for d = 1, #index do at = at + (index[d] - 1) * a.stride[d] end
    dx[at] = dx[at] + a.dy[k]
  end)
  return dx
end

-- --- views ---

local function reshaped(x, shape)
  local n, known, open = A.count(x.shape), 1, nil
  shape = A.copy_list(shape)
  for d, size in ipairs(shape) do
    if size == -1 then open = d else known = known * size end
  end
  if open then shape[open] = n // known end
  return A.reshape(x, shape)
end

function R.view(a) return reshaped(a.x, a.shape) end
R.reshape = R.view
function R.contiguous(a) return a.x end

function R.flatten(a)
  local n = #a.x.shape
  if n == 0 then return A.reshape(a.x, {1}) end
  local first, last = A.dim(a.first or 1, n), A.dim(a.last or -1, n)
  local shape, size = {}, 1
  for d = 1, n do
    if d < first or d > last then shape[#shape + 1] = a.x.shape[d]
    else
      size = size * a.x.shape[d]
      if d == last then shape[#shape + 1] = size end
    end
  end
  return A.reshape(a.x, shape)
end

function R.permute(a)
  local order = {}
  for i, d in ipairs(a.dims) do order[i] = A.dim(d, #a.x.shape) end
  return A.permute(a.x, order)
end

function R.transpose(a)
  local order, n = {}, #a.x.shape
  for d = 1, n do order[d] = d end
  if n == 0 then return a.x end
  local i, j = A.dim(a.dim0 or 1, n), A.dim(a.dim1 or 2, n)
  order[i], order[j] = order[j], order[i]
  return A.permute(a.x, order)
end

function R.expand(a)
  local shape = A.copy_list(a.shape)
  local skip = #shape - #a.x.shape
  for d, size in ipairs(shape) do if size == -1 then shape[d] = a.x.shape[d - skip] end end
  return A.build(shape, function(index) return A.get(a.x, index) end)
end

function R.squeeze(a)
  local set, shape = A.dim_set(a.dims, #a.x.shape), {}
  for d, size in ipairs(a.x.shape) do
    if size ~= 1 or not set[d] then shape[#shape + 1] = size end
  end
  return A.reshape(a.x, shape)
end

function R.unsqueeze(a)
  local shape = A.copy_list(a.x.shape)
  table.insert(shape, A.dim(a.dim, #shape + 1), 1)
  return A.reshape(a.x, shape)
end

local function position(p, size) return p < 0 and p + size + 1 or p end

function R.narrow(a)
  local x, dim, shape = a.x, A.dim(a.dim, #a.x.shape), A.copy_list(a.x.shape)
  local start = position(a.start, shape[dim])
  shape[dim] = a.length
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    i[dim] = start + (i[dim] - 1) * (a.step or 1)
    return x[A.place(x, i)]
  end)
end

function R.select(a)
  local x, dim, shape = a.x, A.dim(a.dim, #a.x.shape), A.copy_list(a.x.shape)
  local at = position(a.index, table.remove(shape, dim))
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    table.insert(i, dim, at)
    return x[A.place(x, i)]
  end)
end

function R.diagonal(a)
  local x, n, off = a.x, #a.x.shape, a.offset or 0
  local d1, d2, shape = A.dim(a.dim1 or 1, n), A.dim(a.dim2 or 2, n), {}
  for d, size in ipairs(x.shape) do if d ~= d1 and d ~= d2 then shape[#shape + 1] = size end end
  local rows, cols = x.shape[d1] + math.min(off, 0), x.shape[d2] - math.max(off, 0)
  shape[#shape + 1] = math.max(0, math.min(rows, cols))
  return A.build(shape, function(index)
    local i, k, e = {}, 1, index[#index]
    for d = 1, n do
      if d == d1 then i[d] = e + math.max(-off, 0)
      elseif d == d2 then i[d] = e + math.max(off, 0)
      else
        i[d] = index[k]
        k = k + 1
      end
    end
    return x[A.place(x, i)]
  end)
end

function R.unfold(a)
  local x, shape = a.x, A.copy_list(a.x.shape)
  local dim = A.dim(a.dim, #shape)
  if #shape > 0 then shape[dim] = (shape[dim] - a.size) // a.step + 1 end
  shape[#shape + 1] = a.size
  return A.build(shape, function(index)
    local i = A.copy_list(index)
    local within = table.remove(i)
    if #i > 0 then i[dim] = (i[dim] - 1) * a.step + within end
    return x[A.place(x, i)]
  end)
end

function R.as_strided(a)
  return A.build(a.size, function(index)
    local at = 1 + (a.offset or 0)
    for d = 1, #index do at = at + (index[d] - 1) * a.stride[d] end
    return a.x[at]
  end)
end

function R.movedim(a)
  local n, order, moved = #a.x.shape, {}, {}
  for k, d in ipairs(a.from) do
    d = A.dim(d, n)
    order[A.dim(a.to[k], n)], moved[d] = d, true
  end
  local next_dim = 1
  for d = 1, n do
    while moved[next_dim] do next_dim = next_dim + 1 end
    if not order[d] then order[d], next_dim = next_dim, next_dim + 1 end
  end
  return n == 0 and a.x or A.permute(a.x, order)
end

function R.tile(a)
  local n = math.max(#a.repeats, #a.x.shape)
  local shape = {}
  for d = 1, n do
    local k, r = d - n + #a.x.shape, d - n + #a.repeats
    shape[d] = (k > 0 and a.x.shape[k] or 1) * (r > 0 and a.repeats[r] or 1)
  end
  return A.build(shape, function(index)
    local from = {}
    for d = 1, #a.x.shape do from[d] = (index[d + n - #a.x.shape] - 1) % a.x.shape[d] + 1 end
    return a.x[A.place(a.x, from, #a.x.shape)]
  end)
end

function R.unflatten(a)
  local dim = A.dim(a.dim, #a.x.shape)
  local shape, known = {}, 1
  for _, n in ipairs(a.sizes) do if n > 0 then known = known * n end end
  for d, n in ipairs(a.x.shape) do
    for _, part in ipairs(d == dim and a.sizes or {n}) do
      shape[#shape + 1] = part < 0 and n // known or part
    end
  end
  return A.reshape(a.x, shape)
end

function R.diag_embed(a)
  local offset, s = a.offset or 0, A.copy_list(a.x.shape)
  local n = #s + 1
  local d1, d2 = A.dim(a.dim1 or -2, n), A.dim(a.dim2 or -1, n)
  local size = table.remove(s) + math.abs(offset)
  table.insert(s, math.min(d1, d2), size)
  table.insert(s, math.max(d1, d2), size)
  return A.build(s, function(i)
    if i[d2] - i[d1] ~= offset then return 0 end
    local from = {}
    for d = 1, n do if d ~= d1 and d ~= d2 then from[#from + 1] = i[d] end end
    from[#from + 1] = math.min(i[d1], i[d2])
    return a.x[A.place(a.x, from)]
  end)
end

function R.diag(a)
  if #a.x.shape == 1 then return R.diag_embed(a) end
  local o, list = a.offset or 0, {}
  for r = 1, a.x.shape[1] do
    local c = r + o
    if c >= 1 and c <= a.x.shape[2] then list[#list + 1] = a.x[(r - 1) * a.x.shape[2] + c] end
  end
  list.shape = {#list}
  return list
end

return R
