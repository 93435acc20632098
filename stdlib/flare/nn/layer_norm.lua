--- Layer normalization (arXiv:1607.06450): subtracts the mean over the last dims and divides by
-- their standard deviation.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local Module = require "flare.nn.module"

local LayerNorm = class("LayerNorm", Module)

--- nn.LayerNorm(shape, {bias = true, affine = true, eps = 1e-5})
-- @param shape the sizes of the last dims: a number or a table
function LayerNorm:init(shape, opts)
  local o = options.check("nn.LayerNorm", opts, {bias = true, affine = true, eps = 1e-5})
  if type(shape) ~= "table" then shape = {options.count("nn.LayerNorm", "shape", shape)} end
  self.shape, self.eps = shape, o.eps
  if o.affine then
    self.weight = self:param(core.ones(shape))
    if o.bias then self.bias = self:param(core.zeros(shape)) end
  end
end

--- (..., shape) -> the same shape
function LayerNorm:forward(x)
  return (core.layer_norm(x, self.weight, self.bias, #self.shape, self.eps))
end

function LayerNorm:describe()
  return table.concat(self.shape, ", ") .. (self.bias and "" or ", bias=false")
end

return LayerNorm
