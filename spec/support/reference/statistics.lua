--- References of what is counted, ranked and measured, and of products and powers beside it.
local A = require "spec.support.array"
local elementwise = require "spec.support.reference.elementwise"
local math_rows = require "spec.support.reference.math"
local reduce = require "spec.support.reference.reduce"

local R = {}
local inf, nan = math.huge, 0/0

-- --- by element ---

local function parts(x)
  if x ~= x or x == inf or x == -inf or x == 0 then return x, 0 end
  local m, e = x + 0.0, 0
  while math.abs(m) >= 1 do m, e = m / 2, e + 1 end
  while math.abs(m) < 0.5 do m, e = m * 2, e - 1 end
  return m, e
end

function R.frexp(a)
  return {A.map(function(x) return (parts(x)) end, a.x),
    A.map(function(x) return (select(2, parts(x))) end, a.x)}
end

function R.mvlgamma(a)
  return A.map(function(x)
    local y = a.p * (a.p - 1) / 4 * math.log(math.pi)
    for k = 0, a.p - 1 do y = y + elementwise._lgamma(x - k / 2) end
    return y
  end, a.x)
end

function R.float_power(a)
  return A.map(function(x, y) return (x + 0.0) ^ y end, a.a, a.b)
end

-- The bits of a float as a number that counts up with it: f64, and f32, whose upper half is bf16.
local function steps(x, y, float, int, shift)
  local bits = (int):unpack((float):pack(x)) >> shift << shift
  if x == 0 then return (float):unpack((int):pack(1 << shift)) * (y > 0 and 1 or -1) end
  local up = (y > x) == (x > 0) and 1 or -1
  return ((float):unpack((int):pack(bits + (up << shift))))
end

local function half(x, y)
  local e = x == 0 and -14 or math.max(math.floor(math.log(math.abs(x), 2)), -14)
  if math.abs(x) == 2.0 ^ e and e > -14 and (y < x) == (x > 0) then e = e - 1 end
  return x + 2.0 ^ (e - 10) * (y > x and 1 or -1)
end

function R.nextafter(a)
  local dtype = type(a.a) == "table" and a.a.dtype or a.b.dtype
  return A.map(function(x, y)
    if x ~= x or y ~= y or x == y then return x == x and y or x end
    if dtype == "f16" then
      return math.abs(x) == math.huge and (x > 0 and 65504.0 or -65504.0) or half(x, y)
    elseif dtype == "f64" then
      return steps(x, y, "<d", "<i8", 0)
    end
    return steps(x, y, "<f", "<i4", dtype == "bf16" and 16 or 0)
  end, a.a, a.b)
end

function R.logspace(a)
  return A.build({a.steps}, function(_, k)
    local step = a.steps > 1 and (a.stop - a.start) / (a.steps - 1) or 0
    return (a.base or 10.0) ^ (a.start + step * (k - 1))
  end)
end

-- --- made larger ---

function R.diagflat(a)
  local n, offset = A.count(a.x.shape), a.offset or 0
  local size = n + math.abs(offset)
  local out = A.zeros({size, size}, a.x.dtype)
  for k = 1, n do
    out[(k - 1 + math.max(-offset, 0)) * size + k + math.max(offset, 0)] = a.x[k]
  end
  return out
end

