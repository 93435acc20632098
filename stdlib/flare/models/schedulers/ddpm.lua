--- The scheduler of denoising diffusion probabilistic models (arXiv:2006.11239): each step adds
-- noise.
local flare = require "flare"
local class = require "flare.class"
local common = require "flare.models.schedulers.common"
local options = require "flare.options"
local Discrete = require "flare.models.schedulers.discrete"

local defaults = common.with(Discrete.defaults, {variance_type = "fixed_small", clip_sample = true,
  clip_sample_range = 1, thresholding = false, dynamic_thresholding_ratio = 0.995,
  sample_max_value = 1, timestep_spacing = "leading"})

local DDPM = class("DDPMScheduler", Discrete)

-- Notes the times and the coefficients of the steps.
function DDPM:plan(times)
  local after = table.move(times, 2, #times, 1, {})
  after[#times] = -1
  local a, later = self:levels(times), self:levels(after, 1)
  local b, b_later, ratio = 1 - a, 1 - later, a / later
  local beta = 1 - ratio
  local small = (b_later / b * beta):clamp(1e-20)
  self.kept, self.added = a:sqrt():totable(), b:sqrt():totable()
  self.of_whole = (later:sqrt() * beta / b):totable()
  self.of_sample = (ratio:sqrt() * b_later / b):totable()
  self.small, self.large = small:totable(), beta:totable()
  self:begin(times)
end

-- The deviation of a step's noise, of its least and largest variance and what the model said.
local deviations = {}

function deviations.fixed_small(small) return small ^ 0.5 end

function deviations.fixed_small_log(small) return small ^ 0.5 end

function deviations.fixed_large(_, large) return large ^ 0.5 end

function deviations.learned(_, _, said) return said:sqrt() end

function deviations.learned_range(small, large, said)
  local part = (said + 1) * 0.5
  return ((part * math.log(large) + (1 - part) * math.log(small)) * 0.5):exp()
end

--- The sample of the next time.
-- @param y what the model gave for the sample x at time t; with a learned variance, twice the
--   channels
-- @param t one of `timesteps`
-- @param opts {generator =, noise = instead of noise that is drawn}
-- @return the next sample, and the whole one that the output predicts
function DDPM:step(y, t, x, opts)
  local o = options.check("step", opts, {generator = options.none, noise = options.none})
  options.tensors("step", "the model's output", y, "the sample", x)
  local k, said = self:place(t), nil
  local deviation = self:choice("variance_type", deviations)
  if self.config.variance_type:find "^learned" then
    local n = x:size(2)
    if y:size(2) ~= 2 * n then
      flare.core.raise(("step: the variance is learned, so the model's output has %d channels; it "
        .. "is %s"):format(2 * n, tostring(y.shape)))
    end
    y, said = y:narrow(2, 1, n), y:narrow(2, n + 1, n)
  end
  local whole = self:predict(y, x, self.kept[k], self.added[k])
  local out = self.of_whole[k] * whole + self.of_sample[k] * x
  if self.timesteps[k] > 0 then
    out = out + deviation(self.small[k], self.large[k], said) * common.draw(y, o)
  end
  self.next = k + 1
  return out, whole
end

return {DDPMScheduler = common.publish(DDPM, defaults)}
