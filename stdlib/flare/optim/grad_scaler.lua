--- Dynamic loss scaling for f16 (arXiv:1710.03740): gradients below 6e-8 would become zero, so the
-- loss is multiplied by a scale before backward, and the gradients are divided by it afterwards. A
-- step whose gradients are not all finite is skipped and lowers the scale; `interval` steps in a
-- row with finite gradients raise it.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local GradScaler = class("GradScaler")
GradScaler.__word = "scaler"
GradScaler.__keeps = true

--- optim.GradScaler{scale = 65536, growth = 2, backoff = 0.5, interval = 2000, enabled = true}
-- `growth` and `backoff` are the factors by which the scale rises and falls. With enabled = false
-- the scaler scales nothing and skips no step.
function GradScaler:init(opts)
  local o = options.check("optim.GradScaler", opts, {scale = 65536, growth = 2, backoff = 0.5,
                                                     interval = 2000, enabled = true})
  if o.scale <= 0 or o.scale == math.huge then
    fail("optim.GradScaler: scale must be a number above 0, got %g", o.scale)
  end
  if o.growth <= 1 then
    fail("optim.GradScaler: growth must be above 1, got %g", o.growth)
  end
  if o.backoff <= 0 or o.backoff >= 1 then
    fail("optim.GradScaler: backoff must be in (0, 1), got %g", o.backoff)
  end
  if o.interval < 1 then
    fail("optim.GradScaler: interval must be at least 1, got %g", o.interval)
  end
  self.options, self.enabled, self.factor = o, o.enabled, o.scale
  self.good, self.skipped = 0, 0 -- steps since the scale changed; all skipped steps
  self._finite = setmetatable({}, {__mode = "k"}) -- by optimizer whose gradients are unscaled
end

--- The loss times the scale, for backward.
function GradScaler:scale(loss)
  options.tensor("GradScaler:scale", "the loss", loss)
  return self.enabled and loss * self.factor or loss
end

--- Divides the gradients of an optimizer's parameters by the scale. Call it before clipping; if it
-- was not called, `step` does it.
-- @return whether all gradients are finite
function GradScaler:unscale_(optimizer)
  if type(optimizer) ~= "table" or type(optimizer.groups) ~= "table" then
    fail("GradScaler: an optimizer is expected, got %s", options.kind(optimizer))
  end
  if not self.enabled then return true end
  if self._finite[optimizer] ~= nil then
    fail("GradScaler: unscale_ was called already since the last update")
  end
  local places, order = {}, {}
  for _, group in ipairs(optimizer.groups) do
    for _, p in ipairs(group.params) do
      local grad = p.grad
      if grad then
        local list = places[grad.device]
        if not list then
          list = {}
          places[grad.device] = list
          order[#order + 1] = list
        end
        list[#list + 1] = grad
      end
    end
  end
  local _ <close> = core.no_grad()
  local finite = true
  for _, list in ipairs(order) do
    core.scale_step(core.tensor(1 / self.factor, {device = list[1].device}), list)
  end
  -- the largest size is finite if and only if all are
  for _, list in ipairs(order) do
    local most = core.global_norm(list, {p = math.huge}):item()
    finite = finite and most - most == 0
  end
  if optimizer.agree then finite = optimizer:agree(finite) end -- other ranks have other gradients
  self._finite[optimizer] = finite
  return finite
end

--- Calls optimizer:step(), unless a gradient is not finite.
-- @return whether it was called
function GradScaler:step(optimizer)
  local finite = self._finite[optimizer]
  if finite == nil then finite = self:unscale_(optimizer) end
  if finite then optimizer:step() end
  return finite
end

--- Adjusts the scale. Call it once after the steps of a batch.
function GradScaler:update()
  local all, any = true, false
  for optimizer, finite in pairs(self._finite) do
    all, any = all and finite, true
    self._finite[optimizer] = nil
  end
  if not any then return self end
  local o = self.options
  if not all then
    self.factor, self.good, self.skipped = self.factor * o.backoff, 0, self.skipped + 1
  else
    self.good = self.good + 1
    if self.good >= o.interval then
      local grown = self.factor * o.growth
      self.factor, self.good = grown < 2.0 ^ 100 and grown or self.factor, 0
    end
  end
  return self
end

function GradScaler:state_dict()
  return {factor = self.factor, good = self.good, skipped = self.skipped}
end

function GradScaler:load_state_dict(saved, message)
  options.state("GradScaler", saved, message)
  if type(saved.factor) ~= "number" or saved.factor <= 0 then
    fail("GradScaler: this is not a scaler's state")
  end
  self.factor, self.good, self.skipped = saved.factor, saved.good or 0, saved.skipped or 0
  return self
end

function GradScaler:__tostring()
  local o = self.options
  if not self.enabled then return "GradScaler(enabled=false)" end
  return ("GradScaler(scale=%g, growth=%g, backoff=%g, interval=%d, %d steps skipped)"):format(
    self.factor, o.growth, o.backoff, o.interval, self.skipped)
end

return GradScaler
