--- References of the composed rows over dims of space, element by element.
local A = require "spec.support.array"

local R = {}

local function each(v, n, missing)
  local list = {}
  for i = 1, n do
    list[i] = v and #v > 0 and (#v == 1 and v[1] or v[i])
      or type(missing) == "table" and missing[i] or missing
  end
  return list
end

local function tail(list, n) return {table.unpack(list, #list - n + 1)} end
local function head(list, n) return {table.unpack(list, 1, #list - n)} end

-- --- windows as columns ---

-- Calls f(batch and channel dims, tap, window, place in space) for what lies inside.
local function each_window(n, size, a, f)
  local kernel, dilation = each(a.kernel, n), each(a.dilation, n, 1)
  local padding, stride, counts = each(a.padding, n, 0), each(a.stride, n, 1), {}
  for d = 1, n do
    counts[d] = (size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
  end
  A.each(kernel, function(tap, t)
    A.each(counts, function(window, w)
      local at = {}
      for d = 1, n do
        at[d] = (window[d] - 1) * stride[d] - padding[d] + (tap[d] - 1) * dilation[d] + 1
        if at[d] < 1 or at[d] > size[d] then return end
      end
      f(t, w, at)
    end)
  end)
  return A.count(kernel), A.count(counts)
end

local function join(...)
  local all = {}
  for _, list in ipairs {...} do table.move(list, 1, #list, #all + 1, all) end
  return all
end

-- What links columns and space: f(number in columns, number in space).
local function each_link(lead, channels, n, size, a, f)
  local taps, windows = each_window(n, size, a, function() end)
  local columns = {shape = join(lead, {channels * taps, windows})}
  local space = {shape = join(lead, {channels}, size)}
  A.each(join(lead, {channels}), function(i)
    local b, c = head(i, 1), i[#i]
    each_window(n, size, a, function(t, w, at)
      f(A.place(columns, join(b, {(c - 1) * taps + t, w})), A.place(space, join(b, {c}, at)))
    end)
  end)
  return columns.shape, space.shape
end

function R.im2col(a)
  local s = a.x.shape
  local n = #a.kernel > 1 and #a.kernel or #s - 2
  local lead, y = #s == n + 2 and {s[1]} or {}, {}
  local function f(k, at) y[k] = a.x[at] end
  y.shape = each_link(lead, s[#s - n], n, tail(s, n), a, f)
  for k = 1, A.count(y.shape) do y[k] = y[k] or 0 end
  return y
end

function R.fold(a)
  local s, n = a.x.shape, #a.size
  local taps = A.count(each(a.kernel, n))
  local lead, y = #s == 3 and {s[1]} or {}, {}
  local _, shape = each_link(lead, s[#s - 1] // taps, n, a.size, a, function(k, at)
    y[at] = (y[at] or 0) + a.x[k]
  end)
  y.shape = shape
  for k = 1, A.count(shape) do y[k] = y[k] or 0 end
  return y
end

-- --- channels and pixels ---

function R.pixel_shuffle(a)
  local s, r = A.copy_list(a.x.shape), a.factor
  local n = #s
  s[n - 2], s[n - 1], s[n] = s[n - 2] // (r * r), s[n - 1] * r, s[n] * r
  return A.build(s, function(i)
    local at = A.copy_list(i)
    local y, x = i[n - 1] - 1, i[n] - 1
    at[n - 2] = (i[n - 2] - 1) * r * r + (y % r) * r + x % r + 1
    at[n - 1], at[n] = y // r + 1, x // r + 1
    return a.x[A.place(a.x, at)]
  end)
end

function R.pixel_unshuffle(a)
  local s, r = A.copy_list(a.x.shape), a.factor
  local n = #s
  s[n - 2], s[n - 1], s[n] = s[n - 2] * r * r, s[n - 1] // r, s[n] // r
  return A.build(s, function(i)
    local at = A.copy_list(i)
    local c = i[n - 2] - 1
    at[n - 2] = c // (r * r) + 1
    at[n - 1], at[n] = (i[n - 1] - 1) * r + c // r % r + 1, (i[n] - 1) * r + c % r + 1
    return a.x[A.place(a.x, at)]
  end)
end

function R.channel_shuffle(a)
  local each_group = a.x.shape[2] // a.groups
  return A.build(a.x.shape, function(i)
    local at = A.copy_list(i)
    local c = i[2] - 1
    at[2] = c % a.groups * each_group + c // a.groups + 1
    return a.x[A.place(a.x, at)]
  end)
end

-- --- pooling ---

local function space_dims(x, list)
  return #list > 1 and #list or #x.shape == 2 and 1 or #x.shape - 2
end

function R.adaptive_max_pool(a)
  local s, n = a.x.shape, space_dims(a.x, a.size)
  local size, lead = each(a.size, n), head(s, n)
  return A.build(join(lead, size), function(i)
    local low, counts, best = {}, {}, nil
    for d = 1, n do
      local have, j = s[#lead + d], i[#lead + d]
      low[d] = (j - 1) * have // size[d]
      counts[d] = -(-j * have // size[d]) - low[d]
    end
    A.each(counts, function(tap)
      local at = {table.unpack(i, 1, #lead)}
      for d = 1, n do at[#lead + d] = low[d] + tap[d] end
      local v = a.x[A.place(a.x, at)]
      best = best and math.max(best, v) or v
    end)
    return best
  end)
end

function R.lp_pool(a)
  local s, n = a.x.shape, space_dims(a.x, a.kernel)
  local kernel = each(a.kernel, n)
  local stride, padding = each(a.stride, n, kernel), each(a.padding, n, 0)
  local lead, counts = head(s, n), {}
  for d = 1, n do
    local room = s[#lead + d] + 2 * padding[d] - kernel[d]
    counts[d] = (a.ceil and -(-room // stride[d]) or room // stride[d]) + 1
  end
  return A.build(join(lead, counts), function(i)
    local sum = 0.0
    A.each(kernel, function(tap)
      local at = {table.unpack(i, 1, #lead)}
      for d = 1, n do
        local p = (i[#lead + d] - 1) * stride[d] - padding[d] + tap[d]
        if p < 1 or p > s[#lead + d] then return end
        at[#lead + d] = p
      end
      sum = sum + math.abs(a.x[A.place(a.x, at)]) ^ a.p
    end)
    return sum ^ (1 / a.p)
  end)
end

function R.max_unpool(a)
  local s, n = a.x.shape, space_dims(a.x, a.kernel)
  local kernel = each(a.kernel, n)
  local stride, padding = each(a.stride, n, kernel), each(a.padding, n, 0)
  local lead, size = head(s, n), {}
  for d = 1, n do
    size[d] = (s[#lead + d] - 1) * stride[d] - 2 * padding[d] + kernel[d]
  end
  size = each(a.size, n, size)
  local y, part = A.zeros(join(lead, size)), A.count(tail(s, n))
  for k = 1, A.count(s) do
    y[(k - 1) // part * A.count(size) + a.where[k]] = a.x[k]
  end
  return y
end

-- --- reading between elements ---

local function keys(d, a)
  d = math.abs(d)
  if d <= 1 then return ((a + 2) * d - (a + 3)) * d * d + 1 end
  return d < 2 and (((d - 5) * d + 8) * d - 4) * a or 0
end

local function tent(d) return math.max(0, 1 - math.abs(d)) end

local rounders = {
  floor = math.floor, ceil = math.ceil,
  half_down = function(p) return math.ceil(p - 0.5) end,
  half_up = function(p) return math.floor(p + 0.5) end,
}

local function hold(i, n) return math.max(0, math.min(n - 1, i)) end

-- Elements, from 0, and their weights, for place p among n.
local function taps(p, n, o)
  local list = {}
  if o.mode == "nearest" then
    local near = math.floor(2 * p + 0.5) / 2
    if math.abs(p - near) < 1e-9 then p = near end
    return {{hold(rounders[o.rounding or "floor"](p), n), 1}}
  end
  local wide = o.antialias and math.max(o.step, 1) or 1
  local reach = (o.mode == "cubic" and 2 or 1) * wide
  local total, a = 0, o.cubic or -0.75
  for i = math.floor(p - reach), math.ceil(p + reach) do
    local d = (i - p) / wide
    local w = o.mode == "cubic" and keys(d, a) or tent(d)
    if o.exclude_outside and (i < 0 or i > n - 1) then w = 0 end
    list[#list + 1] = {hold(i, n), w}
    total = total + w
  end
  for _, t in ipairs(list) do t[2] = t[2] / total end
  return list
end

local function along(x, dim, o)
  local shape = A.copy_list(x.shape)
  local n = shape[dim] or 1
  if #shape > 0 then shape[dim] = o.size end
  return A.build(shape, function(i)
    local p, sum = (o.start or 0) + ((i[dim] or 1) - 1) * (o.step or 1), 0
    if o.outside and (p < 0 or p > n - 1) then return A.convert(o.outside, x.dtype) end
    local list = taps(p, n, o)
    for _, t in ipairs(list) do
      local at = A.copy_list(i)
      at[dim] = #shape > 0 and math.tointeger(t[1]) + 1 or nil
      local v = x[A.place(x, at)]
      if #list == 1 then return v end
      sum = sum + t[2] * v
    end
    return sum
  end, x.dtype)
end

function R.resample(a)
  local o = {}
  for k, v in pairs(a) do o[k] = v end
  o.step = o.step or 1
  return along(a.x, A.dim(a.dim, #a.x.shape), o)
end

function R.interpolate(a)
  local x, n, mode = a.x, #a.x.shape - 2, a.mode or "nearest"
  for d = 1, n do
    local have = x.shape[d + 2]
    local size = a.size and each(a.size, n)[d] or math.floor(have * a.scale)
    local step = not a.size and 1 / a.scale or have / size
    local o = {size = size, step = step, mode = mode, start = step / 2 - 0.5}
    if mode == "nearest" then o.start = 0
    elseif mode == "nearest_exact" then o.start, o.mode = step / 2, "nearest"
    elseif a.align_corners then o.start, o.step = 0, size > 1 and (have - 1) / (size - 1) or 0
    elseif a.antialias then o.antialias, o.exclude_outside, o.cubic = true, true, -0.5 end
    if mode == "area" then
      local shape = A.copy_list(x.shape)
      shape[d + 2] = size
      local from = x
      x = A.build(shape, function(i)
        local low, high = (i[d + 2] - 1) * have // size, -(-i[d + 2] * have // size)
        local sum = 0
        for k = low + 1, high do
          local at = A.copy_list(i)
          at[d + 2] = k
          sum = sum + from[A.place(from, at)]
        end
        return sum / (high - low)
      end)
    else
      x = along(x, d + 2, o)
    end
  end
  return x
end

-- Place c thrown back and forth into the range.
local function mirror(c, low, high)
  if high <= low then return 0 end
  while c < low or c > high do
    if c < low then c = 2 * low - c end
    if c > high then c = 2 * high - c end
  end
  return c
end

function R.grid_sample(a)
  local s, n = a.x.shape, #a.x.shape - 2
  local mode, corners = a.mode or "linear", a.align_corners
  local function moved(c, size)
    if a.padding == "reflection" then
      c = mirror(c, corners and 0 or -0.5, size - (corners and 1 or 0.5))
    end
    if a.padding == "border" or a.padding == "reflection" then c = hold(c, size) end
    return c
  end
  -- for each dim of space a list of {element from 0, weight}
  local function read(c, size)
    c = corners and (c + 1) / 2 * (size - 1) or ((c + 1) * size - 1) / 2
    if mode ~= "cubic" then c = moved(c, size) end
    local list = {}
    if mode == "nearest" then
      list[1] = {math.floor(c + 0.5), 1}
    else
      for i = math.floor(c) - 1, math.floor(c) + 2 do
        local w = mode == "cubic" and keys(i - c, -0.75) or tent(i - c)
        local at = mode == "cubic" and math.floor(moved(i, size) + 0.5) or i
        list[#list + 1] = {at, w}
      end
    end
    return list
  end
  local shape = join({s[1], s[2]}, {table.unpack(a.grid.shape, 2, n + 1)})
  return A.build(shape, function(i)
    local axes, counts = {}, {}
    for d = 1, n do
      local c = a.grid[A.place(a.grid, join({i[1]}, tail(i, n), {n + 1 - d}))]
      axes[d] = read(c, s[d + 2])
      counts[d] = #axes[d]
    end
    local sum = 0.0
    A.each(counts, function(k)
      local at, w = {i[1], i[2]}, 1
      for d = 1, n do
        local t = axes[d][k[d]]
        if t[1] < 0 or t[1] > s[d + 2] - 1 then return end
        at[d + 2], w = math.tointeger(t[1]) + 1, w * t[2]
      end
      sum = sum + w * a.x[A.place(a.x, at)]
    end)
    return sum
  end)
end

-- --- gradients: of what is linear by its results for single elements, else by differences that
-- are exact for cubic polynomials ---

local function weighed(dy, y)
  local sum = 0
  for k = 1, #dy do sum = sum + dy[k] * y[k] end
  return sum
end

local function with(a, more)
  local o = {}
  for k, v in pairs(a) do o[k] = v end
  for k, v in pairs(more) do o[k] = v end
  return o
end

local function of_single(dy, shape, f)
  return A.build(shape, function(_, k)
    local one = A.zeros(shape, "f64")
    one[k] = 1
    return weighed(dy, f(one))
  end)
end

function R.resample_backward(a)
  local dim, shape = A.dim(a.dim, #a.dy.shape), A.copy_list(a.dy.shape)
  if #shape > 0 then shape[dim] = a.size end
  return of_single(a.dy, shape, function(one)
    return R.resample(with(a, {x = one, size = a.dy.shape[dim] or 1, outside = a.outside and 0}))
  end)
end

function R.grid_sample_backward(a)
  local dx = of_single(a.dy, a.x.shape, function(one) return R.grid_sample(with(a, {x = one})) end)
  local dgrid = A.build(a.grid.shape, function(_, k)
    local function at(h)
      local grid = A.new(a.grid.shape, {table.unpack(a.grid)}, "f64")
      grid[k] = grid[k] + h
      return weighed(a.dy, R.grid_sample(with(a, {grid = grid})))
    end
    local h = 1e-3
    return (8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)
  end)
  return dx, dgrid
end

return R
