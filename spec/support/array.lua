--- Plain arrays for samples and references: a flat list in row order with `shape` and
-- `dtype`. Numbers of integer dtypes are Lua integers, bools are 0 and 1, the rest floats.
-- Nothing here knows of flare.
local A = {}

local bits = {i64 = 64, i32 = 32, i16 = 16, i8 = 8, u8 = 8, bool = 1}

A.floats = {"f64", "f32", "f16", "bf16"}
A.integers = {"i64", "i32", "i16", "i8", "u8", "bool"}

function A.is_float(dtype) return bits[dtype] == nil end

function A.count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- A number as an integer dtype keeps it: wrapped, not saturated.
function A.wrap(v, dtype)
  if dtype == "bool" then return v ~= 0 and 1 or 0 end
  local n = bits[dtype]
  if n == 64 then return v end
  v = v & ((1 << n) - 1)
  if dtype ~= "u8" and v >= 1 << (n - 1) then v = v - (1 << n) end
  return v
end

local least = {i64 = math.mininteger, i32 = -2^31 | 0, i16 = -2^15 | 0, i8 = -128, u8 = 0}
local most = {i64 = math.maxinteger, i32 = 2^31 - 1 | 0, i16 = 2^15 - 1 | 0, i8 = 127, u8 = 255}

--- A number converted to a dtype, but for the rounding of floats: floats are cut and held to
-- what an integer dtype has, NaN becomes 0; integers wrap.
function A.convert(v, dtype)
  if v == true then v = 1 elseif v == false then v = 0 end
  if A.is_float(dtype) then return v + 0.0 end
  if dtype == "bool" then return v ~= 0 and 1 or 0 end
  if math.type(v) == "float" then
    if v ~= v then v = 0
    elseif v >= most[dtype] then v = most[dtype]
    elseif v <= least[dtype] then v = least[dtype]
    else v = math.tointeger(v >= 0 and math.floor(v) or math.ceil(v)) end
  end
  return A.wrap(v, dtype)
end

function A.new(shape, list, dtype)
  local a = {shape = shape, dtype = dtype or "f64"}
  for k = 1, A.count(shape) do a[k] = A.convert(list[k], a.dtype) end
  return a
end

function A.full(shape, v, dtype)
  local a = {shape = shape, dtype = dtype or "f64"}
  v = A.convert(v, a.dtype)
  for k = 1, A.count(shape) do a[k] = v end
  return a
end

function A.zeros(shape, dtype) return A.full(shape, 0, dtype) end

--- Values spread over [from, to] without order and without repetition, none nearer than
-- `gap` to one of `avoid`. A.fill({2, 3}, {from = -2, to = 2, seed = 1, avoid = {0}})
function A.fill(shape, options)
  options = options or {}
  local from, to = options.from or -2, options.to or 2
  local x, gap = (options.seed or 1) * 0.317, options.gap or 0.05
  local a = {shape = shape, dtype = options.dtype or "f64"}
  for k = 1, A.count(shape) do
    x = (x + 0.6180339887498949) % 1
    local v = from + (to - from) * x
    for _, bad in ipairs(options.avoid or {}) do
      if math.abs(v - bad) < gap then v = bad + (v >= bad and gap or -gap) + 0.3 * (v - bad) end
    end
    a[k] = A.convert(v, a.dtype)
  end
  return a
end

--- Whole numbers in from..to, for positions (i64 by default).
function A.whole(shape, from, to, seed, dtype)
  local a = {shape = shape, dtype = dtype or "i64"}
  local x = (seed or 1) * 0.271
  for k = 1, A.count(shape) do
    x = (x + 0.6180339887498949) % 1
    a[k] = A.convert(from + math.floor((to - from + 1) * x), a.dtype)
  end
  return a
end

function A.bools(shape, seed)
  return A.whole(shape, 0, 1, seed, "bool")
end

function A.scalar(v, dtype) return A.new({}, {v}, dtype) end

--- An array of pairs (the last dim is 2) that stands for complex numbers.
function A.complex(a)
  local b = A.new(a.shape, a, a.dtype)
  b.complex = true
  return b
end

function A.is(v) return type(v) == "table" and v.shape ~= nil end

--- Steps of a contiguous shape, in elements.
function A.strides(shape)
  local s, n = {}, 1
  for i = #shape, 1, -1 do
    s[i] = n
    n = n * shape[i]
  end
  return s
end

