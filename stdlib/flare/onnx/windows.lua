--- The geometry that convolutions and poolings share: padding, and windows as views.
local shape_ops = require "flare.onnx.shape"

local M = {}

local function each(list, count, default)
  local out = {}
  for k = 1, count do out[k] = list and list[k] or default end
  return out
end

--- The spatial sizes of a tensor: those after batch and channels.
function M.sizes(n, x)
  return table.move(n:shape(x), 3, x:dim(), 1, {})
end

--- Strides, dilations and elements of padding before and after each spatial dim.
-- @param sizes of the input's spatial dims
-- @param kernel sizes of the window
function M.geometry(n, sizes, kernel)
  local count = #sizes
  if #kernel ~= count then
    n:fail("a window of %d dims over %d spatial dims", #kernel, count)
  end
  local g = {kernel = kernel, count = count, before = {}, after = {}, reach = {}}
  g.stride = each(n.attr.strides, count, 1)
  g.dilation = each(n.attr.dilations, count, 1)
  local pads = each(n.attr.pads, 2 * count, 0)
  local way = n:choice("auto_pad", "NOTSET",
                       {NOTSET = true, VALID = true, SAME_UPPER = true, SAME_LOWER = true})
  g.way = way
  for k = 1, count do
    g.reach[k] = (kernel[k] - 1) * g.dilation[k] + 1
    g.before[k], g.after[k] = pads[k], pads[count + k]
    if way == "VALID" then
      g.before[k], g.after[k] = 0, 0
    elseif way ~= "NOTSET" then
      local out = (sizes[k] + g.stride[k] - 1) // g.stride[k]
      local total = math.max((out - 1) * g.stride[k] + g.reach[k] - sizes[k], 0)
      local small, large = total // 2, total - total // 2
      g.before[k] = way == "SAME_UPPER" and small or large
      g.after[k] = total - g.before[k]
    end
  end
  return g
end

--- Whether padding is the same at both ends of every dim.
function M.even(g)
  for k = 1, g.count do
    if g.before[k] ~= g.after[k] then return false end
  end
  return true
end

--- Pads the spatial dims of x; negative padding crops.
function M.pad(x, before, after, value)
  for k = 1, #before do
    x = shape_ops.pad_dim(x, k + 2, before[k], after[k], "constant", value)
  end
  return x
end

--- The number of windows in each dim.
-- @param up whether an incomplete last window counts, if it begins within the input (ceil mode)
function M.outputs(g, sizes, up)
  local out = {}
  for k = 1, g.count do
    local room, stride = sizes[k] + g.before[k] + g.after[k] - g.reach[k], g.stride[k]
    out[k] = (up and (room + stride - 1) // stride or room // stride) + 1
    if up and (out[k] - 1) * stride >= sizes[k] + g.before[k] then out[k] = out[k] - 1 end
  end
  return out
end

--- All windows of x as (batch, channels, outputs ..., window ...).
-- @param value the value of the padding
-- @param beyond the value outside of x and its padding
function M.unfold(x, g, out, value, beyond)
  x = M.pad(x, g.before, g.after, value)
  local none, more = each(nil, g.count, 0), {}
  for k = 1, g.count do
    more[k] = math.max((out[k] - 1) * g.stride[k] + g.reach[k] - x.shape[k + 2], 0)
  end
  x = M.pad(x, none, more, beyond)
  for k = 1, g.count do
    x = x:unfold(k + 2, g.reach[k], g.stride[k]):narrow(k + 2, 1, out[k])
    if g.dilation[k] > 1 then x = x:narrow(-1, 1, g.kernel[k], g.dilation[k]) end
  end
  return x
end

--- A tensor's dims numbered first to last.
function M.dims(first, last)
  local list = {}
  for d = first, last do list[#list + 1] = d end
  return list
end

M.each = each

return M
