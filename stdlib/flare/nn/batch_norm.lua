--- Normalises each channel over the batch; remembers statistics for evaluation.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"

local BatchNorm = class("BatchNorm", Module)

--- nn.BatchNorm2d(channels, {affine = true, track = true, momentum = 0.1, eps = 1e-5})
-- Without `track` the batch's own statistics are used in evaluation, too.
function BatchNorm:init(channels, opts)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, {affine = true, track = true, momentum = 0.1, eps = 1e-5})
  self.channels = options.count(where, "channels", channels)
  self.momentum, self.eps = o.momentum, o.eps
  if o.affine then
    self.weight = self:param(core.ones(channels))
    self.bias = self:param(core.zeros(channels))
  end
  if o.track then
    self.running_mean = self:buffer(core.zeros(channels))
    self.running_var = self:buffer(core.ones(channels))
  end
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

function BatchNorm:describe()
  return tostring(self.channels)
end

local classes = {}
for name, dims in pairs{BatchNorm1d = {2, 3}, BatchNorm2d = {4, 4}, BatchNorm3d = {5, 5}} do
  local cls = class(name, BatchNorm)
  cls.least, cls.most = dims[1], dims[2]
  classes[name] = cls
end
return classes
