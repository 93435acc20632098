--- Resizing, one axis at a time, by selecting positions or by a product with a matrix of weights.
local core = require "flare.core"
local types = require "flare.onnx.types"

local M = {}

local transformations = {
  half_pixel = function(a) return (a.x + 0.5) / a.scale - 0.5 end,
  asymmetric = function(a) return a.x / a.scale end,
  pytorch_half_pixel = function(a)
    return a.length == 1 and -0.5 or (a.x + 0.5) / a.scale - 0.5
  end,
  align_corners = function(a)
    return a.length == 1 and 0 or a.x * (a.size - 1) / (a.length - 1)
  end,
  half_pixel_symmetric = function(a)
    local offset = a.size / 2 * (1 - a.out / a.length)
    return offset + (a.x + 0.5) / a.scale - 0.5
  end,
  tf_half_pixel_for_nn = function(a) return (a.x + 0.5) / a.scale end,
  tf_crop_and_resize = function(a)
    local first, last, reach = a.roi[1], a.roi[2], a.size - 1
    if a.length == 1 then return (first + last) * reach / 2 end
    return first * reach + a.x * (last - first) * reach / (a.length - 1)
  end,
}

local nearest = {
  round_prefer_floor = function(x) return math.ceil(x - 0.5) end,
  round_prefer_ceil = function(x) return math.floor(x + 0.5) end,
  floor = math.floor, ceil = math.ceil,
}

local function linear(t) return math.max(1 - math.abs(t), 0) end

local function cubic(a)
  return function(t)
    t = math.abs(t)
    if t <= 1 then return ((a + 2) * t - (a + 3)) * t * t + 1 end
    if t < 2 then return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a end
    return 0
  end
end

-- Weights of the input's elements for the output at coordinate x, added to a row of them.
local function weigh(row, x, size, axis)
  local squeeze = axis.antialias and math.min(axis.scale, 1) or 1
  local base = math.ceil(x) - 1
  local first = math.floor(-axis.reach / squeeze) + 1
  local taps, sum = {}, 0
  for k = first, 1 - first do
    local w = axis.kernel((k - (x - base)) * squeeze)
    local at = base + k
    if axis.exclude and (at < 0 or at >= size) then w = 0 end
    taps[k], sum = w, sum + w
  end
  local whole = (axis.exclude or axis.antialias) and sum ~= 0 and sum or 1
  for k = first, 1 - first do
    local at = math.min(math.max(base + k, 0), size - 1) + 1
    row[at] = row[at] + taps[k] / whole
  end
end

local function resize_axis(n, x, dim, axis)
  local size, coordinates, outside = x.shape[dim], {}, {}
  if axis.out == 0 then return x:narrow(dim, 1, 0) end
  axis.size, axis.length = size, axis.scale * size
  for k = 1, axis.out do
    axis.x = k - 1
    coordinates[k] = axis.transform(axis)
    outside[k] = axis.roi ~= nil and (coordinates[k] < 0 or coordinates[k] > size - 1)
  end
  local shape = {}
  for d = 1, x:dim() do shape[d] = d == dim and axis.out or 1 end
  local mask = axis.roi and core.tensor(outside, {dtype = "bool"}):to(x.device):reshape(shape)
  if axis.nearest then
    for k, at in ipairs(coordinates) do
      coordinates[k] = math.min(math.max(axis.nearest(at, axis.scale), 0), size - 1)
    end
    return x:index_select(dim, n:ints(coordinates), {base = 0}), mask
  end
  local rows = {}
  for k, at in ipairs(coordinates) do
    local row = {}
    for j = 1, size do row[j] = 0 end
    weigh(row, at, size, axis)
    rows[k] = row
  end
  local matrix = core.tensor(rows, {dtype = x.dtype}):to(x.device)
  return x:transpose(dim, -1):matmul(matrix:transpose(1, 2)):transpose(dim, -1), mask
end

