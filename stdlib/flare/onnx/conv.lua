--- Convolutions.
local core = require "flare.core"
local windows = require "flare.onnx.windows"

local M = {}

--- A convolution with the padding that the node specifies.
function M.conv(n, x, weight, bias)
  local kernel = windows.sizes(n, weight)
  local g = windows.geometry(n, windows.sizes(n, x), kernel)
  local padding = g.before
  if not windows.even(g) then
    x = windows.pad(x, g.before, g.after, 0)
    padding = windows.each(nil, g.count, 0)
  end
  return x:conv(weight, {bias = bias, stride = g.stride, padding = padding,
                         dilation = g.dilation, groups = n.attr.group or 1})
end

M.Conv = M.conv

local function along_channels(bias, rank)
  local shape = windows.each({[2] = bias.shape[1]}, rank, 1)
  return bias:reshape(shape)
end

-- The elements to cut off before and after each spatial dim of a transposed convolution without
-- padding, and the zeros to add at its end.
local function cuts(n, g, sizes)
  local extra, wanted = windows.each(n.attr.output_padding, g.count, 0), n.attr.output_shape
  local before, after = {}, {}
  for k = 1, g.count do
    local full = g.stride[k] * (sizes[k] - 1) + g.reach[k] + extra[k]
    local target = wanted and wanted[#wanted - g.count + k]
    if not target and (g.way == "SAME_UPPER" or g.way == "SAME_LOWER") then
      target = sizes[k] * g.stride[k]
    end
    before[k], after[k] = g.before[k], g.after[k]
    if target then
      local total = math.max(full - target, 0)
      before[k] = g.way == "SAME_UPPER" and total // 2 or total - total // 2
      after[k] = full - target - before[k]
    end
    before[k], after[k] = -before[k], extra[k] - after[k]
  end
  return before, after
end

function M.ConvTranspose(n, x, weight, bias)
  local sizes = windows.sizes(n, x)
  local g = windows.geometry(n, sizes, windows.sizes(n, weight))
  local y = x:conv_transpose(weight, {stride = g.stride, dilation = g.dilation,
                                      groups = n.attr.group or 1})
  local before, after = cuts(n, g, sizes)
  y = windows.pad(y, before, after, 0)
  return bias and y + along_channels(bias, y:dim()) or y
end

function M.Col2Im(n, x, image, block)
  local sizes = n:list(image)
  local g = windows.geometry(n, sizes, n:list(block))
  local before, after = {}, {}
  for k = 1, g.count do
    before[k], after[k] = -g.before[k], -g.after[k]
    sizes[k] = sizes[k] - before[k] - after[k]
  end
  local y = x:fold{size = sizes, kernel = g.kernel, dilation = g.dilation, stride = g.stride}
  return windows.pad(y, before, after, 0)
end

-- Where each element of each window lies along spatial dim d, as grid_sample counts: the edges of
-- the image are at -1 and 1. (batch, groups, window, outputs ...)
local function places(offset, g, d, out, size)
  local window, list = offset.shape[3], {}
  for p = 0, window - 1 do
    for k = g.count, d + 1, -1 do p = p // g.kernel[k] end
    list[#list + 1] = p % g.kernel[d] * g.dilation[d] - g.before[d]
  end
  local where = core.tensor(list, {dtype = offset.dtype}):to(offset.device)
  local steps = core.arange(0, out[d], {device = offset.device}):to(offset.dtype) * g.stride[d]
  local at = offset + where:reshape(windows.each({window}, g.count + 1, 1))
    + steps:reshape(windows.each({[d + 1] = out[d]}, g.count + 1, 1))
  return (2 * at + 1) / size - 1
end

function M.DeformConv(n, x, weight, offset, bias, mask)
  local sizes = windows.sizes(n, x)
  local g = windows.geometry(n, sizes, windows.sizes(n, weight))
  local out = windows.sizes(n, offset)
  local batch, channels, groups = x.shape[1], x.shape[2], n.attr.group or 1
  local moved = n.attr.offset_group or 1
  -- in f64, so that coordinates on an element give that element exactly
  offset = offset:to("f64"):reshape(batch, moved, -1, g.count, table.unpack(out))
  local window, grid = offset.shape[3], {}
  local shape = windows.each({batch * moved, window, -1}, g.count + 1, 1)
  for d = g.count, 1, -1 do -- the last spatial dim comes first in a grid
    grid[#grid + 1] = places(offset:select(4, d), g, d, out, sizes[d]):reshape(shape)
  end
  local image = x:to("f64"):reshape(batch * moved, channels // moved, table.unpack(sizes))
  local columns = image:grid_sample(core.stack(grid, -1)):to(x.dtype)
  columns = columns:reshape(batch, moved, channels // moved, window, -1)
  if mask then columns = columns * mask:reshape(batch, moved, 1, window, -1) end
  columns = columns:reshape(batch, groups, channels // groups * window, -1)
  local rows = weight:reshape(groups, weight.shape[1] // groups, -1)
  local y = rows:matmul(columns):reshape(batch, weight.shape[1], table.unpack(out))
  return bias and y + along_channels(bias, y:dim()) or y
end

return M
