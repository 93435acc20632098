--- Activations, softmax and log_softmax.
local core = require "flare.core"

local M = {}

for name, row in pairs {
  HardSwish = "hardswish", Mish = "mish", Relu = "relu", Sigmoid = "sigmoid",
  Softplus = "softplus", Softsign = "softsign", Tanh = "tanh",
} do
  M[name] = function(_, x) return x[row](x) end
end

function M.LeakyRelu(n, x) return x:leaky_relu(n.attr.alpha or 0.01) end
function M.Elu(n, x) return x:elu(n.attr.alpha or 1) end
function M.Celu(n, x) return x:celu(n.attr.alpha or 1) end

function M.Selu(n, x)
  local old = (n.version or 6) < 6
  local alpha = n.attr.alpha or (old and 1.6732 or 1.67326319217681884765625)
  return x:elu(alpha) * (n.attr.gamma or (old and 1.0507 or 1.05070102214813232421875))
end

function M.Gelu(n, x)
  local way = n:choice("approximate", "none", {none = true, tanh = true})
  return x:gelu(way == "tanh" and "tanh" or "erf")
end

function M.HardSigmoid(n, x)
  return (x * (n.attr.alpha or 0.2) + (n.attr.beta or 0.5)):clamp(0, 1)
end

function M.Swish(n, x) return x * (x * (n.attr.alpha or 1)):sigmoid() end

function M.SwiGLU(n, gate, x) return M.Swish(n, gate) * x end

function M.ThresholdedRelu(n, x)
  return core.where(x:gt(n.attr.alpha or 1), x, core.zeros_like(x))
end

function M.Shrink(n, x)
  local lambda, bias = n.attr.lambd or 0.5, n.attr.bias or 0
  local above, below = (x - bias):to(x.dtype), (x + bias):to(x.dtype)
  return core.where(x:gt(lambda), above, core.where(x:lt(-lambda), below, core.zeros_like(x)))
end

-- A slope for each channel was a plain list before version 7.
function M.PRelu(n, x, slope)
  if (n.version or 7) < 7 and slope:dim() == 1 and x:dim() > 1 then
    local shape = {slope.shape[1]}
    for d = 2, x:dim() - 1 do shape[d] = 1 end
    slope = slope:reshape(shape)
  end
  return core.where(x:lt(0), x * slope, x)
end

-- Before version 13 all dims from `axis` on were one.
local function along_axis(f)
  return function(n, x)
    if (n.version or 13) >= 13 then
      if x:dim() == 0 then return f(x:reshape(1), 1):reshape(n:shape(x)) end
      return f(x, n:axis(n.attr.axis or -1, x:dim()))
    end
    local axis, rows = n.attr.axis or 1, 1
    if axis < 0 then axis = axis + x:dim() end
    for d = 1, axis do rows = rows * x.shape[d] end
    local columns = rows > 0 and x:numel() // rows or 0
    return f(x:reshape(rows, columns), 2):reshape(n:shape(x))
  end
end

M.Softmax = along_axis(function(x, dim) return x:softmax(dim) end)
M.LogSoftmax = along_axis(function(x, dim) return x:log_softmax(dim) end)

M.Hardmax = along_axis(function(x, dim)
  if x:numel() == 0 then return x end
  local first = x:argmax(dim, {keepdim = true})
  return core.zeros_like(x):scatter(dim, first, core.ones_like(first):to(x.dtype))
end)

return M
