--- Comparisons, logic, bits.
local core = require "flare.core"
local math_ops = require "flare.onnx.math"
local types = require "flare.onnx.types"

local M = {}

for name, row in pairs {
  And = "logical_and", Or = "logical_or", Xor = "logical_xor", Equal = "eq", Greater = "gt",
  GreaterOrEqual = "ge", Less = "lt", LessOrEqual = "le", BitwiseAnd = "bitwise_and",
  BitwiseOr = "bitwise_or", BitwiseXor = "bitwise_xor",
} do
  M[name] = math_ops.binary(function(a, b) return a[row](a, b) end)
end

function M.Not(_, x) return x:logical_not() end
function M.BitwiseNot(_, x) return x:bitwise_not() end
function M.Where(_, condition, a, b) return core.where(condition, a, b) end

function M.BitShift(n, a, b)
  local way = n:choice("direction", nil, {LEFT = true, RIGHT = true})
  return way == "LEFT" and a:shift_left(b) or a:shift_right(b)
end

function M.IsNaN(_, x) return x:isnan() end

function M.IsInf(n, x)
  if not types.is_float(x.dtype) then return core.zeros_like(x, {dtype = "bool"}) end
  local y = x:isinf()
  if n.attr.detect_positive == 0 then y = y:logical_and(x:lt(0)) end
  if n.attr.detect_negative == 0 then y = y:logical_and(x:gt(0)) end
  return y
end

return M
