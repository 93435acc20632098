--- References of the rows that read and write at positions. Positions count from 1.
local A = require "spec.support.array"

local R = {}

local function position(p, size) return p < 0 and p + size + 1 or p end

function R.embedding(a)
  local shape = A.copy_list(a.index.shape)
  local width = a.weight.shape[2]
  shape[#shape + 1] = width
  return A.build(shape, function(index, k)
    return a.weight[(a.index[(k - 1) // width + 1] - 1) * width + index[#index]]
  end)
end

function R.embedding_backward(a)
  local shape, rows = {a.rows}, A.count(a.index.shape)
  for d = #a.index.shape + 1, #a.dy.shape do shape[#shape + 1] = a.dy.shape[d] end
  local dx, width = A.zeros(shape), A.count{table.unpack(shape, 2)}
  local padding = a.padding and position(a.padding, a.rows)
  for r = 1, rows do
    local to = a.index[r]
    for c = 1, to ~= padding and width or 0 do
      local at = (to - 1) * width + c
      dx[at] = dx[at] + a.dy[(r - 1) * width + c]
    end
  end
  return dx
end

-- Calls f(bag, position in index, row, how many rows the bag has) for every position that counts.
local function each_of_bags(a, rows, f)
  local n, each, o = A.count(a.index.shape), a.index.shape[2], a.offsets
  local bags = o and o.shape[1] - (a.include_last and 1 or 0) or a.index.shape[1]
  local padding = a.padding and position(a.padding, rows)
  for b = 1, bags do
    local from = o and o[b] or (b - 1) * each + 1
    local to = o and (o[b + 1] or n + 1) - 1 or from + each - 1
    local list = {}
    for k = from, to do
      if a.index[k] ~= padding then list[#list + 1] = k end
    end
    for _, k in ipairs(list) do f(b, k, a.index[k], #list) end
  end
  return bags
end

function R.embedding_bag(a)
  local rows, width = a.weight.shape[1], a.weight.shape[2]
  local y, begun, mode = {}, {}, a.mode or "mean"
  local bags = each_of_bags(a, rows, function(b, k, row, n)
    local first = not begun[b]
    begun[b] = true
    for c = 1, width do
      local at, v = (b - 1) * width + c, a.weight[(row - 1) * width + c]
      if mode == "max" then
        y[at] = first and v or math.max(y[at], v)
      else
        y[at] = (y[at] or 0) + v * (a.weights and a.weights[k] or 1) / (mode == "mean" and n or 1)
      end
    end
  end)
  for at = 1, bags * width do y[at] = y[at] or 0 end
  y.shape = {bags, width}
  return {y}
end

function R.embedding_bag_backward(a)
  local width = a.dy.shape[2]
  local dx = A.zeros{a.rows, width}
  each_of_bags(a, a.rows, function(b, k, row, n)
    local f = a.mode == "sum" and (a.weights and a.weights[k] or 1) or 1 / n
    for c = 1, width do
      local at = (row - 1) * width + c
      dx[at] = dx[at] + f * a.dy[(b - 1) * width + c]
    end
  end)
  return dx
end

-- Calls f(number in x, number of index) for every position of index.
local function each_position(x, dim, index, f)
  dim = A.dim(dim, #x.shape)
  A.each(index.shape, function(i, k)
    local at = A.copy_list(i)
    at[dim] = #i > 0 and index[k] or nil
    f(A.place(x, at, #x.shape), k, i)
  end)
end

local function copy(x)
  return A.reshape(x, x.shape)
end

function R.gather(a)
  local y = {shape = a.index.shape}
  each_position(a.x, a.dim, a.index, function(at, k) y[k] = a.x[at] end)
  return y
end

-- A number among arrays, one for all.
local function from(src, index)
  if not A.is(src) then return src end
  if #src.shape == 0 then return src[1] end
  return src[A.place(src, index)]
end

function R.scatter(a)
  local y = copy(a.x)
  each_position(a.x, a.dim, a.index, function(at, _, i)
    y[at] = A.convert(from(a.src, i), a.x.dtype)
  end)
  return y
end

function R.scatter_add(a)
  local y = copy(a.x)
  each_position(a.x, a.dim, a.index, function(at, _, i) y[at] = y[at] + A.convert(from(a.src, i),
    a.x.dtype) end)
  return y
end

local function larger(a, b) return (b > a or b ~= b) and a == a and b or a end
local function smaller(a, b) return (b < a or b ~= b) and a == a and b or a end
local function product(a, b) return a * b end
local function total(a, b) return a + b end
local joins = {sum = total, mean = total, prod = product, amax = larger, amin = smaller}

-- x with the values of each place joined: places[k] is a list of those brought to element k.
local function joined(x, places, reduce, self)
  local y = copy(x)
  for k, values in pairs(places) do
    local v = self and x[k] or table.remove(values, 1)
    local n = #values + 1
    for _, b in ipairs(values) do v = joins[reduce](v, b) end
    if reduce == "mean" then v = A.is_float(x.dtype) and v / n or v // n end
    y[k] = v
  end
  return y
end

local function scattered(a, reduce, self)
  local places = {}
  each_position(a.x, a.dim, a.index, function(at, _, i)
    places[at] = places[at] or {}
    table.insert(places[at], A.convert(from(a.src, i), a.x.dtype))
  end)
  return joined(a.x, places, reduce, self)
end

function R.scatter_prod(a) return scattered(a, "prod", true) end
function R.scatter_amax(a) return scattered(a, "amax", true) end
function R.scatter_amin(a) return scattered(a, "amin", true) end
function R.scatter_reduce(a)
  return scattered(a, a.reduce or "sum", a.include_self ~= false)
end

-- Calls f(number in x, number of the part's element) for all that an index of rows reads.
local function each_part(x, index, batch, f)
  local rows, width = A.copy_list(index.shape), index.shape[#index.shape]
  table.remove(rows)
  local rest = {table.unpack(x.shape, batch + width + 1)}
  local n = 0
  A.each(rows, function(row, k)
    local place = {table.unpack(row, 1, batch)}
    for j = 1, width do place[batch + j] = index[(k - 1) * width + j] end
    A.each(rest, function(i)
      local where = {table.unpack(place)}
      table.move(i, 1, #i, #where + 1, where)
      n = n + 1
      f(A.place(x, where), n)
    end)
  end)
  return table.move(rest, 1, #rest, #rows + 1, rows)
end

function R.gather_nd(a)
  local y = {}
  y.shape = each_part(a.x, a.index, a.batch_dims or 0, function(at, k) y[k] = a.x[at] end)
  return y
end

function R.scatter_nd(a)
  local places = {}
  each_part(a.x, a.index, 0, function(at, k)
    places[at] = places[at] or {}
    table.insert(places[at], A.convert(A.is(a.src) and a.src[k] or a.src, a.x.dtype))
  end)
  if a.reduce and a.reduce ~= "none" then return joined(a.x, places, a.reduce, true) end
  local y = copy(a.x)
  for k, values in pairs(places) do y[k] = values[#values] end
  return y
end

function R.take(a)
  local y = {shape = a.index.shape}
  for k = 1, A.count(y.shape) do y[k] = a.x[a.index[k]] end
  return y
end

function R.put(a)
  local y = copy(a.x)
  for k = 1, A.count(a.index.shape) do
    local v = A.convert(A.is(a.src) and a.src[k] or a.src, a.x.dtype)
    y[a.index[k]] = a.accumulate and y[a.index[k]] + v or v
  end
  return y
end

-- For every element of the slices named: f(number in x, index within the slices).
local function each_slice(x, dim, index, f)
  dim = A.dim(dim, #x.shape)
  local shape = A.copy_list(x.shape)
  if #shape > 0 then shape[dim] = #index end
  A.each(shape, function(i)
    local at = A.copy_list(i)
    if #at > 0 then at[dim] = index[i[dim]] end
    f(A.place(x, at, #x.shape), i)
  end)
  return shape
end

function R.index_select(a)
  local list = {}
  list.shape = each_slice(a.x, a.dim, a.index, function(at) list[#list + 1] = a.x[at] end)
  return list
end

function R.index_add(a)
  local y = copy(a.x)
  each_slice(a.x, a.dim, a.index, function(at, i) y[at] = y[at] + A.convert(from(a.src, i),
    a.x.dtype) end)
  return y
end

function R.index_copy(a)
  local y = copy(a.x)
  each_slice(a.x, a.dim, a.index, function(at, i) y[at] = A.convert(from(a.src, i), a.x.dtype) end)
  return y
end

function R.index_fill(a)
  local y = copy(a.x)
  local v = A.is(a.value) and a.value[1] or a.value
  each_slice(a.x, a.dim, a.index, function(at) y[at] = A.convert(v, a.x.dtype) end)
  return y
end

function R.masked_select(a)
  local list = {}
  A.each(A.broadcast(a.x, a.mask), function(i)
    if A.get(a.mask, i) ~= 0 then list[#list + 1] = A.get(a.x, i) end
  end)
  list.shape = {#list}
  return list
end

function R.masked_scatter(a)
  local n = 0
  return A.build(A.broadcast(a.x, a.mask), function(i)
    if A.get(a.mask, i) == 0 then return A.get(a.x, i) end
    n = n + 1
    return A.convert(a.src[n], a.x.dtype)
  end)
end

function R.masked_fill(a)
  return A.build(A.broadcast(a.x, a.mask), function(i)
    if A.get(a.mask, i) == 0 then return A.get(a.x, i) end
    return A.convert(A.get(a.value, i), a.x.dtype)
  end)
end

function R.nonzero(a)
  local list, n = {}, 0
  A.each(a.x.shape, function(i, k)
    if a.x[k] ~= 0 then
      n = n + 1
      table.move(i, 1, #i, #list + 1, list)
    end
  end)
  list.shape = {n, #a.x.shape}
  return list
end

function R.one_hot(a)
  local shape = A.copy_list(a.index.shape)
  shape[#shape + 1] = a.classes
  return A.build(shape, function(i, k)
    return i[#i] == a.index[(k - 1) // a.classes + 1] and 1 or 0
  end)
end

return R
