--- RMS normalization (arXiv:1910.07467): divides by the root mean square over the last dims.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local Module = require "flare.nn.module"

local RMSNorm = class("RMSNorm", Module)

--- nn.RMSNorm(shape, {affine = true, eps = 1e-5})
-- @param shape the sizes of the last dims: a number or a table
function RMSNorm:init(shape, opts)
  local o = options.check("nn.RMSNorm", opts, {affine = true, eps = 1e-5})
  if type(shape) ~= "table" then shape = {options.count("nn.RMSNorm", "shape", shape)} end
  self.shape, self.eps = shape, o.eps
  if o.affine then self.weight = self:param(core.ones(shape)) end
end

--- (..., shape) -> the same shape
function RMSNorm:forward(x)
  return (core.rms_norm(x, self.weight, #self.shape, self.eps))
end

function RMSNorm:describe()
  return table.concat(self.shape, ", ")
end

return RMSNorm
