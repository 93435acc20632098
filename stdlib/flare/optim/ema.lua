--- Exponential moving average of weights: average = decay * average + (1 - decay) * weight.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local EMA = class("EMA")
EMA.__keeps = true

--- optim.EMA(model or list of parameters, {decay = 0.999, warmup = true, mean = false})
-- With `warmup` the decay at update n is min(decay, (1 + n) / (10 + n)). With `mean` the average is
-- the plain mean of the weights at all updates (stochastic weight averaging, arXiv:1803.05407);
-- call nn.measure_norms afterwards.
function EMA:init(params, opts)
  local o = options.check("optim.EMA", opts, {decay = 0.999, warmup = true, mean = false})
  if o.decay < 0 or o.decay >= 1 then
    fail("optim.EMA: decay must be in [0, 1), got %g", o.decay)
  end
  params = walk.parameters(params)
  if type(params) ~= "table" or #params == 0 then
    fail("optim.EMA: a module or a list of parameters is expected")
  end
  self.decay, self.warmup, self.mean, self.updates = o.decay, o.warmup, o.mean, 0
  self.params, self.averages = params, {}
  for i, p in ipairs(params) do
    options.tensor("optim.EMA", "each parameter", p)
    -- in f32 where p has 16 bits, which cannot hold (1 - decay) of a difference
    local low = p.dtype == "f16" or p.dtype == "bf16"
    self.averages[i] = low and p:detach():to("f32") or p:detach():clone()
  end
end

--- Updates the averages with the current weights; call it after each optimizer step.
function EMA:update()
  local n = self.updates
  self.updates = n + 1
  local decay = self.warmup and math.min(self.decay, (1 + n) / (10 + n)) or self.decay
  if self.mean then decay = n / (n + 1) end
  local _ <close> = core.no_grad()
  local xs = table.move(self.averages, 1, #self.averages, 1, {})
  for i, p in ipairs(self.params) do xs[#self.averages + i] = p end
  core.lerp_step(1 - decay, xs)
  return self
end

--- Calls f(...) with the averages in place of the weights, then restores the weights.
-- @return what f returns
function EMA:with(f, ...)
  local kept = {}
  for i, p in ipairs(self.params) do kept[i] = p:detach():clone() end
  self:copy_to()
  local results = table.pack(pcall(f, ...))
  core.no_grad(function()
    for i, p in ipairs(self.params) do p:copy_(kept[i]) end
  end)
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

--- Copies the averages into the weights.
function EMA:copy_to()
  local _ <close> = core.no_grad()
  for i, p in ipairs(self.params) do p:copy_(self.averages[i]) end
end

function EMA:state_dict()
  return {updates = self.updates, averages = self.averages}
end

function EMA:load_state_dict(saved, message)
  options.state("EMA", saved, message)
  if type(saved.averages) ~= "table" then fail("EMA: this is not the state of averages") end
  if #saved.averages ~= #self.averages then
    fail("EMA: the state has %d tensors, the model %d", #saved.averages, #self.averages)
  end
  local _ <close> = core.no_grad()
  for i, average in ipairs(saved.averages) do self.averages[i]:copy_(average) end
  self.updates = saved.updates
  return self
end

function EMA:__tostring()
  return ("EMA(%s, %d tensors, %d updates)"):format(
    self.mean and "mean" or ("decay=%g, warmup=%s"):format(self.decay, tostring(self.warmup)),
    #self.params, self.updates)
end

return EMA
