--- Transposed convolutions over 1, 2 or 3 dims: the gradient of a convolution with respect to its
-- input.
local class = require "flare.class"
local core = require "flare.core"
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
  window.sizes(self, where, inputs, outputs, kernel, o)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
  self.output_padding = window.list(where, "output_padding", o.output_padding or 0, n, 0)
  window.parameters(self, inputs, outputs // o.groups, o.bias)
end

--- (batch, inputs, size...) or (inputs, size...) -> the same with outputs and new sizes
function ConvTranspose:forward(x)
  local single = options.input(self, x):dim() == self.dims + 1
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
