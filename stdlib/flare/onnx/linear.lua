--- Matrix products.
local core = require "flare.core"
local einsum = require "flare.einsum"
local refuse = require "flare.onnx.refuse"

local M = {}

function M.MatMul(_, a, b) return a:matmul(b) end

function M.Gemm(n, a, b, c)
  if n.attr.transA == 1 then a = a:transpose(1, 2) end
  if n.attr.transB == 1 then b = b:transpose(1, 2) end
  local alpha, beta = n.attr.alpha or 1, n.attr.beta or 1
  local dtype = a.dtype
  local y = a:matmul(b)
  if alpha ~= 1 then y = (y * alpha):to(dtype) end
  if c and beta ~= 0 then y = y + (beta ~= 1 and (c * beta):to(dtype) or c) end
  return y
end

function M.Einsum(n, ...)
  return einsum.einsum(n.attr.equation, ...):to((...).dtype)
end

-- Refused when a model is loaded, where there is no LAPACK.
M.Det = {load = function()
  local ok, why = pcall(core.det, core.eye(2))
  if not ok then refuse.raise("libraries: %s", tostring(why):gsub("^.-: ", "", 1)) end
  return function(_, x) return x:det() end
end}

return M