-- The size and the scale of each axis, from the inputs.
local function targets(n, x, dims, scales, sizes)
  local list = {}
  if not sizes then
    for k, dim in ipairs(dims) do
      list[k] = {scale = scales[k], out = math.floor(scales[k] * x.shape[dim])}
    end
    return list
  end
  local policy = n:choice("keep_aspect_ratio_policy", "stretch",
                          {stretch = true, not_larger = true, not_smaller = true})
  local common
  for k, dim in ipairs(dims) do
    local scale = sizes[k] / x.shape[dim]
    list[k] = {scale = scale, out = sizes[k]}
    local pick = policy == "not_larger" and math.min or math.max
    common = common and pick(common, scale) or scale
  end
  if policy ~= "stretch" then
    for k, dim in ipairs(dims) do
      list[k] = {scale = common, out = math.floor(common * x.shape[dim] + 0.5)}
    end
  end
  return list
end

local function numbers(n, x)
  local list = n:list(x)
  return list and #list > 0 and list or nil
end

local highest = {u8 = {0, 255}, i8 = {-128, 127}, i32 = {-(1 << 31), (1 << 31) - 1}}

local function back(y, dtype)
  local range = highest[dtype]
  if types.is_float(dtype) or not types.is_float(y.dtype) then return y:to(dtype) end
  return (range and y:clamp(range[1], range[2]) or y):to(dtype)
end

local function resize(n, x, o)
  local dtype, dims = x.dtype, n:axes(n.attr.axes, x:dim())
  if not dims then
    dims = {}
    for d = 1, x:dim() do dims[d] = d end
  end
  local mode, y, mask = o.mode, x, nil
  if mode ~= "nearest" and dtype ~= "f32" and dtype ~= "f64" then
    y = x:to(types.is_float(dtype) and "f32" or "f64")
  end
  local crop = o.transform == transformations.tf_crop_and_resize
  for k, axis in ipairs(targets(n, x, dims, o.scales, o.sizes)) do
    local roi = crop and o.roi and {o.roi[k], o.roi[k + #dims]}
    local whole = not roi or (roi[1] == 0 and roi[2] == 1)
    if not (axis.scale == 1 and axis.out == x.shape[dims[k]] and whole) then
      axis.roi, axis.transform = roi, o.transform
      axis.nearest = mode == "nearest" and o.nearest or nil
      axis.kernel, axis.reach = o.kernel, mode == "cubic" and 2 or 1
      axis.antialias, axis.exclude = n.attr.antialias == 1, n.attr.exclude_outside == 1
      local out
      y, out = resize_axis(n, y, dims[k], axis)
      mask = mask and out and mask:logical_or(out) or mask or out
    end
  end
  if mask then
    y = core.where(mask, core.full_like(y, n.attr.extrapolation_value or 0), y)
  end
  return back(y, dtype)
end

function M.Resize(n, x, roi, scales, sizes)
  local version = n.version or 11
  if version < 11 then
    return M.Upsample(n, x, roi)
  end
  local mode = n:choice("mode", "nearest", {nearest = true, linear = true, cubic = true})
  return resize(n, x, {
    mode = mode, roi = numbers(n, roi), scales = numbers(n, scales), sizes = numbers(n, sizes),
    transform = transformations[n:choice("coordinate_transformation_mode", "half_pixel",
                                         transformations)],
    nearest = nearest[n:choice("nearest_mode", "round_prefer_floor", nearest)],
    kernel = mode == "cubic" and cubic(n.attr.cubic_coeff_a or -0.75) or linear,
  })
end

-- Version 10, which has no coordinate modes: nearest takes the next element where it shrinks.
local function at_hand(x, scale) return scale < 1 and math.ceil(x) or math.floor(x) end

function M.Upsample(n, x, scales)
  local list = numbers(n, scales) or n.attr.scales
    or {1, 1, n.attr.height_scale, n.attr.width_scale}
  local mode = n:choice("mode", "nearest", {nearest = true, linear = true, bilinear = true})
  return resize(n, x, {
    mode = mode == "bilinear" and "linear" or mode, scales = list,
    transform = transformations.asymmetric, nearest = at_hand, kernel = linear,
  })
end

return M
