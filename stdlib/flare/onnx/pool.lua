--- Pooling over windows, or over everything.
local core = require "flare.core"
local windows = require "flare.onnx.windows"

local M = {}

local lowest = {i64 = math.mininteger, i32 = -(1 << 31), i16 = -(1 << 15), i8 = -128, u8 = 0}

-- The geometry of a node, and its outputs.
local function prepare(n, x)
  local sizes = windows.sizes(n, x)
  local g = windows.geometry(n, sizes, n.attr.kernel_shape)
  return g, windows.outputs(g, sizes, n.attr.ceil_mode == 1), sizes
end

-- Whether flare's own operator computes the same.
local function plain(n, g)
  if n.attr.ceil_mode == 1 or g.count > 3 or not windows.even(g) then return false end
  for k = 1, g.count do
    if 2 * g.before[k] > g.kernel[k] then return false end
  end
  return true
end

local function undilated(g)
  for k = 1, g.count do
    if g.dilation[k] ~= 1 then return false end
  end
  return true
end

local function window_dims(g)
  return windows.dims(g.count + 3, 2 * g.count + 2)
end

-- Positions of the largest elements within the whole input.
local function places(n, x, g, out, sizes, best)
  local total, order, shape = 1, {}, {1, 1}
  for k = 1, g.count do
    total = total * sizes[k]
    order[k] = g.count + 1 - k
    shape[k + 2] = sizes[k]
  end
  local index = core.arange(0, total, {device = x.device})
  if n.attr.storage_order == 1 then -- the first spatial dim counts fastest
    local turned = {}
    for k = 1, g.count do turned[k] = sizes[g.count + 1 - k] end
    index = index:reshape(turned):permute(order)
  end
  index = windows.unfold(index:reshape(shape), g, out, -1, -1):flatten(g.count + 3)
  local full = n:shape(best)
  full[#full] = index.shape[g.count + 3]
  index = index:expand(full):gather(-1, best):squeeze(-1)
  local planes = core.arange(0, x.shape[1] * x.shape[2], {device = x.device}) * total
  return index + planes:reshape(windows.each({x.shape[1], x.shape[2]}, x:dim(), 1))
end

function M.MaxPool(n, x)
  local g, out, sizes = prepare(n, x)
  if plain(n, g) and not n:wants(2) then
    return x:max_pool{kernel = g.kernel, stride = g.stride, padding = g.before,
                      dilation = g.dilation}
  end
  local low = lowest[x.dtype] or -math.huge
  local all = windows.unfold(x, g, out, low, low)
  if not n:wants(2) then return all:amax(window_dims(g)) end
  local y, best = all:flatten(g.count + 3):max_dim(-1, {keepdim = true})
  return y:squeeze(-1), places(n, x, g, out, sizes, best)
end

function M.AveragePool(n, x)
  local g, out, sizes = prepare(n, x)
  local count_pad = n.attr.count_include_pad == 1
  if plain(n, g) and undilated(g) then
    return x:avg_pool{kernel = g.kernel, stride = g.stride, padding = g.before,
                      count_pad = count_pad}
  end
  local dims = window_dims(g)
  local ones = core.ones({1, 1, table.unpack(sizes)}, {device = x.device})
  local counts = windows.unfold(ones, g, out, count_pad and 1 or 0, 0):sum(dims)
  return (windows.unfold(x, g, out, 0, 0):sum(dims) / counts):to(x.dtype)
end

function M.LpPool(n, x)
  local g, out = prepare(n, x)
  local p = n.attr.p or 2
  local sums = windows.unfold(x:abs():pow(p), g, out, 0, 0):sum(window_dims(g))
  return sums:pow(1 / p):to(x.dtype)
end

local function global(f)
  return function(n, x)
    return f(x, {dims = windows.dims(3, x:dim()), keepdim = true}, n.attr.p or 2)
  end
end

M.GlobalAveragePool = global(function(x, o) return x:mean(o) end)
M.GlobalMaxPool = global(function(x, o) return x:amax(o) end)
M.GlobalLpPool = global(function(x, o, p)
  return x:abs():pow(p):sum(o):pow(1 / p):to(x.dtype)
end)

-- Indices refer to the output of the size that the window implies; a larger requested output has
-- zeros at its ends.
function M.MaxUnpool(n, x, indices, output_shape)
  local sizes = windows.sizes(n, x)
  local g = windows.geometry(n, sizes, n.attr.kernel_shape)
  local shape = {x.shape[1], x.shape[2]}
  for k = 1, g.count do
    shape[k + 2] = (sizes[k] - 1) * g.stride[k] - g.before[k] - g.after[k] + g.kernel[k]
  end
  local total = 1
  for _, size in ipairs(shape) do total = total * size end
  local y = core.zeros({total}, {dtype = x.dtype, device = x.device})
  y = y:index_copy(1, indices:reshape(-1), x:reshape(-1), {base = 0}):reshape(shape)
  local wanted = n:list(output_shape)
  if not wanted then return y end
  local before, after = {}, {}
  for k = 1, g.count do before[k], after[k] = 0, wanted[k + 2] - shape[k + 2] end
  return windows.pad(y, before, after, 0)
end

return M
