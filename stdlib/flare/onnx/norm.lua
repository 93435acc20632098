--- Normalization. Statistics of f16 and bf16 are computed in f32, as flare's operators do.
local core = require "flare.core"
local windows = require "flare.onnx.windows"

local M = {}

local function wide(x)
  return (x.dtype == "f16" or x.dtype == "bf16") and x:to("f32") or x
end

-- A list of one number for each channel, shaped to meet (batch, channels, ...).
local function channels(v, rank)
  return v:reshape(windows.each({[2] = v.shape[1]}, math.max(rank, 2), 1))
end

-- (x - mean) / sqrt(var + eps) along dims, and both statistics.
local function standard(x, dims, eps)
  local mean = x:mean{dims = dims, keepdim = true}
  local d = x - mean
  local rstd = (d:square():mean{dims = dims, keepdim = true} + eps):rsqrt()
  return d * rstd, mean, rstd
end

-- Whether flare's operator accepts all of these tensors.
local function alike(x, scale, bias)
  return scale.dtype == x.dtype and (not bias or bias.dtype == x.dtype)
end

local function groups_of(n, x, scale, bias, groups)
  return (x:group_norm{weight = scale, bias = bias, groups = groups, eps = n.attr.epsilon or 1e-5})
end

-- The number of dims from `first` on, if scale and bias have all of them and only y is wanted: so
-- much a row normalises in one pass.
local function last_dims(n, x, first, scale, bias)
  if n:wants(2) or n:wants(3) or not alike(x, scale, bias) then return nil end
  for _, v in ipairs{scale, bias} do
    if v:dim() ~= x:dim() - first + 1 then return nil end
    for d = 1, v:dim() do
      if v.shape[d] ~= x.shape[first + d - 1] then return nil end
    end
  end
  return scale:dim()
end

-- Whether the statistics are those of x (training): versions before 14 indicate it by further
-- outputs, those before 7 by an attribute as well.
local function trains(n)
  local version = n.version or 14
  if version >= 14 then return n.attr.training_mode == 1 end
  return n:wants(2) and (version >= 7 or n.attr.is_test ~= 1)
end

function M.BatchNormalization(n, x, scale, bias, mean, var)
  local eps, rank = n.attr.epsilon or 1e-5, x:dim()
  local v, dtype = wide(x), x.dtype
  local training, each = trains(n), n.attr.spatial == 0 -- each: not channels, but all elements
  local s, b, m, r = wide(scale), wide(bias), wide(mean), wide(var)
  local function meet(t) return each and t or channels(t, rank) end
  if not training and not each and mean.dtype == dtype and scale.dtype == dtype then
    return x:batch_norm{weight = scale, bias = bias, running_mean = mean, running_var = var,
                        training = false, eps = eps}
  elseif not training then
    return ((v - meet(m)) * meet((r + eps):rsqrt() * s) + meet(b)):to(dtype)
  end
  local dims = each and {1} or windows.dims(1, rank)
  if not each then table.remove(dims, 2) end
  local y, now = standard(v, dims, eps)
  local var_now = (v - now):square():mean{dims = dims}
  local keep, mean_now = n.attr.momentum or 0.9, now:reshape(n:shape(mean))
  return (y * meet(s) + meet(b)):to(dtype),
         (m * keep + mean_now * (1 - keep)):to(mean.dtype),
         (r * keep + var_now * (1 - keep)):to(var.dtype),
         mean_now:to(mean.dtype), var_now:to(var.dtype)
end

function M.InstanceNormalization(n, x, scale, bias)
  local rank = x:dim()
  if rank > 2 and alike(x, scale, bias) then return groups_of(n, x, scale, bias, x.shape[2]) end
  local y = standard(wide(x), windows.dims(3, rank), n.attr.epsilon or 1e-5)
  return (y * channels(wide(scale), rank) + channels(wide(bias), rank)):to(x.dtype)
end

-- Since version 21 there is a scale for each channel; before, one for each group.
function M.GroupNormalization(n, x, scale, bias)
  local groups, shape = n.attr.num_groups, n:shape(x)
  if (n.version or 21) >= 21 and #shape > 2 and alike(x, scale, bias) then
    return groups_of(n, x, scale, bias, groups)
  end
  local v = wide(x):reshape(shape[1], groups, -1)
  local y = standard(v, {3}, n.attr.epsilon or 1e-5)
  local s, b = wide(scale), wide(bias)
  if (n.version or 21) < 21 then
    s, b = s:repeat_interleave(shape[2] // groups, 1), b:repeat_interleave(shape[2] // groups, 1)
  end
  return (y:reshape(shape) * channels(s, #shape) + channels(b, #shape)):to(x.dtype)
end

function M.LayerNormalization(n, x, scale, bias)
  local first, eps = n:axis(n.attr.axis or -1, x:dim()), n.attr.epsilon or 1e-5
  local dims = last_dims(n, x, first, scale, bias)
  if dims then return (x:layer_norm{weight = scale, bias = bias, dims = dims, eps = eps}) end
  local y, mean, rstd = standard(wide(x), windows.dims(first, x:dim()), eps)
  y = y:to(x.dtype) * scale
  local stash = n.attr.stash_type == 16 and "bf16" or "f32"
  return bias and y + bias or y, mean:to(stash), rstd:to(stash)
end

function M.RMSNormalization(n, x, scale)
  local first, eps = n:axis(n.attr.axis or -1, x:dim()), n.attr.epsilon or 1e-5
  local last = last_dims(n, x, first, scale)
  if last then return (x:rms_norm{weight = scale, dims = last, eps = eps}) end
  local v = wide(x)
  local dims = windows.dims(first, x:dim())
  local rstd = (v:square():mean{dims = dims, keepdim = true} + eps):rsqrt()
  return (v * rstd):to(x.dtype) * scale
end

function M.MeanVarianceNormalization(n, x)
  local dims = n:axes(n.attr.axes or {0, 2, 3}, x:dim())
  local v = wide(x)
  local d = v - v:mean{dims = dims, keepdim = true}
  local std = d:square():mean{dims = dims, keepdim = true}:sqrt()
  return (d / (std + 1e-9)):to(x.dtype)
end

function M.LpNormalization(n, x)
  local dim = n:axis(n.attr.axis or -1, x:dim())
  local length = wide(x):norm{p = n.attr.p or 2, dims = {dim}, keepdim = true}
  local y = wide(x) / length
  return core.where(length:eq(0), core.zeros_like(y), y):to(x.dtype)
end

function M.LRN(n, x)
  local size, channels_in = n.attr.size, x.shape[2]
  local before = (size - 1) // 2
  local squares = wide(x):square()
  local pads = windows.each(nil, 2 * (x:dim() - 2), 0)
  pads[#pads + 1], pads[#pads + 2] = before, size - 1 - before
  local sums = squares:pad(pads):unfold(2, size, 1):narrow(2, 1, channels_in):sum(-1)
  local base = sums * ((n.attr.alpha or 1e-4) / size) + (n.attr.bias or 1)
  return (wide(x) / base:pow(n.attr.beta or 0.75)):to(x.dtype)
end

return M
