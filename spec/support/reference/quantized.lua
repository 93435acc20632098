--- References of the rows of quantised weights: numbers one by one.
local A = require "spec.support.array"
local linear = require("spec.support.reference.reduce").linear

local R = {}

function R.dequantize(a)
  local w, rows, groups = a.weight, a.weight.shape[1], a.scales.shape[2]
  local four = w.dtype == "u8"
  local columns = w.shape[2] * (four and 2 or 1)
  local out = {shape = {rows, columns}}
  for r = 0, rows - 1 do
    for c = 0, columns - 1 do
      local zero, q = four and 8 or 0, w[r * w.shape[2] + (four and c // 2 or c) + 1]
      if four then q = c % 2 == 0 and q % 16 or q // 16 end
      local at = r * groups + c // (columns // groups) + 1
      if a.zeros then zero = a.zeros[at] end
      out[r * columns + c + 1] = (q - zero) * a.scales[at]
    end
  end
  return out
end

function R.quantized_linear(a)
  local w = R.dequantize(a)
  return linear{x = a.x, weight = A.new(w.shape, w), bias = a.bias}[1]
end

return R
