--- Learning rate schedules: factors on each group's initial rate.
--
-- A schedule sets the rate of the first step when it is made; `schedule:step()` after each
-- optimizer step sets the next. A row below has: the name; the options and the factor as help shows
-- them; the defaults; the required options; the factor at step t (0, 1, ...) for the i-th group
-- and, for schedules that cycle momentum, the position between lowest and highest rate, from 0 to
-- 1; a function that checks the options.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local Schedule = class("Schedule")

-- Options without a default that must be numbers.
local numbers = {"every", "total", "period", "gamma", "warmup", "floor"}

--- Makes a schedule: factors on the learning rate that each group has now.
function Schedule:init(optimizer, opts)
  local where = "optim." .. getmetatable(self).__name
  if type(optimizer) ~= "table" or type(optimizer.groups) ~= "table" then
    fail("%s: an optimizer is expected, got %s", where, options.kind(optimizer))
  end
  self.optimizer = optimizer
  local o = options.check(where, opts, self.defaults)
  for _, key in ipairs(self.needed) do
    if o[key] == nil then fail("%s: the option %s is needed", where, key) end
  end
  for _, key in ipairs(numbers) do
    if o[key] ~= nil and type(o[key]) ~= "number" then
      fail("%s: %s must be a number, got %s", where, key, options.kind(o[key]))
    end
  end
  if self.check then self.check(where, o, optimizer) end
  self.options, self.t = o, 0
  self:set()
end

function Schedule:set()
  local momentum = self.options.momentum
  for i, group in ipairs(self.optimizer.groups) do
    local factor, height = self.factor(self.t, self.options, i)
    group.lr = group.initial_lr * factor
    if momentum then
      local now = momentum[2] + (momentum[1] - momentum[2]) * height
      if group.betas then group.betas = {now, group.betas[2]} else group.momentum = now end
    end
  end
end

--- Sets the rate of the next step.
function Schedule:step()
  self.t = self.t + 1
  self:set()
end

--- The current rate of each group: one number for each.
function Schedule:lr()
  local list = {}
  for i, group in ipairs(self.optimizer.groups) do list[i] = group.lr end
  return table.unpack(list)
end

function Schedule:state_dict()
  return {t = self.t}
end

function Schedule:load_state_dict(saved, message)
  options.state(getmetatable(self).__name, saved, message)
  if math.type(saved.t) ~= "integer" then
    fail("%s: this is not a schedule's state", getmetatable(self).__name)
  end
  self.t = saved.t
  self:set()
  return self
end

function Schedule:__tostring()
  local rates = {self:lr()}
  for i, rate in ipairs(rates) do rates[i] = ("%g"):format(rate) end
  return options.describe(getmetatable(self).__name, self.options,
    ("step %d, lr %s"):format(self.t, table.concat(rates, " ")))
end

local function cosine(q)
  return 0.5 * (1 + math.cos(math.pi * math.min(math.max(q, 0), 1)))
end

-- The number of milestones in a list that are at or before t.
local function passed(t, times)
  local n = 0
  for _, at in ipairs(times) do n = n + (t >= at and 1 or 0) end
  return n
end

-- The fraction of the current period that has passed at step t; each period is `growth` times as
-- long as the one before.
local function phase(t, period, growth)
  while t >= period do t, period = t - period, period * growth end
  return t / period
end

-- The range of the momentum.
local function check_momentum(where, o, optimizer)
  local m = o.momentum
  if m == nil then return end
  if type(m) ~= "table" or type(m[1]) ~= "number" or type(m[2]) ~= "number" then
    fail("%s: momentum must be two numbers, like {0.85, 0.95}", where)
  end
  for _, group in ipairs(optimizer.groups) do
    if not group.betas and (group.momentum or 0) == 0 then
      fail("%s: the optimizer has no momentum", where)
    end
  end
end

local shapes = {triangular = true, triangular2 = true, exp_range = true}

local function check_cycle(where, o, optimizer)
  o.down = o.down or o.up
  options.count(where, "up", o.up)
  options.count(where, "down", o.down)
  if not shapes[o.mode] then
    fail("%s: unknown mode '%s'%s", where, o.mode, options.hint(o.mode, shapes))
  end
  check_momentum(where, o, optimizer)
end