function R.vander(a)
  local shape, n = A.copy_list(a.x.shape), a.n or a.x.shape[#a.x.shape]
  shape[#shape + 1] = n
  return A.build(shape, function(index, k)
    local x, e = a.x[(k - 1) // n + 1], index[#index] - 1
    if not a.increasing then e = n - 1 - e end
    local y = math.type(x) == "integer" and 1 or 1.0
    for _ = 1, e do y = y * x end
    return y
  end)
end

local function leading(x) return {table.unpack(x.shape, 1, #x.shape - 1)} end

function R.inner(a)
  if #a.a.shape == 0 or #a.b.shape == 0 then
    return A.map(function(x, y) return x * y end, a.a, a.b)
  end
  local shape, n = leading(a.a), a.a.shape[#a.a.shape]
  table.move(leading(a.b), 1, #a.b.shape - 1, #shape + 1, shape)
  local rows = A.count(leading(a.b))
  return A.build(shape, function(_, k)
    local i, j, sum = (k - 1) // rows, (k - 1) % rows, 0
    for m = 1, n do sum = sum + a.a[i * n + m] * a.b[j * n + m] end
    return sum
  end)
end

function R.cdist(a)
  local d = a.a.shape[#a.a.shape]
  local m, n = a.a.shape[#a.a.shape - 1], a.b.shape[#a.b.shape - 1]
  local function outside(x) return {shape = {table.unpack(x.shape, 1, #x.shape - 2)}} end
  local shape = A.broadcast(outside(a.a), outside(a.b))
  shape[#shape + 1], shape[#shape + 2] = m, n
  return A.build(shape, function(index)
    local at = {table.unpack(index, 1, #index - 2)}
    local from = (A.place(outside(a.a), at, #at) - 1) * m + index[#index - 1] - 1
    local to = (A.place(outside(a.b), at, #at) - 1) * n + index[#index] - 1
    local line = {shape = {d}}
    for k = 1, d do line[k] = a.a[from * d + k] - a.b[to * d + k] end
    return reduce.norm {x = line, p = a.p}[1]
  end)
end

function R.pair_distances(a)
  return R.cdist {a = a.a, b = a.b, p = 2}
end

-- --- over dims ---

function R.aminmax(a) return {reduce.amin(a), reduce.amax(a)} end

function R.corrcoef(a)
  local c = math_rows.cov(a)
  local n = c.shape[1] or 1
  return A.build(c.shape, function(_, k)
    local i, j = (k - 1) // n + 1, (k - 1) % n + 1
    return c[k] / math.sqrt(c[(i - 1) * n + i] * c[(j - 1) * n + j])
  end)
end

function R.renorm(a)
  local out, p = {shape = a.x.shape}, a.p
  local _, _, groups = A.groups(a.x, (function()
    local set = A.dim_set(nil, #a.x.shape)
    set[A.dim(a.dim, #a.x.shape)] = nil
    return set
  end)())
  for _, list in ipairs(groups) do
    local sum = 0
    for _, at in ipairs(list) do sum = sum + math.abs(a.x[at]) ^ p end
    local norm = sum ^ (1 / p)
    for _, at in ipairs(list) do
      out[at] = norm > a.maxnorm and a.x[at] * a.maxnorm / (norm + 1e-7) or a.x[at]
    end
  end
  return out
end

-- --- along one dim ---

function R.cumulative_trapezoid(a)
  local y, shape = a.y, A.copy_list(a.y.shape)
  local dim = A.dim(a.dim or -1, #shape)
  shape[dim] = math.max(shape[dim] - 1, 0)
  local out, lines = {shape = shape}, {}
  A.each_run({shape = shape}, dim, function(list, g) lines[g] = list end)
  A.each_run(y, dim, function(list, g)
    local sum = 0
    for k = 2, #list do
      local step = a.dx or 1
      if a.x and #a.x.shape == 1 then step = a.x[k] - a.x[k - 1]
      elseif a.x then step = a.x[list[k]] - a.x[list[k - 1]] end
      sum = sum + step * (y[list[k]] + y[list[k - 1]]) / 2
      out[lines[g][k - 1]] = sum
    end
  end)
  return out
end

function R.logcumsumexp(a)
  local out = {shape = a.x.shape}
  A.each_run(a.x, A.dim(a.dim, #a.x.shape), function(list)
    for n = 1, #list do
      local top, sum = -inf, 0
      for k = 1, n do
        local v = a.x[list[k]]
        if v ~= v or v > top then top = v end
      end
      for k = 1, n do
        local v = a.x[list[k]]
        sum = sum + (v == top and 1 or math.exp(v - top))
      end
      out[list[n]] = top == -inf and top or top + math.log(sum)
    end
  end)
  return out
end

-- --- ranked: f(sorted known ones) gives a value; NaN if there are none ---

local function ranked(f)
  return function(a)
    local nd = #a.x.shape
    local set = a.dim and {[A.dim(a.dim, nd)] = true} or A.dim_set(nil, nd)
    local shape, kept, groups = A.groups(a.x, set)
    local values = {shape = a.keepdim and kept or shape}
    local places = {shape = values.shape}
    for g, list in ipairs(groups) do
      local line = {}
      for k, at in ipairs(list) do
        if a.x[at] == a.x[at] then line[#line + 1] = {a.x[at], k} end
      end
      table.sort(line, function(x, y) return x[1] < y[1] or x[1] == y[1] and x[2] < y[2] end)
      if #line == 0 then values[g], places[g] = nan, 1
      else values[g], places[g] = f(line, a) end
    end
    return {values, places}
  end
end

R.nanmedian = ranked(function(line)
  local it = line[(#line + 1) // 2]
  return it[1], it[2]
end)

local quantiles = ranked(function(line, a)
  local values = {shape = {#line}}
  for k, it in ipairs(line) do values[k] = it[1] end
  return math_rows.quantile {x = values, q = a.q, interpolation = a.interpolation}[1], 0
end)
function R.nanquantile(a) return quantiles(a)[1] end

-- --- counted ---

local function counted(a, pad)
  local n, low, high = A.count(a.x.shape), a.min, a.max
  if not low or low == high then
    low, high = inf, -inf
    for k = 1, n do low, high = math.min(low, a.x[k]), math.max(high, a.x[k]) end
    if n == 0 then low, high = a.min or 0, (a.min or 0) + 1
    elseif low == high then low, high = low - pad, high + pad end
  end
  local bins = a.bins or 10
  local list = A.zeros({bins})
  for k = 1, n do
    local x = a.x[k]
    if x >= low and x <= high then
      local at = math.min(math.floor((x - low) / (high - low) * bins), bins - 1) + 1
      list[at] = list[at] + (a.weight and a.weight[k] or 1)
    end
  end
  return list, low, high
end

function R.histc(a) return (counted({x = a.x, bins = a.bins, min = a.min, max = a.max}, 1)) end

function R.histogram(a)
  local list, low, high = counted(a, 0.5)
  local bins = a.bins or 10
  if a.density then
    local sum = 0
    for k = 1, bins do sum = sum + list[k] end
    for k = 1, bins do list[k] = list[k] / (sum * (high - low) / bins) end
  end
  return {list, A.build({bins + 1}, function(_, k) return low + (high - low) * (k - 1) / bins end)}
end

function R.unique_consecutive(a) return math_rows._distinct(a, false) end

function R.isin(a)
  return A.map(function(x)
    local found = false
    for k = 1, A.count(a.values.shape) do found = found or a.values[k] == x end
    return found ~= (a.invert or false)
  end, a.x)
end

return R
