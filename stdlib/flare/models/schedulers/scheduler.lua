--- What schedulers share: their configuration, the times of the steps, sampling, saving.
--
-- A scheduler knows how much noise a sample has at a time, and how a model's output leads from one
-- time to the next. Times are those that the model was trained with: they count from 0, so they
-- are no positions. Coefficients of all steps are computed at once, on the CPU and in f32, as
-- published models were trained with; a step takes them as numbers.
local class = require "flare.class"
local configs = require "flare.models.config"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Scheduler = class("Scheduler")
Scheduler.library = "diffusers"
Scheduler.__keeps = true

--- models.Scheduler(config): an object of a class derived from it.
function Scheduler:init(given)
  self.config = configs.make(getmetatable(self), given)
  options.count(getmetatable(self).__name, "num_train_timesteps", self.config.num_train_timesteps)
  local _ <close> = core.no_grad()
  self:prepare(self.config)
end

-- The nearest integer; of two, the even one, as NumPy rounds.
local function round(x)
  local n = math.floor(x + 0.5)
  return n - x == 0.5 and n % 2 == 1 and n - 1 or n
end

-- Times of n steps, the latest first, by the configuration's timestep_spacing.
local spacings = {}

function spacings.linspace(total, n, k, exact)
  local t = n == 1 and 0 or (total - 1) * ((n - 1 - k) / (n - 1))
  return exact and t or round(t)
end

function spacings.leading(total, n, k, _, offset) return (n - 1 - k) * (total // n) + offset end

function spacings.trailing(total, n, k) return round(total - k * (total / n)) - 1 end

-- The times of n steps by the configuration's timestep_spacing, the latest first. With `exact`,
-- times of "linspace" are not rounded.
function Scheduler:spaced(n, exact)
  local c, where = self.config, getmetatable(self).__name .. ":set_timesteps"
  if options.count(where, "the number of steps", n) > c.num_train_timesteps then
    fail("%s: %d steps, num_train_timesteps is %d", where, n, c.num_train_timesteps)
  end
  local spacing, out = self:choice("timestep_spacing", spacings), {}
  for k = 0, n - 1 do
    out[k + 1] = spacing(c.num_train_timesteps, n, k, exact, c.steps_offset)
  end
  return out
end

-- The entry of a table that a field of the configuration names.
function Scheduler:choice(field, entries)
  local name = self.config[field]
  local entry = entries[name]
  if entry == nil then
    fail("%s: unknown %s '%s'%s", getmetatable(self).__name, field, tostring(name),
         options.hint(tostring(name), entries))
  end
  return entry
end

-- Notes the times of the steps. A step is looked for from where the last one ended.
function Scheduler:begin(times)
  self.timesteps, self.places, self.next = times, {}, 1
  for k = #times, 1, -1 do self.places[times[k]] = k end
end

-- The number of the step at a time: a number, or a tensor with one element.
function Scheduler:place(t)
  if core.is_tensor(t) then t = t:item() end
  if self.timesteps[self.next] == t then return self.next end
  local k = self.places[t]
  if k then return k end
  local near, least = nil, math.huge
  for _, other in ipairs(self.timesteps) do
    local off = type(t) == "number" and math.abs(other - t) or math.huge
    if off < least then near, least = other, off end
  end
  fail("%s: %s is none of its timesteps%s", getmetatable(self).__name,
       type(t) == "number" and ("%g"):format(t) or options.kind(t),
       near and (" (the nearest is %g)"):format(near) or "")
end

--- What the model is called with at a time: the sample, scaled as it was trained.
function Scheduler:scale_model_input(x) return x end

--- Samples: from noise through all steps.
-- @param model a function or module of a sample and a time, as a number
-- @param noise (batch, channels, height, width), normal, of deviation 1
-- @param opts {steps = 50, mu =, generator =, on_step = a function of the step's number, its time,
--   its sample and the whole sample that it predicts; false from it ends the sampling; and the
--   options of `step`}
-- @return the sample
function Scheduler:sample(model, noise, opts)
  options.callable("sample", model)
  options.tensor("sample", "noise", noise)
  local o, rest = {steps = 50}, {}
  for name, value in pairs(opts or {}) do
    local mine = name == "steps" or name == "on_step" or name == "mu"
    (mine and o or rest)[name] = value
  end
  local _ <close> = core.no_grad()
  self:set_timesteps(o.steps, o.mu and {mu = o.mu})
  local x = noise * self.init_noise_sigma
  for k, t in ipairs(self.timesteps) do
    local y, whole = self:step(model(self:scale_model_input(x, t), t), t, x, rest)
    x = y
    if o.on_step and o.on_step(k, t, x, whole) == false then break end
  end
  return x
end

--- Writes scheduler_config.json to a folder, which is made if it does not exist.
-- @return true, or nil and a message
function Scheduler:save(folder)
  options.text("save", "the folder", folder)
  local ok, message = true, nil
  if not core.file.exists(folder) then ok, message = core.file.mkdir(folder) end
  if not ok then return nil, message end
  return core.file.write_atomic(folder .. "/scheduler_config.json",
    core.json.encode(configs.published(getmetatable(self), self.config)))
end

return Scheduler
