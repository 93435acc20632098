--- References of convolutions and pooling, window by window.
local A = require "spec.support.array"

local R = {}

-- A number for each of n spatial dims.
local function each(v, n, missing)
  local list = {}
  if type(v) == "number" then v = {v} end
  for i = 1, n do
    if not v or #v == 0 then list[i] = type(missing) == "table" and missing[i] or missing
    else list[i] = #v == 1 and v[1] or v[i] end
  end
  return list
end

-- With a batch dim in front, whether it was there, and the number of spatial dims.
local function batched(x, n)
  if #x.shape == n + 2 then return x, true end
  return A.reshape(x, {1, table.unpack(x.shape)}), false
end

local function unbatched(y, had)
  if had then return y end
  return A.reshape(y, {table.unpack(y.shape, 2)})
end

-- Calls f(x number, weight number, y number) for every product of a convolution; shapes have
-- batches.
local function each_product(xs, ws, ys, a, f)
  local n = #ws - 2
  local stride, padding = each(a.stride, n, 1), each(a.padding, n, 0)
  local dilation, groups = each(a.dilation, n, 1), a.groups or 1
  local per_in, per_out = ws[2], ws[1] // groups
  local x, w, y = {shape = xs}, {shape = ws}, {shape = ys}
  local kernel = {table.unpack(ws, 3)}
  A.each(ys, function(at)
    local g = (at[2] - 1) // per_out
    A.each(kernel, function(k)
      local from, tap = {at[1]}, {at[2], 0}
      for d = 1, n do
        from[d + 2] = (at[d + 2] - 1) * stride[d] - padding[d] + (k[d] - 1) * dilation[d] + 1
        tap[d + 2] = k[d]
        if from[d + 2] < 1 or from[d + 2] > xs[d + 2] then return end
      end
      for c = 1, per_in do
        from[2], tap[2] = g * per_in + c, c
        f(A.place(x, from), A.place(w, tap), A.place(y, at))
      end
    end)
  end)
end

local function conv_shape(xs, ws, a)
  local n = #ws - 2
  local stride, padding, dilation = each(a.stride, n, 1), each(a.padding, n, 0), each(a.dilation,
    n, 1)
  local ys = {xs[1], ws[1]}
  for d = 1, n do
    ys[d + 2] = (xs[d + 2] + 2 * padding[d] - dilation[d] * (ws[d + 2] - 1) - 1) // stride[d] + 1
  end
  return ys
end