-- A function, or one for each group.
local function check_functions(where, o, optimizer)
  local list, n = type(o.f) == "table" and o.f or {o.f}, #optimizer.groups
  for i, f in ipairs(list) do
    if type(f) ~= "function" then
      fail("%s: f must be a function%s, got %s", where, list == o.f and " at " .. i or "",
        options.kind(f))
    end
  end
  if list == o.f and #list ~= n then
    fail("%s: %d functions for %d groups of the optimizer", where, #list, n)
  end
end

-- Schedules that are parts of one.
local function check_parts(where, o, optimizer)
  if type(o.schedules) ~= "table" or #o.schedules == 0 then
    fail("%s: schedules must be a list of them", where)
  end
  for i, schedule in ipairs(o.schedules) do
    if not class.is(schedule, Schedule) or schedule.optimizer ~= optimizer then
      fail("%s: entry %d of schedules is not a schedule of this optimizer", where, i)
    end
  end
end

local function check_sequence(where, o, optimizer)
  check_parts(where, o, optimizer)
  if type(o.at) ~= "table" or #o.at ~= #o.schedules - 1 then
    fail("%s: %d schedules need %d steps in at = {...}, at which the next begins", where,
         #o.schedules, #o.schedules - 1)
  end
end

local none = options.none
local rows = {
  {"StepLR", "{every =, gamma = 0.1}", "it is multiplied by gamma every `every` steps",
    {every = none, gamma = 0.1}, {"every"}, function(t, o) return o.gamma ^ (t // o.every) end},
  {"MultiStepLR", "{at = {30, 80}, gamma = 0.1}", "it is multiplied by gamma at each of the steps",
    {at = none, gamma = 0.1}, {"at"}, function(t, o) return o.gamma ^ passed(t, o.at) end},
  {"CosineLR", "{total =, floor = 0}", "half a cosine wave from 1 to floor over `total` steps",
    {total = none, floor = 0}, {"total"}, function(t, o)
      return o.floor + (1 - o.floor) * cosine(t / o.total)
    end},
  {"CosineRestartsLR", "{period =, growth = 1, floor = 0}",
    "half a cosine wave from 1 to floor over `period` steps, then again from 1 (warm restarts, "
      .. "arXiv:1608.03983); each period is `growth` times as long as the one before",
    {period = none, growth = 1, floor = 0}, {"period"}, function(t, o)
      return o.floor + (1 - o.floor) * cosine(phase(t, o.period, o.growth))
    end},
  {"WarmupCosineLR", "{warmup =, total =, floor = 0}",
    "it rises linearly to 1 over `warmup` steps, then falls by half a cosine wave to floor, which "
      .. "it reaches at step `total`",
    {warmup = none, total = none, floor = 0}, {"warmup", "total"}, function(t, o)
      if t < o.warmup then return (t + 1) / o.warmup end
      return o.floor + (1 - o.floor) * cosine((t - o.warmup) / math.max(o.total - o.warmup, 1))
    end},
  {"LinearLR", "{total =, from = 1, to = 0}", "linear over `total` steps, then constant",
    {total = none, from = 1, to = 0}, {"total"}, function(t, o)
      return o.from + (o.to - o.from) * math.min(t / o.total, 1)
    end},
  {"PolynomialLR", "{total =, power = 1}", "(1 - t / total)^power",
    {total = none, power = 1}, {"total"}, function(t, o)
      return (1 - math.min(t / o.total, 1)) ^ o.power
    end},
  {"ExponentialLR", "{gamma =}", "gamma^t",
    {gamma = none}, {"gamma"}, function(t, o) return o.gamma ^ t end},
  {"LambdaLR", "{f = function(t) ... end}",
    "f(t) at step t = 0, 1, ... f may be a list with a function for each group of the optimizer",
    {f = none}, {"f"}, function(t, o, i)
      return type(o.f) == "table" and o.f[i](t) or o.f(t)
    end, check_functions},
  {"ConstantLR", "{total = 5, factor = 1 / 3}", "`factor` for `total` steps, 1 from then on",
    {total = 5, factor = 1 / 3}, {}, function(t, o) return t < o.total and o.factor or 1 end},
  {"OneCycleLR", "{total =, up = 0.3, start = 25, final = 1e4, momentum =}",
    "it rises from 1/start to 1 over the fraction `up` of all steps, then falls to 1/(start * "
      .. "final) at the last step, both by half a cosine wave (arXiv:1708.07120). With momentum = "
      .. "{0.85, 0.95} the momentum falls from 0.95 to 0.85 meanwhile and rises again",
    {total = none, up = 0.3, start = 25, final = 1e4, momentum = none}, {"total"}, function(t, o)
      local turn, first = o.up * o.total - 1, 1 / o.start
      local height, low
      if t < turn then
        height, low = 1 - cosine(t / turn), first
      else
        height, low = cosine((t - turn) / math.max(o.total - 1 - turn, 1)), first / o.final
      end
      return low + (1 - low) * height, height
    end, check_momentum},
  {"CyclicLR", "{floor =, up = 2000, down = up, mode = \"triangular\", gamma = 1, momentum =}",
    "it rises linearly from floor to 1 in `up` steps, falls back in `down` steps, and so on "
      .. "(arXiv:1506.01186). mode = \"triangular2\" halves the height after each cycle, "
      .. "\"exp_range\" multiplies it by gamma every step. With momentum = {0.8, 0.9} the "
      .. "momentum cycles in the opposite direction",
    {floor = none, up = 2000, down = none, mode = "triangular", gamma = 1, momentum = none},
    {"floor"}, function(t, o)
      local whole = o.up + o.down
      local at = t % whole
      local height = at <= o.up and at / o.up or (whole - at) / o.down
      if o.mode == "triangular2" then height = height / 2 ^ (t // whole) end
      if o.mode == "exp_range" then height = height * o.gamma ^ t end
      return o.floor + (1 - o.floor) * height, height
    end, check_cycle},
  {"SequentialLR", "{schedules = {a, b, ...}, at = {step, ...}}",
    "that of the first schedule before the first of the steps `at`, then that of the second, which "
      .. "starts at its step 0 there, and so on",
    {schedules = none, at = none}, {"schedules", "at"}, function(t, o, i)
      local k = passed(t, o.at)
      local schedule = o.schedules[k + 1]
      return schedule.factor(t - (o.at[k] or 0), schedule.options, i)
    end, check_sequence},
  {"ChainedLR", "{schedules = {a, b, ...}}", "the product of the factors of all schedules",
    {schedules = none}, {"schedules"}, function(t, o, i)
      local factor = 1
      for _, schedule in ipairs(o.schedules) do
        factor = factor * schedule.factor(t, schedule.options, i)
      end
      return factor
    end, check_parts},
}

local classes = {Schedule = Schedule}
for _, row in ipairs(rows) do
  local cls = class(row[1], Schedule)
  cls.about = {("optim.%s(optimizer, %s)"):format(row[1], row[2]),
               ("The factor: %s."):format(row[3])}
  cls.defaults, cls.needed, cls.factor = row[4], row[5], row[6]
  cls.check = row[7]
  classes[row[1]] = cls
end
return classes
