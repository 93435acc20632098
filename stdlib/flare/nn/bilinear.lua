--- y[k] = a * W[k] * b^T + bias[k]: an affine map of each of two inputs.
local class = require "flare.class"
local core = require "flare.core"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Bilinear = class("Bilinear", Module)

--- nn.Bilinear(inputs1, inputs2, outputs, {bias = true})
function Bilinear:init(inputs1, inputs2, outputs, opts)
  local o = options.check("nn.Bilinear", opts, {bias = true})
  self.inputs1 = options.count("nn.Bilinear", "inputs1", inputs1)
  self.inputs2 = options.count("nn.Bilinear", "inputs2", inputs2)
  self.outputs = options.count("nn.Bilinear", "outputs", outputs)
  local bound = 1 / math.sqrt(inputs1)
  self.weight = self:param(init.uniform(outputs, inputs1, inputs2, {low = -bound, high = bound}))
  if o.bias then
    self.bias = self:param(init.uniform(outputs, {low = -bound, high = bound}))
  end
end

--- (..., inputs1), (..., inputs2) -> (..., outputs)
function Bilinear:forward(a, b)
  options.input(self, a)
  options.input(self, b)
  -- (..., outputs * inputs2): every W[k] applied to a, then the product with b summed
  local flat = self.weight:transpose(2, 3):reshape(self.outputs * self.inputs2, self.inputs1)
  local shape = a.shape
  shape[#shape] = self.outputs
  shape[#shape + 1] = self.inputs2
  local y = (core.linear(a, flat)):view(shape)
  y = (y * b:unsqueeze(-2)):sum(-1)
  if self.bias then y = y + self.bias end
  return y
end

function Bilinear:describe()
  return ("%d, %d -> %d"):format(self.inputs1, self.inputs2, self.outputs)
end

return Bilinear
