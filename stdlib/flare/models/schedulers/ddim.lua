--- The scheduler of denoising diffusion implicit models (arXiv:2010.02502): fewer steps, without
-- noise unless `eta` says otherwise.
local class = require "flare.class"
local common = require "flare.models.schedulers.common"
local options = require "flare.options"
local Discrete = require "flare.models.schedulers.discrete"

local defaults = common.with(Discrete.defaults, {clip_sample = true, clip_sample_range = 1,
  set_alpha_to_one = true, thresholding = false, dynamic_thresholding_ratio = 0.995,
  sample_max_value = 1, timestep_spacing = "leading"})

local DDIM = class("DDIMScheduler", Discrete)

-- Notes the times and the coefficients of n steps. A step leads to the time that is a part of all
-- times earlier, which may be none of `times`.
function DDIM:plan(times, n)
  local c, after = self.config, {}
  for k, t in ipairs(times) do after[k] = t - c.num_train_timesteps // (n or #times) end
  local last = c.set_alpha_to_one and 1 or self.alphas_cumprod[1]:item()
  local a, later = self:levels(times), self:levels(after, last)
  local variance = (1 - later) / (1 - a) * (1 - a / later)
  self.kept, self.added = a:sqrt():totable(), (1 - a):sqrt():totable()
  self.later, self.later_root = later:totable(), later:sqrt():totable()
  self.deviation = variance:sqrt():totable()
  self:begin(times)
end

--- The sample of the next time.
-- @param y what the model gave for the sample x at time t
-- @param t one of `timesteps`
-- @param opts {eta = 0, how much noise is added, 1 as in DDPM; clipped = false, whether the noise
--   is that of the clipped sample; generator =, noise = instead of noise that is drawn}
-- @return the next sample, and the whole one that the output predicts
function DDIM:step(y, t, x, opts)
  local o = options.check("step", opts, {eta = 0, clipped = false, generator = options.none,
                                         noise = options.none})
  options.tensors("step", "the model's output", y, "the sample", x)
  local k = self:place(t)
  local kept, added = self.kept[k], self.added[k]
  local whole, noise = self:predict(y, x, kept, added)
  if o.clipped then noise = (x - kept * whole) / added end
  local deviation = o.eta * self.deviation[k]
  local out = self.later_root[k] * whole
    + math.max(1 - self.later[k] - deviation * deviation, 0) ^ 0.5 * noise
  if o.eta > 0 then out = out + deviation * common.draw(y, o) end
  self.next = k + 1
  return out, whole
end

return {DDIMScheduler = common.publish(DDIM, defaults)}
