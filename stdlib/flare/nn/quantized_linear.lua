--- A fully connected layer whose weight has 4 or 8 bits a number: y = act(x * W^T + b).
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Linear = require "flare.nn.linear"
local Module = require "flare.nn.module"

local QuantizedLinear = class("QuantizedLinear", Module)

local defaults = {bits = 4, group = options.none, symmetric = options.none, scales = "f16"}
local of_layer = {bias = true, act = "none"}
for key, value in pairs(defaults) do of_layer[key] = value end
local HELD = {} -- in place of `inputs`: the layer and its weight are given

-- The settings of a weight with so many columns, or nil and what is wrong.
function QuantizedLinear.settings(where, opts, columns)
  local o = options.check(where, opts, defaults)
  if o.bits ~= 4 and o.bits ~= 8 then
    fail("%s: bits must be 4 or 8, got %s", where, tostring(o.bits))
  elseif o.scales ~= "f16" and o.scales ~= "bf16" and o.scales ~= "f32" then
    fail("%s: scales are 'f16', 'bf16' or 'f32', got '%s'", where, tostring(o.scales))
  end
  if o.symmetric == nil then o.symmetric = o.bits == 8 end
  o.group = o.group or o.bits == 8 and columns or 64
  if math.type(o.group) ~= "integer" or o.group < 1 then
    fail("%s: group must be a number of columns, got %s", where, tostring(o.group))
  end
  if columns % o.group ~= 0 or o.bits == 4 and columns % 2 ~= 0 then
    return nil, ("%d columns are not groups of %d"):format(columns, o.group)
  end
  o.dtype = o.scales
  return o
end

--- nn.QuantizedLinear(inputs, outputs, {bits = 4, group = 64, symmetric = false, scales = "f16",
-- bias = true, act = "none"})
-- The weight is drawn as that of nn.Linear and rounded; nn.QuantizedLinear.from(layer) rounds the
-- weight of a layer, and module:quantize() those of a model. `bits` is 4 or 8. `group` is the
-- number of columns that share a scale, by default 64, with 8 bits the whole row. `symmetric`
-- leaves out the zeros, by default with 8 bits. `scales` is the dtype of the scales. `bias` and
-- `act` are those of nn.Linear.
function QuantizedLinear:init(inputs, outputs, opts)
  if inputs == HELD then return self:hold(outputs, opts.part, opts.settings) end
  local given = {}
  for key, value in pairs(options.check("nn.QuantizedLinear", opts, of_layer)) do
    given[key] = value
  end
  local plain = Linear(inputs, outputs, {bias = given.bias, act = given.act})
  given.bias, given.act = nil, nil
  local o, message = self.settings("nn.QuantizedLinear", given, plain.inputs)
  if not o then fail("nn.QuantizedLinear: %s", message) end
  self:hold(plain, require("flare.quantize.grid").nearest(plain.weight:detach(), o), o)
end

-- Takes what grid.nearest gave, and the bias of a layer.
function QuantizedLinear:hold(plain, part, o)
  self.inputs, self.outputs, self.act = plain.inputs, plain.outputs, plain.act
  self.bits, self.group, self.symmetric = o.bits, o.group, o.symmetric
  for _, name in ipairs{"weight", "scales", "zeros", "order", "factors"} do
    if part[name] then self[name] = self:buffer(part[name]) end
  end
  if plain.bias then
    self.bias = self:param(plain.bias:detach())
    self.bias:requires_grad_(plain.bias.requires_grad)
  end
end

--- The layer with the weight of another, which is rounded to the nearest numbers.
-- @param layer an nn.Linear
-- @param opts {bits = 4, group = 64, symmetric = false, scales = "f16"}
-- @param part what flare.quantize made of the weight instead
function QuantizedLinear.from(layer, opts, part)
  if getmetatable(layer) ~= Linear then
    fail("nn.QuantizedLinear.from: an nn.Linear is expected, got %s", options.kind(layer))
  end
  local o, message = QuantizedLinear.settings("nn.QuantizedLinear.from", opts, layer.inputs)
  if not o then fail("nn.QuantizedLinear.from: %s", message) end
  local weight = layer.weight:detach():to "f32":contiguous()
  part = part or require("flare.quantize.grid").nearest(weight, o)
  return QuantizedLinear.holding(layer, part, o)
end

-- The layer with a weight that is quantised already, and with the bias of another.
function QuantizedLinear.holding(layer, part, settings)
  local self = QuantizedLinear(HELD, layer, {part = part, settings = settings})
  self.training = layer.training
  return self
end

-- The product alone, plus `bias` where it is given.
function QuantizedLinear:product(x, bias)
  if self.factors then x = x * self.factors:to(x.dtype) end
  if self.order then x = x:index_select(-1, self.order) end
  return (core.quantized_linear(x, self.weight, self.scales, self.zeros, bias))
end

--- (..., inputs) -> (..., outputs)
function QuantizedLinear:forward(x)
  local y = self:product(x, self.bias)
  if self.act == "none" then return y end
  if self.act == "gelu_tanh" then return core.gelu(y, "tanh") end
  return core[self.act](y)
end

--- The weight (outputs, inputs) as floats.
-- @param dtype "f32" unless it is given
function QuantizedLinear:dequantize(dtype)
  local w = core.dequantize(self.weight, self.scales, self.zeros, dtype or "f32")
  if self.order then w = w:index_select(2, self.order:argsort()) end
  if self.factors then w = w * self.factors:to(w.dtype) end
  return w
end

function QuantizedLinear:describe()
  return ("%d -> %d, %d bits%s%s"):format(self.inputs, self.outputs, self.bits,
    self.group < self.inputs and (" in groups of %d"):format(self.group) or "",
    self.act ~= "none" and ", act=" .. self.act or "")
end

return QuantizedLinear
