--- A schedule that lowers the learning rate when a metric stops improving.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local PlateauLR = class("PlateauLR")
PlateauLR.__word = "schedule"

--- optim.PlateauLR(optimizer, {factor = 0.1, patience = 10, threshold = 1e-4, mode = "min",
--   cooldown = 0, floor = 0})
-- The rate is multiplied by `factor` after more than `patience` steps in a row in which the metric
-- is not better than the best by the relative amount `threshold`; then `cooldown` steps are not
-- counted. `floor` is the lowest rate. `mode`: whether "min" or "max" is better.
function PlateauLR:init(optimizer, opts)
  local o = options.check("optim.PlateauLR", opts,
                          {factor = 0.1, patience = 10, threshold = 1e-4, mode = "min",
                           cooldown = 0, floor = 0})
  if o.mode ~= "min" and o.mode ~= "max" then
    fail("optim.PlateauLR: mode is 'min' or 'max', got '%s'", o.mode)
  end
  if not (o.factor > 0 and o.factor < 1) then
    fail("optim.PlateauLR: factor must be between 0 and 1, got %g", o.factor)
  end
  if type(optimizer) ~= "table" or type(optimizer.groups) ~= "table" then
    fail("optim.PlateauLR: an optimizer is expected, got %s", options.kind(optimizer))
  end
  self.optimizer, self.options = optimizer, o
  self.bad, self.rest, self.best = 0, 0, nil
end

local function better(o, value, best)
  if best == nil then return value == value end
  local margin = math.abs(best) * o.threshold
  if o.mode == "min" then return value < best - margin end
  return value > best + margin
end

--- Records the metric, such as the validation loss, and lowers the rate if it is time.
-- @param value a number or a 0-d tensor
function PlateauLR:step(value)
  if type(value) ~= "number" then
    if value == nil then fail("PlateauLR:step needs the metric that it watches") end
    value = options.tensor("PlateauLR:step", "the metric", value):item()
  end
  local o = self.options
  if better(o, value, self.best) then
    self.best, self.bad = value, 0
  else
    self.bad = self.bad + 1
  end
  if self.rest > 0 then self.rest, self.bad = self.rest - 1, 0 end
  if self.bad > o.patience then
    for _, group in ipairs(self.optimizer.groups) do
      group.lr = math.max(group.lr * o.factor, o.floor)
    end
    self.bad, self.rest = 0, o.cooldown
  end
end

function PlateauLR:state_dict()
  local rates = {}
  for i, group in ipairs(self.optimizer.groups) do rates[i] = group.lr end
  return {bad = self.bad, rest = self.rest, best = self.best, rates = rates}
end

function PlateauLR:load_state_dict(saved, message)
  options.state("PlateauLR", saved, message)
  if type(saved.rates) ~= "table" then fail("PlateauLR: this is not a schedule's state") end
  self.bad, self.rest, self.best = saved.bad, saved.rest, saved.best
  for i, group in ipairs(self.optimizer.groups) do group.lr = saved.rates[i] or group.lr end
  return self
end

function PlateauLR:__tostring()
  return options.describe("PlateauLR", self.options,
    ("%d without improvement, best %s"):format(self.bad, tostring(self.best or "none yet")))
end

return PlateauLR
