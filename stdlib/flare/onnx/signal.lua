--- Fourier transforms, windows and mel weights. Complex numbers are a last dim of size 2.
local core = require "flare.core"
local shape_ops = require "flare.onnx.shape"
local types = require "flare.onnx.types"

local M = {}

-- x cut along a dim, or filled with zeros, to a length.
local function fit(x, dim, length)
  local size = x.shape[dim]
  if size > length then return x:narrow(dim, 1, length) end
  return size < length and shape_ops.pad_dim(x, dim, 0, length - size, "constant", 0) or x
end

-- The transform of x, whose last dim is 1 (real) or 2 (complex), as complex pairs; one-sided, only
-- the first `length // 2 + 1`. Real signals are converted to f64, as in NumPy, which ONNX's
-- definition uses, so that results that are 0 in the standard's test cases are 0 here.
local function forward(x, dim, half)
  local length, dtype = x.shape[dim], x.dtype
  if x.shape[x:dim()] == 1 then
    x = x:to("f64")
    if half then return x:squeeze(-1):rdft{dim = dim}:to(dtype) end
    x = core.cat({x, core.zeros_like(x)}, -1)
  end
  local y = x:dft{dim = dim}:to(dtype)
  return half and y:narrow(dim, 1, length // 2 + 1) or y
end

function M.DFT(n, x, length, axis)
  local rank = x:dim()
  local old = (n.version or 20) < 20
  local dim = n:axis(old and (n.attr.axis or 1) or n:number(axis, -2), rank)
  local size, half, inverse = x.shape[dim], n.attr.onesided == 1, n.attr.inverse == 1
  local count = n:number(length, inverse and half and 2 * (size - 1) or size)
  if not inverse then return forward(fit(x, dim, count), dim, half) end
  if x.shape[rank] == 1 then x = core.cat({x, core.zeros_like(x)}, -1) end
  if half then
    local y = fit(x, dim, count // 2 + 1):irdft{n = count, dim = dim, scale = 1 / count}
    return y:unsqueeze(-1)
  end
  return fit(x, dim, count):dft{dim = dim, inverse = true, scale = 1 / count}
end

-- Exporters write real signals without the last dim, too.
function M.STFT(n, x, step, window, frame_length)
  if x:dim() == 2 then x = x:unsqueeze(3) end
  local length = frame_length and n:number(frame_length) or window and window.shape[1]
    or x.shape[2]
  local frames = x:unfold(2, length, n:number(step)):transpose(3, 4)
  if window then frames = frames * window:reshape(1, 1, length, 1) end
  return forward(frames, 3, n.attr.onesided ~= 0)
end

local function window(row, o)
  return function(n, size)
    local given = {periodic = n.attr.periodic ~= 0, device = n.device}
    for key, value in pairs(o or {}) do given[key] = value end
    local dtype = types.dtype(n.attr.output_datatype or 1, "the result of " .. n.name)
    return core[row](n:number(size), given):to(dtype)
  end
end

M.HannWindow = window "hann_window"
M.HammingWindow = window("hamming_window", {alpha = 25 / 46, beta = 21 / 46})
M.BlackmanWindow = window "blackman_window"

function M.MelWeightMatrix(n, bins, length, rate, low, high)
  local count, size, per_second = n:number(bins), n:number(length), n:number(rate)
  local function mel(f) return 2595 * math.log(1 + f / 700, 10) end
  local first = mel(n:number(low))
  local step = (mel(n:number(high)) - first) / (count + 2)
  local at = {}
  for k = 0, count + 1 do
    local hertz = 700 * (10 ^ ((first + k * step) / 2595) - 1)
    at[k] = math.floor((size + 1) * hertz / per_second)
  end
  local rows = {}
  for j = 1, size // 2 + 1 do
    rows[j] = {}
    for k = 1, count do rows[j][k] = 0 end
  end
  local function put(j, k, value)
    if rows[j + 1] then rows[j + 1][k] = value end
  end
  for k = 1, count do
    local left, centre, right = at[k - 1], at[k], at[k + 1]
    if left == centre then put(centre, k, 1) end
    for j = left, left < centre and centre or left - 1 do
      put(j, k, (j - left) / (centre - left))
    end
    for j = centre, right - 1 do put(j, k, (right - j) / (right - centre)) end
  end
  local dtype = types.dtype(n.attr.output_datatype or 1, "the result of MelWeightMatrix")
  return core.tensor(rows, {dtype = dtype}):to(n.device)
end

return M