function R.conv(a)
  local x, had = batched(a.x, #a.weight.shape - 2)
  local ys = conv_shape(x.shape, a.weight.shape, a)
  local y = A.zeros(ys)
  if a.bias then
    A.each(ys, function(at, k) y[k] = a.bias[at[2]] end)
  end
  each_product(x.shape, a.weight.shape, ys, a, function(i, j,
    k) y[k] = y[k] + x[i] * a.weight[j] end)
  return unbatched(y, had)
end

function R.conv_input_grad(a)
  local dy, had = batched(a.dy, #a.weight.shape - 2)
  local shape = had and a.shape or {1, table.unpack(a.shape)}
  local dx = A.zeros(shape)
  each_product(shape, a.weight.shape, dy.shape, a, function(i, j, k)
    dx[i] = dx[i] + a.weight[j] * dy[k]
  end)
  return unbatched(dx, had)
end

function R.conv_weight_grad(a)
  local dy = batched(a.dy, #a.shape - 2)
  local x = batched(a.x, #a.shape - 2)
  local dw = A.zeros(a.shape)
  each_product(x.shape, a.shape, dy.shape, a, function(i, j, k) dw[j] = dw[j] + x[i] * dy[k] end)
  return dw
end

-- What a convolution with this weight does to its gradient.
function R.conv_transpose(a)
  local n = #a.weight.shape - 2
  local x, had = batched(a.x, n)
  local stride, padding = each(a.stride, n, 1), each(a.padding, n, 0)
  local dilation, more = each(a.dilation, n, 1), each(a.output_padding, n, 0)
  local shape = {x.shape[1], a.weight.shape[2] * (a.groups or 1)}
  for d = 1, n do
    shape[d + 2] = (x.shape[d + 2] - 1) * stride[d] - 2 * padding[d]
      + dilation[d] * (a.weight.shape[d + 2] - 1) + more[d] + 1
  end
  local y = A.zeros(shape)
  if a.bias then A.each(shape, function(at, k) y[k] = a.bias[at[2]] end) end
  each_product(shape, a.weight.shape, x.shape, a, function(i, j, k)
    y[i] = y[i] + a.weight[j] * x[k]
  end)
  return unbatched(y, had)
end

-- --- pooling ---

local function spatial_dims(x, kernel)
  local n = type(kernel) == "table" and #kernel or 1
  return n > 1 and n or math.max(1, #x.shape - 2)
end

-- Sizes of the results, and calls f(y number, list of x numbers, elements in the window with
-- padding) for every window of every plane.
local function windows(xs, n, a, f)
  local kernel = each(a.kernel, n)
  local stride, padding = each(a.stride, n, kernel), each(a.padding, n, 0)
  local dilation, lead, ys = each(a.dilation, n, 1), #xs - n, A.copy_list(xs)
  for d = 1, n do
    local size = xs[lead + d]
    local room = size + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
    local count = (a.ceil and -(-room // stride[d]) or room // stride[d]) + 1
    if a.ceil and (count - 1) * stride[d] >= size + padding[d] then count = count - 1 end
    ys[lead + d] = count
  end
  local x = {shape = xs}
  A.each(ys, function(at, k)
    local list, whole, from = {}, 1, A.copy_list(at)
    for d = 1, n do -- a window may reach into the padding, but not beyond it
      local start = (at[lead + d] - 1) * stride[d] - padding[d]
      local stop = math.min(start + kernel[d], xs[lead + d] + padding[d])
      whole = whole * (stop - start)
    end
    A.each(kernel, function(tap)
      for d = 1, n do
        local start = (at[lead + d] - 1) * stride[d] - padding[d]
        from[lead + d] = start + (tap[d] - 1) * dilation[d] + 1
        if from[lead + d] < 1 or from[lead + d] > xs[lead + d] then return end
      end
      list[#list + 1] = A.place(x, from)
    end)
    f(k, list, whole)
  end)
  return ys
end

function R.max_pool(a)
  local x = a.x
  local n = spatial_dims(x, a.kernel)
  local plane = A.count{table.unpack(x.shape, #x.shape - n + 1)}
  local y, where = {}, {}
  y.shape = windows(x.shape, n, a, function(k, list)
    local best
    for _, at in ipairs(list) do
      if not best or x[at] > x[best] or x[at] ~= x[at] and x[best] == x[best] then best = at end
    end
    y[k], where[k] = x[best], (best - 1) % plane + 1
  end)
  where.shape = y.shape
  return {y, where}
end

function R.max_pool_backward(a)
  local dx = A.zeros(a.shape)
  local function plane(shape) return A.count{table.unpack(shape, #shape - a.spatial + 1)} end
  local from, to = plane(a.dy.shape), plane(a.shape)
  for k = 1, #a.dy do
    local at = (k - 1) // from * to + a.where[k]
    dx[at] = dx[at] + a.dy[k]
  end
  return dx
end

function R.avg_pool(a)
  local y = {}
  y.shape = windows(a.x.shape, spatial_dims(a.x, a.kernel), a, function(k, list, whole)
    local s = 0.0
    for _, at in ipairs(list) do s = s + a.x[at] end
    y[k] = s / (a.count_pad == false and #list or whole)
  end)
  return y
end

function R.avg_pool_backward(a)
  local dx, n = A.zeros(a.shape), spatial_dims({shape = a.shape}, a.kernel)
  local ways = {kernel = a.kernel, stride = a.stride, padding = a.padding}
  local floor = windows(a.shape, n, ways, function() end)
  for d = 1, #floor do ways.ceil = ways.ceil or a.dy.shape[d] > floor[d] end
  windows(a.shape, n, ways, function(k, list, whole)
    for _, at in ipairs(list) do
      dx[at] = dx[at] + a.dy[k] / (a.count_pad == false and #list or whole)
    end
  end)
  return dx
end

-- Result i of n over a size: elements floor((i-1) size / n) + 1 .. ceil(i size / n).
local function adaptive(xs, ys, f)
  local x = {shape = xs}
  A.each(ys, function(at, k)
    local low, counts, list = {}, {}, {}
    for d = 1, #ys do
      low[d] = (at[d] - 1) * xs[d] // ys[d]
      counts[d] = -(-at[d] * xs[d] // ys[d]) - low[d]
    end
    A.each(counts, function(i)
      local from = {}
      for d = 1, #ys do from[d] = low[d] + i[d] end
      list[#list + 1] = A.place(x, from)
    end)
    f(k, list)
  end)
end

function R.adaptive_avg_pool(a)
  local xs, ys = a.x.shape, A.copy_list(a.x.shape)
  local n = spatial_dims(a.x, a.size)
  local size = each(a.size, n)
  for d = 1, n do ys[#xs - n + d] = size[d] end
  local y = {shape = ys}
  adaptive(xs, ys, function(k, list)
    local s = 0.0
    for _, at in ipairs(list) do s = s + a.x[at] end
    y[k] = s / #list
  end)
  return y
end

function R.adaptive_avg_pool_backward(a)
  local dx = A.zeros(a.shape)
  adaptive(a.shape, a.dy.shape, function(k, list)
    for _, at in ipairs(list) do dx[at] = dx[at] + a.dy[k] / #list end
  end)
  return dx
end

return R
