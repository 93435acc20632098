--- Arithmetic by element, sums along an axis.
local core = require "flare.core"
local types = require "flare.onnx.types"

local M = {}

for name, row in pairs {
  Abs = "abs", Acos = "acos", Acosh = "acosh", Asin = "asin", Asinh = "asinh", Atan = "atan",
  Atanh = "atanh", Ceil = "ceil", Cos = "cos", Cosh = "cosh",
  Erf = "erf", Exp = "exp", Floor = "floor", Log = "log", Neg = "neg",
  Reciprocal = "reciprocal", Round = "round", Sign = "sign", Sin = "sin", Sinh = "sinh",
  Sqrt = "sqrt", Tan = "tan",
} do
  M[name] = function(_, x) return x[row](x) end
end

-- Before version 7 the second input was broadcast only if asked for, its dims put from `axis`.
local function aligned(n, a, b)
  local axis = n.attr.axis
  if (n.version or 7) >= 7 or n.attr.broadcast ~= 1 or not axis then return b end
  local shape = n:shape(b)
  for _ = n:axis(axis, a:dim()) + #shape, a:dim() do shape[#shape + 1] = 1 end
  return b:reshape(shape)
end

--- Two inputs given to f, as each version of ONNX broadcasts them.
function M.binary(f)
  return function(n, a, b) return f(a, aligned(n, a, b), n.attr) end
end

M.Add = M.binary(function(a, b) return a + b end)
M.Sub = M.binary(function(a, b) return a - b end)
M.Mul = M.binary(function(a, b) return a * b end)

-- Integer quotients are rounded towards zero.
M.Div = M.binary(function(a, b)
  if types.is_float(a.dtype) then return a / b end
  return (a - a:fmod(b)):floor_div(b)
end)

M.Mod = M.binary(function(a, b, attr)
  if attr.fmod == 1 then return a:fmod(b) end
  return a:remainder(b)
end)

M.Pow = M.binary(function(a, b)
  local dtype = a.dtype
  if types.is_float(b.dtype) and not types.is_float(dtype) then a = a:to("f64") end
  return a:pow(b):to(dtype)
end)

local function fold(f)
  return function(_, x, ...)
    for _, y in ipairs {...} do x = f(x, y) end
    return x
  end
end

M.Sum = fold(core.add)
M.Max = fold(core.maximum)
M.Min = fold(core.minimum)

function M.Mean(n, ...)
  return M.Sum(n, ...) / select("#", ...)
end

function M.Clip(n, x, low, high)
  low, high = low or n.attr.min, high or n.attr.max
  if low then x = x:maximum(low) end
  if high then x = x:minimum(high) end
  return x
end

-- Sums or products along an axis; exclusive ones begin with that of nothing.
local function cumulative(f, nothing)
  return function(n, x, axis)
    if x:dim() == 0 then return x end
    local dim = n:axis(n:number(axis), x:dim())
    local size, dtype = x.shape[dim], x.dtype
    local reverse = n.attr.reverse == 1
    if reverse then x = x:flip(dim) end
    if n.attr.exclusive == 1 and size > 0 then
      local first = core.full_like(x:narrow(dim, 1, 1), nothing)
      x = core.cat({first, x:narrow(dim, 1, size - 1)}, dim)
    end
    local y = f(x, dim):to(dtype)
    return reverse and y:flip(dim) or y
  end
end

M.CumSum = cumulative(function(x, dim) return x:cumsum(dim) end, 0)

M.CumProd = cumulative(function(x, dim) return x:cumprod(dim) end, 1)

return M
