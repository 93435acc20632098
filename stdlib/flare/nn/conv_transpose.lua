--- Transposed convolutions over 1, 2 or 3 dims: what a convolution does to gradients.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local window = require "flare.nn.window"
local Module = require "flare.nn.module"

local ConvTranspose = class("ConvTranspose", Module)

--- nn.ConvTranspose2d(inputs, outputs, kernel, {stride = 1, padding = 0, output_padding = 0,
--   dilation = 1, groups = 1, bias = true})
-- weight is (inputs, outputs / groups, kernel...).
function ConvTranspose:init(inputs, outputs, kernel, opts)
  local n, where = self.dims, "nn." .. getmetatable(self).__name
  local none = options.none
  local o = options.check(where, opts, {stride = none, padding = none, output_padding = none,
                                        dilation = none, groups = 1, bias = true})
  self.inputs = options.count(where, "inputs", inputs)
  self.outputs = options.count(where, "outputs", outputs)
  self.groups = options.count(where, "groups", o.groups)
  if inputs % o.groups ~= 0 or outputs % o.groups ~= 0 then
    fail("%s: %d inputs and %d outputs cannot be cut into %d equal groups", where, inputs,
         outputs, o.groups)
  end
  self.kernel = window.list(where, "kernel", kernel, n, 1)
  self.stride = window.list(where, "stride", o.stride or 1, n, 1)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
  self.output_padding = window.list(where, "output_padding", o.output_padding or 0, n, 0)
  self.dilation = window.list(where, "dilation", o.dilation or 1, n, 1)
  local shape = {inputs, outputs // o.groups, table.unpack(self.kernel)}
  local fan = shape[2]
  for i = 1, n do fan = fan * self.kernel[i] end
  local bound = 1 / math.sqrt(fan)
  self.weight = self:param(init.uniform(shape, {low = -bound, high = bound}))
  if o.bias then
    self.bias = self:param(init.uniform({outputs}, {low = -bound, high = bound}))
  end
end

--- (batch, inputs, size...) or (inputs, size...) -> the same with outputs and new sizes
function ConvTranspose:forward(x)
  local single = x:dim() == self.dims + 1
  if single then x = x:unsqueeze(1) end
  local y = core.conv_transpose(x, self.weight, self.bias,
                                {stride = self.stride, padding = self.padding,
                                 output_padding = self.output_padding, dilation = self.dilation,
                                 groups = self.groups})
  return single and y:squeeze(1) or y
end

function ConvTranspose:describe()
  return ("%d -> %d, kernel=%s, stride=%s"):format(self.inputs, self.outputs,
                                                   window.text(self.kernel),
                                                   window.text(self.stride))
end

local classes = {}
for n = 1, 3 do
  local cls = class(("ConvTranspose%dd"):format(n), ConvTranspose)
  cls.dims = n
  classes[("ConvTranspose%dd"):format(n)] = cls
end
return classes
