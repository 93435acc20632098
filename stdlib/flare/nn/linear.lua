--- Affine map, the fully connected layer: y = act(x * W^T + b).
local class = require "flare.class"
local core = require "flare.core"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Linear = class("Linear", Module)

--- nn.Linear(inputs, outputs, {bias = true, act = "none"})
-- `act`, an activation that the product's kernel applies: none, relu, gelu, gelu_tanh, silu, tanh,
-- sigmoid. weight is (outputs, inputs), bias (outputs); both are drawn uniformly from
-- -1/sqrt(inputs) to 1/sqrt(inputs).
function Linear:init(inputs, outputs, opts)
  local o = options.check("nn.Linear", opts, {bias = true, act = "none"})
  self.inputs = options.count("nn.Linear", "inputs", inputs)
  self.outputs = options.count("nn.Linear", "outputs", outputs)
  self.act = o.act
  local bound = 1 / math.sqrt(inputs)
  self.weight = self:param(init.uniform(outputs, inputs, {low = -bound, high = bound}))
  if o.bias then
    self.bias = self:param(init.uniform(outputs, {low = -bound, high = bound}))
  end
  -- raises for an unknown act here and not at the first forward
  if o.act ~= "none" then core.meta(core.linear, self.weight, self.weight, nil, o.act) end
end

--- (..., inputs) -> (..., outputs)
function Linear:forward(x)
  return (core.linear(x, self.weight, self.bias, self.act))
end

function Linear:describe()
  return ("%d -> %d%s%s"):format(self.inputs, self.outputs, self.bias and "" or ", bias=false",
                                 self.act ~= "none" and ", act=" .. self.act or "")
end

return Linear
