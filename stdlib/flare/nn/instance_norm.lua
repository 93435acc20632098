--- Instance normalization (arXiv:1607.08022): normalizes each channel of each sample by its own
-- mean and variance over space; with `track`, in evaluation, by running statistics.
local ChannelNorm = require "flare.nn.channel_norm"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local InstanceNorm = class("InstanceNorm", ChannelNorm)

--- nn.InstanceNorm2d(channels, {affine = false, track = false, momentum = 0.1, eps = 1e-5})
-- With `track`, training keeps running means of the statistics for evaluation; `momentum` is the
-- weight of a batch in them.
function InstanceNorm:init(channels, opts)
  self:prepare(channels, opts, {affine = false, track = false, momentum = 0.1, eps = 1e-5})
end

-- Updates the running statistics with the means over the batch.
function InstanceNorm:keep(x)
  local _ <close> = core.no_grad()
  local var, mean = core.var_mean(x:flatten(3), {dims = {3}})
  self.running_mean:lerp_(mean:mean(1), self.momentum)
  self.running_var:lerp_(var:mean(1), self.momentum)
end

--- (batch, channels, size...) or (channels, size...) -> the same shape
function InstanceNorm:forward(x)
  options.input(self, x)
  if x:dim() == self.ndim - 1 and x:size(1) == self.channels then
    return self:forward(x:unsqueeze(1)):squeeze(1)
  end
  if x:dim() ~= self.ndim or x:size(2) ~= self.channels then
    fail("%s: the input must have %d dims (batch, %d, size...), got (%s)",
         getmetatable(self).__name, self.ndim, self.channels, table.concat(x.shape, ", "))
  end
  if self.running_mean and not self.training then
    return (core.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
                            {training = false, eps = self.eps}))
  end
  if self.running_mean then self:keep(x) end
  return (core.group_norm(x, self.weight, self.bias, self.channels, self.eps))
end

local classes = {}
for name, ndim in pairs{InstanceNorm1d = 3, InstanceNorm2d = 4, InstanceNorm3d = 5} do
  classes[name] = class(name, InstanceNorm)
  classes[name].ndim = ndim
end
return classes
