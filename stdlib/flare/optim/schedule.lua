--- Schedules of the learning rate: factors of each group's first rate.
--
-- A schedule sets the rate of the first step when it is made; `schedule:step()` after each
-- optimizer step sets the next. A row below is a name, options and what it does for readers, the
-- options, those of them that are needed, and the factor at step t (0, 1, ...).
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local Schedule = class("Schedule")

--- The rate that a group of the optimizer has now is the one that is multiplied.
function Schedule:init(optimizer, opts)
  local where = "optim." .. getmetatable(self).__name
  if type(optimizer) ~= "table" or type(optimizer.groups) ~= "table" then
    fail("%s: an optimizer is expected, got %s", where, type(optimizer))
  end
  self.optimizer = optimizer
  local o = options.check(where, opts, self.defaults)
  for _, key in ipairs(self.needed) do
    if o[key] == nil then fail("%s: the option %s is needed", where, key) end
  end
  self.options, self.t = o, 0
  self:set()
end

function Schedule:set()
  for _, group in ipairs(self.optimizer.groups) do
    group.lr = group.initial_lr * self.factor(self.t, self.options)
  end
end

--- Goes on to the next step's rate.
function Schedule:step()
  self.t = self.t + 1
  self:set()
end

--- The present rate of each group.
function Schedule:lr()
  local list = {}
  for i, group in ipairs(self.optimizer.groups) do list[i] = group.lr end
  return table.unpack(list)
end

function Schedule:state_dict()
  return {t = self.t}
end

function Schedule:load_state_dict(saved)
  if type(saved) ~= "table" or math.type(saved.t) ~= "integer" then
    fail("%s: this is not a schedule's state", getmetatable(self).__name)
  end
  self.t = saved.t
  self:set()
  return self
end

local function cosine(q)
  return 0.5 * (1 + math.cos(math.pi * math.min(math.max(q, 0), 1)))
end

-- How often times in a list have come.
local function passed(t, times)
  local n = 0
  for _, at in ipairs(times) do n = n + (t >= at and 1 or 0) end
  return n
end

-- The share of its period that step t is in; each period is `growth` times the one before.
local function phase(t, period, growth)
  while t >= period do t, period = t - period, period * growth end
  return t / period
end

local none = options.none
local rows = {
  {"StepLR", "{every =, gamma = 0.1}", "times gamma every `every` steps",
    {every = none, gamma = 0.1}, {"every"}, function(t, o) return o.gamma ^ (t // o.every) end},
  {"MultiStepLR", "{at = {30, 80}, gamma = 0.1}", "times gamma at each of these steps",
    {at = none, gamma = 0.1}, {"at"}, function(t, o) return o.gamma ^ passed(t, o.at) end},
  {"CosineLR", "{total =, floor = 0}", "half a cosine wave from 1 to floor over `total` steps",
    {total = none, floor = 0}, {"total"}, function(t, o)
      return o.floor + (1 - o.floor) * cosine(t / o.total)
    end},
  {"CosineRestartsLR", "{period =, growth = 1, floor = 0}",
    "half a cosine wave from 1 to floor, again and again; each takes `growth` times as long as "
      .. "the one before",
    {period = none, growth = 1, floor = 0}, {"period"}, function(t, o)
      return o.floor + (1 - o.floor) * cosine(phase(t, o.period, o.growth))
    end},
  {"WarmupCosineLR", "{warmup =, total =, floor = 0}",
    "up in a straight line over `warmup` steps, then half a cosine wave down to floor, which it "
      .. "has at step `total`",
    {warmup = none, total = none, floor = 0}, {"warmup", "total"}, function(t, o)
      if t < o.warmup then return (t + 1) / o.warmup end
      return o.floor + (1 - o.floor) * cosine((t - o.warmup) / math.max(o.total - o.warmup, 1))
    end},
  {"LinearLR", "{total =, from = 1, to = 0}", "a straight line over `total` steps",
    {total = none, from = 1, to = 0}, {"total"}, function(t, o)
      return o.from + (o.to - o.from) * math.min(t / o.total, 1)
    end},
  {"PolynomialLR", "{total =, power = 1}", "(1 - t / total) to this power",
    {total = none, power = 1}, {"total"}, function(t, o)
      return (1 - math.min(t / o.total, 1)) ^ o.power
    end},
  {"ExponentialLR", "{gamma =}", "times gamma every step",
    {gamma = none}, {"gamma"}, function(t, o) return o.gamma ^ t end},
  {"LambdaLR", "{f = function(t) ... end}", "f(t) at step t; the first is 0",
    {f = none}, {"f"}, function(t, o) return o.f(t) end},
  {"OneCycleLR", "{total =, up = 0.3, start = 25, final = 1e4}",
    "up from 1/start to 1 in the first share `up` of all steps, then down to 1/final of where it "
      .. "began in the last one, by cosines",
    {total = none, up = 0.3, start = 25, final = 1e4}, {"total"}, function(t, o)
      local turn, first = o.up * o.total - 1, 1 / o.start
      if t < turn then return 1 + (first - 1) * cosine(t / turn) end
      local last = first / o.final
      return last + (1 - last) * cosine((t - turn) / math.max(o.total - 1 - turn, 1))
    end},
}

local classes = {Schedule = Schedule}
for _, row in ipairs(rows) do
  local cls = class(row[1], Schedule)
  cls.about = {("optim.%s(optimizer, %s)"):format(row[1], row[2]),
               ("The factor: %s."):format(row[3])}
  cls.defaults, cls.needed, cls.factor = row[4], row[5], row[6]
  classes[row[1]] = cls
end
return classes
