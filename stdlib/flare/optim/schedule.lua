--- Schedules of the learning rate: factors of each group's first rate.
--
-- A schedule sets the rate of the first step when it is made; `schedule:step()` after each
-- optimizer step sets the next. A row below is a name, options, and the factor at step t
-- (0, 1, ...); an option that is `needed` has no default.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local Schedule = class("Schedule")

--- optim.X(optimizer, options)
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

local none = options.none
local rows = {
  -- times gamma every `every` steps
  {"StepLR", {every = none, gamma = 0.1}, {"every"}, function(t, o)
    return o.gamma ^ (t // o.every)
  end},
  -- half a cosine wave from 1 to floor over `total` steps
  {"CosineLR", {total = none, floor = 0}, {"total"}, function(t, o)
    return o.floor + (1 - o.floor) * cosine(t / o.total)
  end},
  -- up in a straight line over `warmup` steps, then half a cosine wave down to floor
  {"WarmupCosineLR", {warmup = none, total = none, floor = 0}, {"warmup", "total"},
    function(t, o)
      if t < o.warmup then return (t + 1) / o.warmup end
      return o.floor + (1 - o.floor) * cosine((t - o.warmup) / math.max(o.total - o.warmup, 1))
    end},
  -- a straight line from `from` to `to` over `total` steps
  {"LinearLR", {total = none, from = 1, to = 0}, {"total"}, function(t, o)
    return o.from + (o.to - o.from) * math.min(t / o.total, 1)
  end},
  {"ExponentialLR", {gamma = none}, {"gamma"}, function(t, o) return o.gamma ^ t end},
  -- f(t) is the factor
  {"LambdaLR", {f = none}, {"f"}, function(t, o) return o.f(t) end},
  -- the optimizer's rate is the peak: up to it from 1/start of it, then down to 1/final of
  -- where it started, by cosines
  {"OneCycleLR", {total = none, up = 0.3, start = 25, final = 1e4}, {"total"}, function(t, o)
    local turn, first = o.up * o.total, 1 / o.start
    if t < turn then return 1 + (first - 1) * cosine(t / turn) end
    local last = first / o.final
    return last + (1 - last) * cosine((t - turn) / math.max(o.total - turn, 1))
  end},
}

local classes = {Schedule = Schedule}
for _, row in ipairs(rows) do
  local cls = class(row[1], Schedule)
  cls.defaults, cls.needed, cls.factor = row[2], row[3], row[4]
  classes[row[1]] = cls
end
return classes
