--- Normalises each channel over the batch; remembers statistics for evaluation.
local ChannelNorm = require "flare.nn.channel_norm"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local BatchNorm = class("BatchNorm", ChannelNorm)

--- nn.BatchNorm2d(channels, {affine = true, track = true, momentum = 0.1, eps = 1e-5})
-- Without `track` the batch's own statistics are used in evaluation, too.
function BatchNorm:init(channels, opts)
  self:prepare(channels, opts, {affine = true, track = true, momentum = 0.1, eps = 1e-5})
end

--- (batch, channels, ...) -> the same shape
function BatchNorm:forward(x)
  local most, least = self.most, self.least
  local ndim = x:dim()
  if ndim < least or ndim > most then
    fail("%s: the input must have %s dims (batch, channels, ...), got (%s)",
         getmetatable(self).__name, least == most and least or least .. " or " .. most,
         table.concat(x.shape, ", "))
  end
  local batch = self.training or not self.running_mean
  -- the operator itself takes the batch into the running statistics
  return (core.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
                          {training = batch, momentum = self.momentum, eps = self.eps}))
end

local classes = {}
for name, dims in pairs{BatchNorm1d = {2, 3}, BatchNorm2d = {4, 4}, BatchNorm3d = {5, 5}} do
  local cls = class(name, BatchNorm)
  cls.least, cls.most = dims[1], dims[2]
  classes[name] = cls
end
return classes
