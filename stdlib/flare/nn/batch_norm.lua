--- Normalises each channel over the batch; remembers statistics for evaluation.
local ChannelNorm = require "flare.nn.channel_norm"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local BatchNorm = class("BatchNorm", ChannelNorm)

--- nn.BatchNorm2d(channels, {affine = true, track = true, momentum = 0.1, cumulative = false,
--   eps = 1e-5})
-- Without `track` the batch's own statistics are used in evaluation, too. With `cumulative` what is
-- remembered is the mean of all batches alike, whatever the momentum.
function BatchNorm:init(channels, opts)
  local o = self:prepare(channels, opts, {affine = true, track = true, momentum = 0.1,
                                          cumulative = false, eps = 1e-5})
  if o.cumulative and o.track then
    self.num_batches_tracked = self:buffer(core.zeros({}, {dtype = "i64"}))
  end
end

-- Training in which every batch so far has the same share in what is remembered.
function BatchNorm:accumulate(x)
  local mean, var = core.zeros_like(self.running_mean), core.zeros_like(self.running_var)
  local y = core.batch_norm(x, self.weight, self.bias, mean, var, {momentum = 1, eps = self.eps})
  local _ <close> = core.no_grad()
  local share = self.num_batches_tracked:add_(1):to(mean.dtype):reciprocal()
  self.running_mean:lerp_(mean, share)
  self.running_var:lerp_(var, share)
  return y
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
  if self.training and self.num_batches_tracked then return self:accumulate(x) end
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
