--- Euler's method for the differential equation of diffusion (arXiv:2206.00364): a sample at time t
-- is x + sigma noise.
local class = require "flare.class"
local common = require "flare.models.schedulers.common"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Discrete = require "flare.models.schedulers.discrete"
local other_sigmas = require "flare.models.schedulers.sigmas"

local null = core.json.null
local defaults = common.with(Discrete.defaults, {interpolation_type = "linear",
  use_karras_sigmas = false, use_exponential_sigmas = false, use_beta_sigmas = false,
  sigma_min = null, sigma_max = null, timestep_spacing = "linspace", timestep_type = "discrete",
  final_sigmas_type = "zero"})

local Euler = class("EulerDiscreteScheduler", Discrete)
local NAME = Euler.__name

local function singles(list)
  local out = {}
  for k, x in ipairs(list) do out[k] = common.single(x) end
  return out
end

-- The value of a table, which counts from time 0, at a time between two.
local function interpolate(list, t)
  local k = math.min(math.floor(t), #list - 2)
  return list[k + 1] + (t - k) * (list[k + 2] - list[k + 1])
end

-- The time of a level, by the logarithms of all levels.
local function time_of(sigma, logs)
  local x, k = math.log(math.max(sigma, 1e-10)), 0
  while k < #logs - 2 and logs[k + 2] <= x do k = k + 1 end
  local w = (logs[k + 1] - x) / (logs[k + 1] - logs[k + 2])
  return k + math.min(math.max(w, 0), 1)
end

-- The levels of steps, by the configuration's interpolation_type.
local interpolations = {}

function interpolations.linear(all, times)
  local out = {}
  for k, t in ipairs(times) do out[k] = interpolate(all, t) end
  return out
end

function interpolations.log_linear(all, times)
  local n = #times
  return core.linspace(math.log(all[#all]), math.log(all[1]), n + 1, {device = "cpu"}):exp()
    :totable()
end

local lasts = {
  zero = function() return 0 end,
  sigma_min = function(all) return all[1] end,
}

local types = {discrete = false, continuous = true}

-- The levels of all times, the lowest first.
local function all_sigmas(self)
  local a = self.alphas_cumprod
  -- the last level must be finite
  if self.config.rescale_betas_zero_snr then a:narrow(1, #a, 1):fill_(2 ^ -24) end
  return ((1 - a) / a):sqrt():totable()
end

-- Notes the times and the levels of the steps.
function Euler:plan(times)
  self.all_sigmas = self.all_sigmas or all_sigmas(self)
  local c, all = self.config, self.all_sigmas
  local list = self:choice("interpolation_type", interpolations)(all, times)
  local others = other_sigmas(c, list, #times)
  if others then
    local logs = {}
    for k, sigma in ipairs(all) do logs[k] = common.single(math.log(sigma)) end
    times, list = {}, others
    for k, sigma in ipairs(list) do times[k] = time_of(sigma, logs) end
  end
  list[#list + 1] = self:choice("final_sigmas_type", lasts)(all)
  self.sigmas = singles(list)
  if self:choice("timestep_type", types) and c.prediction_type == "v_prediction" then
    times = {}
    for k = 1, #self.sigmas - 1 do times[k] = 0.25 * math.log(self.sigmas[k]) end
  end
  local most = math.max(table.unpack(self.sigmas))
  self.init_noise_sigma = c.timestep_spacing == "leading" and (most * most + 1) ^ 0.5 or most
  self:begin(singles(times))
end

--- Chooses the times of sampling, which `timesteps` then lists.
-- @param n how many steps; or the times themselves, in descending order, without use_karras_sigmas
--   or use_exponential_sigmas
function Euler:set_timesteps(n)
  local _ <close> = core.no_grad()
  if type(n) ~= "table" then return self:plan(self:spaced(n, true)) end
  local c = self.config
  if c.use_karras_sigmas or c.use_exponential_sigmas then
    fail("%s:set_timesteps: the configuration chooses the times; give the number of steps", NAME)
  end
  for k, t in ipairs(n) do
    local most = n[k - 1] or c.num_train_timesteps - 1
    if type(t) ~= "number" or t < 0 or t > most or t == n[k - 1] then
      fail("%s:set_timesteps: times are numbers below num_train_timesteps in descending order, got "
           .. "%s", NAME, tostring(t))
    end
  end
  self:plan(singles(n))
end

-- The levels of times, a number or a tensor (batch), as a column for samples like x.
local function levels(self, times, x)
  local list = core.is_tensor(times) and times:flatten():totable() or {times}
  for k, t in ipairs(list) do list[k] = self.sigmas[self:place(t)] end
  return common.column(core.tensor(list, {dtype = x.dtype, device = x.device}), x)
end

--- What the model is called with: samples, scaled to a variance of 1.
-- @param t one of `timesteps`, or a tensor (batch) of them
function Euler:scale_model_input(x, t)
  if core.is_tensor(t) and t:numel() > 1 then
    return x / (levels(self, t, x):square() + 1):sqrt()
  end
  local sigma = self.sigmas[self:place(t)]
  return x / (sigma * sigma + 1) ^ 0.5
end

--- Samples with the noise of their times.
-- @param times a tensor (batch) or a number, of `timesteps`
function Euler:add_noise(x, noise, times) return x + noise * levels(self, times, x) end

-- The whole sample of a model's output.
local parts = {
  epsilon = function(y, x, _, level) return x - level * y end,
  sample = function(y) return y end,
  v_prediction = function(y, x, sigma)
    local s = sigma * sigma + 1
    return y * (-sigma / s ^ 0.5) + x / s
  end,
}

--- The sample of the next time.
-- @param y what the model gave for scale_model_input(x, t)
-- @param t one of `timesteps`
-- @param opts {churn = 0, how much noise steps add; churn_min = 0, churn_max =, levels within which
--   they do; noise_scale = 1; generator =, noise = instead of noise that is drawn}
-- @return the next sample, and the whole one that the output predicts
function Euler:step(y, t, x, opts)
  local o = options.check("step", opts, {churn = 0, churn_min = 0, churn_max = math.huge,
    noise_scale = 1, generator = options.none, noise = options.none})
  options.tensors("step", "the model's output", y, "the sample", x)
  local k, dtype = self:place(t), y.dtype
  local sigma = self.sigmas[k]
  local within = sigma >= o.churn_min and sigma <= o.churn_max
  local gamma = within and math.min(o.churn / (#self.sigmas - 1), 2 ^ 0.5 - 1) or 0
  local level = sigma * (gamma + 1)
  x = x:to "f32"
  if gamma > 0 then
    x = x + common.draw(y, o) * (o.noise_scale * (level * level - sigma * sigma) ^ 0.5)
  end
  local whole = self:choice("prediction_type", parts)(y, x, sigma, level)
  local out = x + (x - whole) / level * (self.sigmas[k + 1] - level)
  self.next = k + 1
  return out:to(dtype), whole
end

return {EulerDiscreteScheduler = common.publish(Euler, defaults)}
