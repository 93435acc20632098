--- Euler's method for flow matching (arXiv:2210.02747, arXiv:2403.03206): a sample at time t is
-- (1 - sigma) x + sigma noise, and models predict the velocity noise - x.
local class = require "flare.class"
local common = require "flare.models.schedulers.common"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Scheduler = require "flare.models.schedulers.scheduler"
local other_sigmas = require "flare.models.schedulers.sigmas"

local null = core.json.null
local defaults = {num_train_timesteps = 1000, shift = 1, use_dynamic_shifting = false,
  base_shift = 0.5, max_shift = 1.15, base_image_seq_len = 256, max_image_seq_len = 4096,
  invert_sigmas = false, shift_terminal = null, use_karras_sigmas = false,
  use_exponential_sigmas = false, use_beta_sigmas = false, time_shift_type = "exponential",
  stochastic_sampling = false}

local Flow = class("FlowMatchEulerDiscreteScheduler", Scheduler)
local NAME = Flow.__name

-- More of the steps at high levels, for larger images.
local function shifted(sigma, shift) return shift * sigma / (1 + (shift - 1) * sigma) end

local shifts = {
  exponential = function(mu, sigma) return shifted(sigma, math.exp(mu)) end,
  linear = function(mu, sigma) return shifted(sigma, mu) end,
}

-- Notes levels and the times that belong to them.
local function plan(self, list)
  local c, sigmas, times = self.config, {}, {}
  for k, sigma in ipairs(list) do
    sigmas[k] = common.single(c.invert_sigmas and 1 - sigma or sigma)
    times[k] = common.single(sigmas[k] * c.num_train_timesteps)
  end
  sigmas[#sigmas + 1] = c.invert_sigmas and 1 or 0
  self.sigmas = sigmas
  self:begin(times)
end

function Flow:prepare(c)
  self:choice("time_shift_type", shifts)
  self.init_noise_sigma = 1
  local list, n = {}, c.num_train_timesteps
  for k = 1, n do
    local sigma = (n + 1 - k) / n
    list[k] = common.single(c.use_dynamic_shifting and sigma or shifted(sigma, c.shift))
  end
  self.most, self.least = list[1], list[n]
  plan(self, list)
end

--- Chooses the times of sampling, which `timesteps` then lists.
-- @param n how many steps; or a list of levels between 1 and 0 in descending order, before they are
--   shifted
-- @param opts {mu =, the shift, where the configuration has use_dynamic_shifting; see `shift_of`}
function Flow:set_timesteps(n, opts)
  local c, list = self.config, {}
  local o = options.check(NAME .. ":set_timesteps", opts, {mu = options.none})
  if type(n) == "table" then
    table.move(n, 1, #n, 1, list)
  else
    options.count(NAME .. ":set_timesteps", "the number of steps", n)
    local step = n > 1 and (self.least - self.most) / (n - 1) or 0
    for k = 0, n - 1 do list[k + 1] = self.most + step * k end
  end
  if c.use_dynamic_shifting and not o.mu then
    fail("%s:set_timesteps: the configuration has use_dynamic_shifting, so the option mu is "
         .. "needed; shift_of(tokens) computes it", NAME)
  end
  local shift = self:choice("time_shift_type", shifts)
  for k, sigma in ipairs(list) do
    list[k] = c.use_dynamic_shifting and shift(o.mu, sigma) or shifted(sigma, c.shift)
  end
  if c.shift_terminal and c.shift_terminal ~= 0 then
    local scale = (1 - list[#list]) / (1 - c.shift_terminal)
    for k, sigma in ipairs(list) do list[k] = 1 - (1 - sigma) / scale end
  end
  plan(self, other_sigmas(c, list, #list) or list)
end

--- The option mu for images of so many tokens.
function Flow:shift_of(tokens)
  local c = self.config
  local slope = (c.max_shift - c.base_shift) / (c.max_image_seq_len - c.base_image_seq_len)
  return c.base_shift + slope * (tokens - c.base_image_seq_len)
end

--- Samples with the noise of their times, as models are trained with.
-- @param times a tensor (batch) or a number; between 0 and num_train_timesteps, not only those of
--   `timesteps`
function Flow:add_noise(x, noise, times)
  if type(times) == "number" then times = core.tensor({times}, {device = x.device}) end
  options.tensor(NAME, "times", times)
  local sigma = times:to(x.device):to "f32" / self.config.num_train_timesteps
  sigma = common.column(sigma:to(x.dtype), x)
  return sigma * noise + (1 - sigma) * x
end

--- Times (batch) for training: the middle ones are likelier, by the logistic function of normal
-- numbers (arXiv:2403.03206).
-- @param opts {device =, generator =}
function Flow:random_times(batch, opts)
  local o = options.check("random_times", opts, {device = options.none, generator = options.none})
  return core.randn({batch}, o):sigmoid() * self.config.num_train_timesteps
end

--- What a model should predict of add_noise(x, noise, times): the velocity.
function Flow:target(x, noise) return noise - x end

--- The sample of the next time.
-- @param y what the model gave for the sample x at time t
-- @param t one of `timesteps`
-- @param opts {generator =, noise = instead of noise that is drawn}, with stochastic_sampling
-- @return the next sample, and the whole one that the output predicts
function Flow:step(y, t, x, opts)
  local o = options.check("step", opts, {generator = options.none, noise = options.none})
  options.tensors("step", "the model's output", y, "the sample", x)
  local k, dtype = self:place(t), y.dtype
  local sigma, after = self.sigmas[k], self.sigmas[k + 1]
  x = x:to "f32"
  local whole = x - sigma * y
  local out = x + common.single(after - sigma) * y
  if self.config.stochastic_sampling then
    out = (1 - after) * whole + after * common.draw(x, o)
  end
  self.next = k + 1
  return out:to(dtype), whole
end

return {FlowMatchEulerDiscreteScheduler = common.publish(Flow, defaults)}