--- Calls f(index, k) for every index (counted from 1, the same table each time) in row
-- order; k is the element's number.
function A.each(shape, f)
  local n, nd = A.count(shape), #shape
  if n == 0 then return end
  local index = {}
  for d = 1, nd do index[d] = 1 end
  for k = 1, n do
    f(index, k)
    for d = nd, 1, -1 do
      index[d] = index[d] + 1
      if index[d] <= shape[d] then break end
      index[d] = 1
    end
  end
end

--- An array of f(index, k).
function A.build(shape, f, dtype)
  local a = {shape = shape, dtype = dtype or "f64"}
  A.each(shape, function(index, k) a[k] = f(index, k) end)
  return a
end

--- The number of an element, dims aligned at the end, sizes of 1 repeated.
function A.place(a, index, n)
  n = n or #index
  local k, step = 1, 1
  local skip = n - #a.shape
  for d = #a.shape, 1, -1 do
    local size = a.shape[d]
    if size ~= 1 then k = k + (index[d + skip] - 1) * step end
    step = step * size
  end
  return k
end

function A.get(a, index)
  if not A.is(a) then return a end
  return a[A.place(a, index)]
end

--- What shapes broadcast to.
function A.broadcast(...)
  local shape = {}
  for _, a in ipairs {...} do
    local s = A.is(a) and a.shape or type(a) == "table" and a or {}
    while #shape < #s do table.insert(shape, 1, 1) end
    for d = 1, #s do
      local at = #shape - #s + d
      assert(shape[at] == s[d] or shape[at] == 1 or s[d] == 1, "shapes do not broadcast")
      if shape[at] == 1 then shape[at] = s[d] end
    end
  end
  return shape
end

--- f applied element by element to arrays and numbers, broadcast.
function A.map(f, ...)
  local args = table.pack(...)
  local shape = {}
  for i = 1, args.n do if A.is(args[i]) then shape = A.broadcast(shape, args[i]) end end
  if args.n == 1 then return A.build(args[1].shape, function(_, k) return f(args[1][k]) end) end
  return A.build(shape, function(index)
    if args.n == 2 then return f(A.get(args[1], index), A.get(args[2], index)) end
    return f(A.get(args[1], index), A.get(args[2], index), A.get(args[3], index))
  end)
end

--- A dim counted from 1, also when given from the end.
function A.dim(d, nd)
  if d < 0 then d = d + math.max(nd, 1) + 1 end
  assert(d >= 1 and d <= math.max(nd, 1), "no such dim")
  return d
end

function A.copy_list(list)
  return table.move(list, 1, #list, 1, {})
end

--- The dims named, or all, as a set.
function A.dim_set(dims, nd)
  local set = {}
  if type(dims) == "number" then dims = {dims} end
  if not dims or #dims == 0 then
    for d = 1, nd do set[d] = true end
  else
    for _, d in ipairs(dims) do set[A.dim(d, nd)] = true end
  end
  return set
end

--- Groups of elements that fall together when dims go. Returns the shape without and with
-- those dims (as 1), and for each result the list of element numbers.
function A.groups(a, set)
  local kept, shape, groups = {}, {}, {}
  for d, size in ipairs(a.shape) do
    kept[d] = set[d] and 1 or size
    if not set[d] then shape[#shape + 1] = size end
  end
  for k = 1, A.count(kept) do groups[k] = {} end
  local frame = {shape = kept}
  A.each(a.shape, function(index, k)
    local g = groups[A.place(frame, index)]
    g[#g + 1] = k
  end)
  return shape, kept, groups
end

function A.reshape(a, shape)
  local b = {shape = shape, dtype = a.dtype}
  return table.move(a, 1, A.count(shape), 1, b)
end

--- Dims in another order.
function A.permute(a, order)
  local shape, strides, steps = {}, A.strides(a.shape), {}
  for i, d in ipairs(order) do
    shape[i] = a.shape[d]
    steps[i] = strides[d]
  end
  return A.build(shape, function(index)
    local k = 1
    for i = 1, #order do k = k + (index[i] - 1) * steps[i] end
    return a[k]
  end, a.dtype)
end

--- The elements of a 1-d run along dim: calls f(list of element numbers, run number).
function A.each_run(a, dim, f)
  local _, _, groups = A.groups(a, {[dim] = true})
  if #a.shape == 0 then groups = {{1}} end
  for g, list in ipairs(groups) do f(list, g) end
end

return A
