--- Dropout of channels (arXiv:1411.4280), for features that are correlated with their neighbours in
-- space: in training, sets each channel of a sample to zero with probability p and scales the
-- others by 1 / (1 - p).
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Dropout = require "flare.nn.dropout"
local options = require "flare.options"

local Channels = class("Channels", Dropout)

--- (batch, channels, size...) -> the same shape
function Channels:forward(x)
  options.input(self, x)
  if x:dim() ~= self.ndim then
    fail("%s: the input must have %d dims (batch, channels, size...), got (%s)",
         getmetatable(self).__name, self.ndim, table.concat(x.shape, ", "))
  end
  if not self.training or self.p == 0 then return x end
  local shape = {x:size(1), x:size(2)}
  for d = 3, self.ndim do shape[d] = 1 end
  return x * core.dropout(core.ones(shape, {dtype = x.dtype, device = x.device}), self.p)
end

local classes = {}
for name, ndim in pairs{Dropout1d = 3, Dropout2d = 4, Dropout3d = 5} do
  classes[name] = class(name, Channels)
  classes[name].ndim = ndim
end
return classes
