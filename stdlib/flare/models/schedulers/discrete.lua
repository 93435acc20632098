--- Schedulers of models that were trained with noise of a thousand levels or so: a sample at time t
-- is sqrt(a[t]) x + sqrt(1 - a[t]) noise, where a is the cumulative product of 1 - beta.
local class = require "flare.class"
local common = require "flare.models.schedulers.common"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Scheduler = require "flare.models.schedulers.scheduler"

local null = core.json.null
local Discrete = class("Discrete", Scheduler)

-- The fields of configurations that these schedulers have in common.
Discrete.defaults = {num_train_timesteps = 1000, beta_start = 0.0001, beta_end = 0.02,
  beta_schedule = "linear", trained_betas = null, prediction_type = "epsilon", steps_offset = 0,
  rescale_betas_zero_snr = false}

-- n numbers in equal steps of f32, from both ends to the middle. The numbers are those of
-- torch.linspace, which published models were trained with: 1 - beta of small betas would turn the
-- last bit of others into differences of 1e-4.
local function linspace(from, to, n)
  if n == 1 then return core.tensor({from}, {device = "cpu"}) end
  local single = common.single
  from, to = single(from), single(to)
  local step, list = single(single(to - from) / (n - 1)), {}
  for k = 0, n - 1 do list[k + 1] = k < n // 2 and from + step * k or to - step * (n - 1 - k) end
  return core.tensor(list, {device = "cpu"})
end

local betas = {}

function betas.linear(c) return linspace(c.beta_start, c.beta_end, c.num_train_timesteps) end

function betas.scaled_linear(c)
  return linspace(c.beta_start ^ 0.5, c.beta_end ^ 0.5, c.num_train_timesteps):square()
end

-- arXiv:2102.09672: a falls like the square of a cosine.
function betas.squaredcos_cap_v2(c)
  local n, list = c.num_train_timesteps, {}
  local function level(t) return math.cos((t + 0.008) / 1.008 * math.pi / 2) ^ 2 end
  for k = 1, n do list[k] = math.min(1 - level(k / n) / level((k - 1) / n), 0.999) end
  return core.tensor(list, {device = "cpu"})
end

function betas.sigmoid(c)
  return linspace(-6, 6, c.num_train_timesteps):sigmoid() * (c.beta_end - c.beta_start)
    + c.beta_start
end

-- Betas with which the last sample is noise alone (arXiv:2305.08891).
local function until_noise(b)
  local n, root = #b, (1 - b):cumprod(1):sqrt()
  local first, last = root:narrow(1, 1, 1), root:narrow(1, n, 1)
  local a = ((root - last) * (first / (first - last))):square()
  local ratio = a:narrow(1, 2, n - 1) / a:narrow(1, 1, n - 1)
  return 1 - core.cat({a:narrow(1, 1, 1), ratio}, 1)
end

function Discrete:prepare(c)
  local b
  if c.trained_betas then
    b = core.tensor(c.trained_betas, {device = "cpu", dtype = "f32"})
    if b:dim() ~= 1 or #b ~= c.num_train_timesteps then
      fail("%s: trained_betas are %s, num_train_timesteps is %d", getmetatable(self).__name,
           tostring(b.shape), c.num_train_timesteps)
    end
  else
    b = self:choice("beta_schedule", betas)(c)
  end
  if c.rescale_betas_zero_snr then b = until_noise(b) end
  self.alphas_cumprod = (1 - b):cumprod(1)
  self.init_noise_sigma, self.copies = 1, {}
  local all, n = {}, c.num_train_timesteps
  for k = 1, n do all[k] = n - k end
  self:plan(all)
end

--- Chooses the times of sampling, which `timesteps` then lists.
-- @param n how many steps; or the times themselves, in descending order
function Discrete:set_timesteps(n)
  local _ <close> = core.no_grad()
  if type(n) ~= "table" then return self:plan(self:spaced(n), n) end
  for k, t in ipairs(n) do
    if math.type(t) ~= "integer" or t < 0 or t >= (n[k - 1] or self.config.num_train_timesteps) then
      fail("%s:set_timesteps: times are integers below num_train_timesteps in descending order, "
           .. "got %s", getmetatable(self).__name, tostring(t))
    end
  end
  self:plan(table.move(n, 1, #n, 1, {}), #n)
end

-- a at times, and `last` at times below 0, on the CPU.
function Discrete:levels(times, last)
  local index = core.tensor(times, {dtype = "i64", device = "cpu"})
  local a = self.alphas_cumprod:index_select(1, index:clamp(0) + 1)
  return last and core.where(index:ge(0), a, core.full_like(a, last)) or a
end

-- sqrt(a) and sqrt(1 - a) at times, on a sample's device.
local function roots(self, x, times)
  if type(times) == "number" then times = core.tensor({times}, {dtype = "i64"}) end
  options.tensor(getmetatable(self).__name, "times", times)
  local a = self.copies[x.device]
  if not a then
    a = self.alphas_cumprod:to(x.device)
    self.copies[x.device] = a
  end
  a = common.column(a:index_select(1, times:to(x.device):to "i64" + 1), x)
  return a:sqrt():to(x.dtype), (1 - a):sqrt():to(x.dtype)
end

--- Samples with the noise of their times, as models are trained with.
-- @param times a tensor (batch) or a number, from 0
function Discrete:add_noise(x, noise, times)
  local kept, added = roots(self, x, times)
  return kept * x + added * noise
end

--- The velocity that a model with prediction_type "v_prediction" predicts (arXiv:2202.00512).
function Discrete:get_velocity(x, noise, times)
  local kept, added = roots(self, x, times)
  return kept * noise - added * x
end

--- Times (batch) for training: all equally likely.
-- @param opts {device =, generator =}
function Discrete:random_times(batch, opts)
  local o = options.check("random_times", opts, {device = options.none, generator = options.none})
  return core.randint(0, self.config.num_train_timesteps, {batch}, o)
end

local targets = {
  epsilon = function(_, _, noise) return noise end,
  sample = function(_, x) return x end,
  v_prediction = Discrete.get_velocity,
}

--- What a model should predict of add_noise(x, noise, times), by the prediction_type.
function Discrete:target(x, noise, times)
  return self:choice("prediction_type", targets)(self, x, noise, times)
end

-- The whole sample and the noise in one, of a model's output: kept is sqrt(a), added sqrt(1 - a).
local parts = {}

function parts.epsilon(y, x, kept, added) return (x - added * y) / kept, y end

function parts.sample(y, x, kept, added) return y, (x - kept * y) / added end

function parts.v_prediction(y, x, kept, added) return kept * x - added * y, kept * y + added * x end

-- arXiv:2205.11487: within the quantile of each sample's sizes, scaled to 1.
local function threshold(x, c)
  local sizes = x:to("f32"):abs():flatten(2)
  local s = sizes:quantile(c.dynamic_thresholding_ratio, 2):clamp(1, c.sample_max_value)
  s = common.column(s, x)
  return (x:to "f32":minimum(s):maximum(-s) / s):to(x.dtype)
end

-- The whole sample that a model's output y for the sample x predicts, clipped as configured, and
-- the noise.
function Discrete:predict(y, x, kept, added)
  local c = self.config
  local whole, noise = self:choice("prediction_type", parts)(y, x, kept, added)
  if c.thresholding then
    whole = threshold(whole, c)
  elseif c.clip_sample then
    whole = whole:clamp(-c.clip_sample_range, c.clip_sample_range)
  end
  return whole, noise
end

return Discrete
