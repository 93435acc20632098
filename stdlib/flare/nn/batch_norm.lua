--- Batch normalization (arXiv:1502.03167): normalizes each channel over the batch, and keeps
-- running statistics for evaluation.
local ChannelNorm = require "flare.nn.channel_norm"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local BatchNorm = class("BatchNorm", ChannelNorm)

--- nn.BatchNorm2d(channels, {affine = true, track = true, momentum = 0.1, cumulative = false,
--   eps = 1e-5})
-- `momentum` is the weight of a batch in the running mean and variance. Without `track` there are
-- no running statistics: evaluation uses those of the batch, too. With `cumulative` they are the
-- plain mean over all batches, and momentum is not used.
function BatchNorm:init(channels, opts)
  local o = self:prepare(channels, opts, {affine = true, track = true, momentum = 0.1,
                                          cumulative = false, eps = 1e-5})
  if o.cumulative and o.track then
    self.num_batches_tracked = self:buffer(core.zeros({}, {dtype = "i64"}))
  end
end

-- Updates the running statistics with a batch's mean and variance.
function BatchNorm:remember(mean, var)
  local _ <close> = core.no_grad()
  local share = self.momentum
  if self.num_batches_tracked then
    share = self.num_batches_tracked:add_(1):to(mean.dtype):reciprocal()
  end
  self.running_mean:lerp_(mean, share)
  self.running_var:lerp_(var, share)
end

function BatchNorm:accumulate(x)
  local mean, var = core.zeros_like(self.running_mean), core.zeros_like(self.running_var)
  local y = core.batch_norm(x, self.weight, self.bias, mean, var, {momentum = 1, eps = self.eps})
  self:remember(mean, var)
  return y
end

-- Training by the statistics over the batches of all ranks of a group.
function BatchNorm:together(x)
  local group, dims, shape = self._group, {1}, {1, self.channels}
  if x:size(2) ~= self.channels then
    fail("%s: %d channels are expected, got %s", getmetatable(self).__name, self.channels,
         tostring(x.shape))
  end
  for d = 3, x:dim() do dims[d - 1], shape[d] = d, 1 end
  local v = (x.dtype == "f16" or x.dtype == "bf16") and x:float() or x
  local count = core.full({1}, v:numel() // self.channels, {dtype = v.dtype, device = v.device})
  local sums = group:all_reduce(core.cat({v:sum(dims), count}, 1))
  local n = sums[{{-1, -1}}]:detach()
  local mean = sums[{{1, -2}}] / n
  local apart = v - mean:view(shape)
  local squares = group:all_reduce(apart:square():sum(dims))
  local y = apart * (squares / n + self.eps):rsqrt():view(shape)
  if self.weight then y = y * self.weight:view(shape) + self.bias:view(shape) end
  if self.running_mean then self:remember(mean, squares / (n - 1)) end
  return y:to(x.dtype)
end

--- nn.sync_norms(model, group): synchronized batch normalization. In training, the BatchNorm layers
-- of the model use the mean and variance over the batches of all ranks of a group, such as
-- dist.world.
-- @return the model
local function sync_norms(model, group)
  if not walk.is_module(model) then
    fail("sync_norms: a module is expected, got %s", options.kind(model))
  elseif type(group) ~= "table" or not group.all_reduce then
    fail("sync_norms: a group of ranks, as dist.world, is expected, got %s", options.kind(group))
  end
  return model:apply(function(layer)
    if class.is(layer, BatchNorm) then layer._group = group end
  end)
end

--- (batch, channels, ...) -> the same shape
function BatchNorm:forward(x)
  local most, least = self.most, self.least
  local ndim = options.input(self, x):dim()
  if ndim < least or ndim > most then
    fail("%s: the input must have %s dims (batch, channels, ...), got (%s)",
         getmetatable(self).__name, least == most and least or least .. " or " .. most,
         table.concat(x.shape, ", "))
  end
  if self.training and self._group then return self:together(x) end
  if self.training and self.num_batches_tracked then return self:accumulate(x) end
  local batch = self.training or not self.running_mean
  -- the operator itself takes the batch into the running statistics
  return (core.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
                          {training = batch, momentum = self.momentum, eps = self.eps}))
end

--- nn.measure_norms(model, batches): computes the running statistics of the BatchNorm layers of a
-- model again, as the mean over these batches; for weights that are averages themselves, such as
-- those of optim.EMA. The model is called with the first value that the iterator gives.
-- @param batches an iterator, such as loader:epoch()
-- @return the model
local function measure_norms(model, ...)
  if not walk.is_module(model) then
    fail("measure_norms: a module is expected, got %s", options.kind(model))
  elseif (...) == nil then
    fail "measure_norms: batches are needed, as loader:epoch()"
  end
  if type((...)) ~= "function" then
    fail("measure_norms: batches are needed, as loader:epoch(), got %s", options.kind((...)))
  end
  local norms, modes = {}, {}
  for _, layer in ipairs(model:modules()) do
    modes[layer] = layer.training
    if class.is(layer, BatchNorm) and layer.running_mean then
      norms[#norms + 1] = {layer = layer, momentum = layer.momentum}
      if layer.num_batches_tracked then layer.num_batches_tracked:zero_() end
    end
  end
  model:train()
  local _ <close> = core.no_grad()
  local k = 0
  for x in ... do
    k = k + 1
    for _, norm in ipairs(norms) do norm.layer.momentum = 1 / k end
    model(x)
  end
  for _, norm in ipairs(norms) do norm.layer.momentum = norm.momentum end
  for layer, training in pairs(modes) do layer.training = training end
  return model
end

local classes = {sync_norms = sync_norms, measure_norms = measure_norms}
for name, dims in pairs{BatchNorm1d = {2, 3}, BatchNorm2d = {4, 4}, BatchNorm3d = {5, 5}} do
  local cls = class(name, BatchNorm)
  cls.least, cls.most = dims[1], dims[2]
  classes[name] = cls
end
return classes
