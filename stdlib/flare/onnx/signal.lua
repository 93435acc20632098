--- Fourier transforms and what goes with them. Complex numbers are a last dim of two.
local core = require "flare.core"
local types = require "flare.onnx.types"

local M = {}

-- Cosines and sines of 2 pi j k / n, as (j, k); the products are reduced as integers.
local function turns(n, rows, columns, device)
  local j = core.arange(0, rows, {device = device}):unsqueeze(2)
  local k = core.arange(0, columns, {device = device})
  local angle = (j * k):remainder(n):to("f64") * (2 * math.pi / n)
  return angle:cos(), angle:sin()
end

-- x's last dim cut, or filled with zeros, to a length.
local function fit(x, length)
  local size = x.shape[x:dim()]
  if size > length then return x:narrow(-1, 1, length) end
  return size < length and x:pad({0, length - size}) or x
end

--- The transform of real and imaginary parts (the latter may be nil) along the last dim.
local function forward(re, im, length, bins)
  re, im = fit(re, length), im and fit(im, length)
  local c, s = turns(length, length, bins, re.device)
  local a, b = re:matmul(c), -re:matmul(s)
  if im then a, b = a + im:matmul(s), b + im:matmul(c) end
  return a, b
end

-- The real signal of a spectrum of which the second half is left out.
local function real_inverse(re, im, length)
  local bins = length // 2 + 1
  re, im = fit(re, bins), fit(im, bins)
  local c, s = turns(length, bins, length, re.device)
  local weight = {}
  for k = 0, bins - 1 do weight[k + 1] = (k == 0 or 2 * k == length) and {1} or {2} end
  weight = core.tensor(weight, {dtype = "f64"}):to(re.device) / length
  return re:matmul(c * weight) - im:matmul(s * weight)
end

local function parts(x)
  local wide = x:to("f64")
  local two = x.shape[x:dim()] == 2
  return wide:select(-1, 1), two and wide:select(-1, 2) or nil
end

function M.DFT(n, x, length, axis)
  local rank = x:dim()
  local dim
  if (n.version or 20) < 20 then
    dim = n:axis(n.attr.axis or 1, rank)
  else
    dim = n:axis(n:number(axis, -2), rank)
  end
  local re, im = parts(x)
  re, im = re:transpose(dim, -1), im and im:transpose(dim, -1)
  local size, half, inverse = x.shape[dim], n.attr.onesided == 1, n.attr.inverse == 1
  local count = n:number(length, inverse and half and 2 * (size - 1) or size)
  local a, b
  if inverse and half then
    a = real_inverse(re, im or core.zeros_like(re), count):transpose(dim, -1)
    return a:unsqueeze(-1):to(x.dtype)
  elseif inverse then -- conjugated, transformed, conjugated
    a, b = forward(re, im and -im, count, count)
    a, b = a / count, -b / count
  else
    a, b = forward(re, im, count, half and count // 2 + 1 or count)
  end
  return core.stack({a:transpose(dim, -1), b:transpose(dim, -1)}, rank):to(x.dtype)
end

function M.STFT(n, x, step, window, frame_length)
  local length = frame_length and n:number(frame_length) or window and window.shape[1]
    or x.shape[2]
  local re, im = parts(x)
  local function frames(v)
    v = v:unfold(2, length, n:number(step))
    return window and v * window:to("f64") or v
  end
  local bins = n.attr.onesided == 0 and length or length // 2 + 1
  local a, b = forward(frames(re), im and frames(im), length, bins)
  return core.stack({a, b}, 4):to(x.dtype)
end

-- Windows as sums of cosines; a periodic one is longer by one element, which is left out.
local function window(...)
  local weights = {...}
  return function(n, size)
    local count = n:number(size)
    local period = n.attr.periodic == 0 and count - 1 or count
    local dtype = types.dtype(n.attr.output_datatype or 1, "the result of " .. n.name)
    local at = core.arange(0, count, {device = n.device}):to("f64") * (2 * math.pi
                                                                       / math.max(period, 1))
    local y = at * 0
    for k, weight in ipairs(weights) do y = y + (at * (k - 1)):cos() * weight end
    return y:to(dtype)
  end
end

M.HannWindow = window(0.5, -0.5)
M.HammingWindow = window(25 / 46, -21 / 46)
M.BlackmanWindow = window(0.42, -0.5, 0.08)

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
