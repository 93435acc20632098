--- Quantized operators of the domain com.microsoft, which onnxruntime's tools write. Operators
-- without an integer form in ONNX are computed in f32, between DequantizeLinear and QuantizeLinear.
local core = require "flare.core"
local activation = require "flare.onnx.activation"
local pool = require "flare.onnx.pool"
local quantize = require "flare.onnx.quantize"

local M = {}

local real, whole = quantize.DequantizeLinear, quantize.QuantizeLinear

-- A copy of the node with the version of the corresponding ONNX operator.
local function as(n, version) return setmetatable({version = version}, {__index = n}) end

local function one(f)
  return function(n, x, x_scale, x_zero, y_scale, y_zero)
    if n.attr.channels_last == 1 then n:fail "channels_last is not supported" end
    return whole(n, f(n, real(n, x, x_scale, x_zero)), y_scale, y_zero)
  end
end

M.QLinearSigmoid = one(activation.Sigmoid)
M.QLinearLeakyRelu = one(activation.LeakyRelu)
M.QLinearGlobalAveragePool = one(pool.GlobalAveragePool)
M.QLinearAveragePool = one(pool.AveragePool)
M.QLinearSoftmax = one(function(n, x) return activation.Softmax(as(n, n.attr.opset or 13), x) end)

local function two(f)
  return function(n, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    return whole(n, f(real(n, a, a_scale, a_zero), real(n, b, b_scale, b_zero)), y_scale, y_zero)
  end
end

M.QLinearAdd = two(function(a, b) return a + b end)
M.QLinearMul = two(function(a, b) return a * b end)

function M.QLinearWhere(n, condition, ...)
  return two(function(a, b) return core.where(condition, a, b) end)(n, ...)
end

function M.QLinearConcat(n, y_scale, y_zero, ...)
  local parts, given = {}, {...}
  for k = 1, select("#", ...), 3 do
    parts[#parts + 1] = real(n, given[k], given[k + 1], given[k + 2])
  end
  return whole(n, core.cat(parts, n:axis(n.attr.axis, parts[1]:dim())), y_scale, y_zero)
end

-- a times b, whose scale may be one for each column; a bias, if there is one, comes in `add`.
local function product(n, a, b, a_scale, b_scale, a_zero, b_zero, add)
  local y = quantize.MatMulInteger(n, a, b, a_zero, b_zero)
  if add then y = y + add end
  return y:to("f32") * (a_scale * b_scale)
end

local function plus(y, bias) return bias and y + bias or y end

function M.MatMulIntegerToFloat(n, a, b, a_scale, b_scale, a_zero, b_zero, bias)
  return plus(product(n, a, b, a_scale, b_scale, a_zero, b_zero), bias)
end

function M.DynamicQuantizeMatMul(n, x, b, b_scale, b_zero, bias)
  local a, a_scale, a_zero = quantize.DynamicQuantizeLinear(n, x)
  return plus(product(n, a, b, a_scale, b_scale, a_zero, b_zero), bias)
end

-- The bias is of integers, in the scale of the product; without y_scale the result is real.
function M.QGemm(n, a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero)
  if n.attr.transA == 1 then a = a:transpose(1, 2) end
  if n.attr.transB == 1 then b = b:transpose(1, 2) end
  local y = product(n, a, b, a_scale, b_scale, a_zero, b_zero, bias) * (n.attr.alpha or 1)
  return y_scale and whole(n, y, y_scale, y_zero) or y
end

-- Numbers of 4 bits, the lower half of a byte first, along the last dim; bytes as they are.
local function unpacked(n, x, bits)
  if bits == 8 then return x end
  if bits ~= 4 then n:fail("weights of %d bits are not supported", bits) end
  return core.stack({x & 15, x >> 4}, x:dim() + 1):flatten(x:dim())
end

-- Weights in blocks along each row, with a scale and a zero for each block.
function M.MatMulNBits(n, x, packed, scales, zeros, order, bias)
  if order then n:fail "an order of columns (g_idx) is not supported" end
  local rows, columns, bits = n.attr.N, n.attr.K, n.attr.bits or 4
  local blocks = packed.shape[2]
  scales = scales:reshape(rows, blocks, 1)
  local zero = 1 << (bits - 1)
  if zeros and zeros.dtype == "u8" then
    zero = unpacked(n, zeros:reshape(rows, -1), bits):narrow(2, 1, blocks):unsqueeze(3)
      :to(scales.dtype)
  elseif zeros then
    zero = zeros:reshape(rows, blocks, 1)
  end
  local weight = (unpacked(n, packed, bits):to(scales.dtype) - zero) * scales
  weight = weight:reshape(rows, -1):narrow(2, 1, columns):to(x.dtype)
  return plus(x:matmul(weight:t()), bias)
end

return M
