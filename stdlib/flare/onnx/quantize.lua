--- Quantization. Sums of integers are computed in f64, in which they are exact.
local core = require "flare.core"
local conv = require "flare.onnx.conv"
local types = require "flare.onnx.types"
local windows = require "flare.onnx.windows"

local M = {}

local ranges = {u8 = {0, 255}, i8 = {-128, 127}, i16 = {-32768, 32767}}

-- NaN becomes the lowest value, as with the x86 instructions that other programs use.
local function saturate(n, x, dtype)
  local range = ranges[dtype]
  if not range then n:fail("numbers cannot be quantised to %s", dtype) end
  return x:fmax(range[1]):minimum(range[2]):to(dtype)
end

-- A scale or zero point shaped to meet x: one for all, for each position of an axis, or for
-- each block of them.
local function spread(n, v, x)
  if v:numel() == 1 and v:dim() < 2 then return v:reshape({}) end
  local dim = n:axis(n.attr.axis or 1, x:dim())
  local block = n.attr.block_size or 0
  if block > 0 then
    return v:repeat_interleave(block, dim):narrow(dim, 1, x.shape[dim])
  end
  if v:dim() ~= 1 then return v end
  local shape = windows.each({[dim] = v.shape[1]}, x:dim(), 1)
  return v:reshape(shape)
end

local function wide(x)
  return (x.dtype == "f32" or x.dtype == "f64") and x or x:to("f32")
end

function M.QuantizeLinear(n, x, scale, zero)
  local dtype = zero and zero.dtype
  if not dtype then
    local code = n.attr.output_dtype or 0
    dtype = code ~= 0 and types.dtype(code, "the result of QuantizeLinear") or "u8"
  end
  local y = (wide(x) / wide(spread(n, scale, x))):round()
  if zero then y = y + spread(n, zero, x):to(y.dtype) end
  return saturate(n, y, dtype)
end

function M.DequantizeLinear(n, x, scale, zero)
  local code = n.attr.output_dtype or 0
  local dtype = code ~= 0 and types.dtype(code, "the result of DequantizeLinear") or scale.dtype
  local v = x:to("i32")
  if zero then v = v - spread(n, zero, x):to("i32") end
  return (v:to("f32") * wide(spread(n, scale, x))):to(dtype)
end

function M.DynamicQuantizeLinear(n, x)
  local low, high = x:amin():minimum(0), x:amax():maximum(0)
  local scale = (high - low) / 255
  local safe = core.where(scale:eq(0), core.ones_like(scale), scale)
  local zero = (-low / safe):round():clamp(0, 255)
  return saturate(n, (x / safe):round() + zero, "u8"), scale, zero:to("u8")
end

-- x - zero in f64; the zeros of rows or columns stand along a dim of their own.
local function centred(x, zero, dim)
  x = x:to("f64")
  if not zero then return x end
  zero = zero:to("f64")
  if zero:numel() == 1 then return x - zero:reshape({}) end
  if zero:dim() > 1 then return x - zero end
  return x - zero:reshape(windows.each({[dim] = zero.shape[1]}, x:dim(), 1))
end

function M.MatMulInteger(_, a, b, a_zero, b_zero)
  local x, y = centred(a, a_zero, a:dim() - 1), centred(b, b_zero, b:dim())
  return x:matmul(y):to("i32")
end

function M.QLinearMatMul(n, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
  local function along(scale, dim)
    scale = scale:to("f64")
    if scale:numel() == 1 or scale:dim() > 1 then return scale end
    return dim == 1 and scale:unsqueeze(2) or scale
  end
  local y = centred(a, a_zero, a:dim() - 1):matmul(centred(b, b_zero, b:dim()))
  y = y * (along(a_scale, 1) * along(b_scale, 2)) / along(y_scale, 1)
  return saturate(n, y:round() + along(y_zero, 1), y_zero.dtype)
end

function M.ConvInteger(n, x, w, x_zero, w_zero)
  return conv.conv(n, centred(x, x_zero), centred(w, w_zero, 1)):to("i32")
end

function M.QLinearConv(n, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias)
  local y = conv.conv(n, centred(x, x_zero), centred(w, w_zero, 1), bias and bias:to("f64"))
  local scale = x_scale:to("f64"):reshape({}) * w_scale:to("f64") / y_scale:to("f64"):reshape({})
  if scale:numel() > 1 then
    scale = scale:reshape(windows.each({[2] = scale:numel()}, y:dim(), 1))
  end
  y = (y * scale:reshape(scale:numel() > 1 and n:shape(scale) or {})):round()
  return saturate(n, y + y_zero:to("f64"):reshape({}), y_zero.dtype)
end

return M
