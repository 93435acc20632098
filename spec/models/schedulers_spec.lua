-- Schedulers of diffusion beside diffusers: spec/support/diffusion_data.py.
local flare = require "flare"
local data = require "spec.support.diffusion"
local support = require "spec.support.models"

local models = flare.models
local LIMIT = 2e-6 -- of the largest number
local SHAPE = {2, 4, 2, 2}

local function numbers(name, shape) return support.numbers(name, shape or SHAPE) * 4 end

local function close(name, what, got)
  assert.truthy(support.off(got, assert(data.expected(name, what))) <= LIMIT, what)
end

-- The names of options of steps here.
local ours = {eta = "eta", use_clipped_model_output = "clipped", s_churn = "churn",
              s_tmin = "churn_min", s_tmax = "churn_max", s_noise = "noise_scale"}

local function options_of(about)
  local out = {}
  for name, value in pairs(about.options) do out[ours[name]] = value end
  return out
end

-- All steps from x, the samples of which diffusers_data.py keeps some, and the last whole one.
local function run(scheduler, about, times, x)
  local kept, channels, whole = {}, 4, nil
  local every = #times // 8 + 1
  if (about.config.variance_type or ""):find "^learned" then channels = 8 end
  for k, t in ipairs(times) do
    local o = options_of(about)
    if scheduler.config.stochastic_sampling ~= false then o.noise = numbers("noise." .. k - 1) end
    x, whole = scheduler:step(numbers("output." .. k - 1, {2, channels, 2, 2}), t, x, o)
    if (k - 1) % every == 0 then kept[#kept + 1] = x end
  end
  kept[#kept + 1] = x
  return flare.stack(kept), whole
end

describe("The scheduler of case", function()
  for _, name in ipairs(data.names "steps") do
    it(name .. " computes what diffusers does", function()
      local about = data.about(name)
      local scheduler = models[about.cls](about.config)
      local times = about.steps
      if type(times) == "number" then
        scheduler:set_timesteps(about.given or times, about.mu and {mu = about.mu})
        times = scheduler.timesteps
      end
      close(name, "times", flare.tensor(scheduler.timesteps, {dtype = "f64"}))
      local x, noise = numbers "x", numbers "noise"
      local some = flare.tensor({times[2], times[4]}, {dtype = "f64"})
      close(name, "noisy", scheduler:add_noise(x, noise, some))
      if about.cls:find "^DD" then
        close(name, "velocity", scheduler:get_velocity(x, noise, some))
      end
      local scaled = scheduler:scale_model_input(x, times[1])
      close(name, "first", flare.tensor{scheduler.init_noise_sigma,
                                        scaled:abs():max():item() / x:abs():max():item()})
      local samples, whole = run(scheduler, about, times, x)
      close(name, "samples", samples)
      if not about.cls:find "^Flow" then close(name, "whole", whole) end
    end)
  end
end)

describe("A scheduler", function()
  it("leads from noise to the sample of a model that knows it", function()
    local x = flare.randn(2, 1, 4, 4):clamp(-1, 1)
    local generator = flare.generator(3)
    for _, class in ipairs{"DDPMScheduler", "DDIMScheduler", "EulerDiscreteScheduler"} do
      local s = models[class] {prediction_type = "sample"}
      local y = s:sample(function() return x end, flare.randn(x.shape), {steps = 20,
                                                                        generator = generator})
      assert.truthy(support.off(y, x) < 1e-5, class)
    end
    local flow = models.FlowMatchEulerDiscreteScheduler()
    local noise = flare.randn(x.shape)
    local y = flow:sample(function() return noise - x end, noise, {steps = 9})
    assert.truthy(support.off(y, x) < 1e-5)
  end)

  it("makes the input of which the target is predicted", function()
    local x, noise, t = flare.randn(3, 2), flare.randn(3, 2), flare.tensor{1, 500, 998}
    for _, kind in ipairs{"epsilon", "sample", "v_prediction"} do
      local s = models.DDIMScheduler {prediction_type = kind, clip_sample = false}
      local y, noisy = s:target(x, noise, t), s:add_noise(x, noise, t)
      for k, at in ipairs{1, 500, 998} do
        local _, whole = s:step(y:narrow(1, k, 1), at, noisy:narrow(1, k, 1))
        assert.truthy(support.off(whole, x:narrow(1, k, 1)) < 1e-4, kind)
      end
    end
    local flow = models.FlowMatchEulerDiscreteScheduler()
    local at = flow.timesteps[400]
    local _, whole = flow:step(flow:target(x, noise), at, flow:add_noise(x, noise, at))
    assert.truthy(support.off(whole, x) < 1e-5)
  end)

  it("ends when a function says so, and repeats with a seed", function()
    local s, x = models.DDPMScheduler(), flare.randn(1, 1, 2, 2)
    local function model(y) return y end
    local seen = {}
    local function draw(on_step)
      return s:sample(model, x, {steps = 10, generator = flare.generator(1), on_step = on_step})
    end
    draw(function(k, t, _, whole)
      seen[k] = t
      assert.same({1, 1, 2, 2}, table.move(whole.shape, 1, 4, 1, {}))
      return k < 3
    end)
    assert.same({900, 800, 700}, seen)
    assert.truthy(draw():eq(draw()):all():item())
  end)

  it("takes equal times one after the other", function()
    local s = models.EulerDiscreteScheduler {use_karras_sigmas = true, sigma_min = 1e-4}
    s:set_timesteps(12)
    assert.equal(0, s.timesteps[11]) -- levels below the least are at time 0, too
    assert.equal(0, s.timesteps[12])
    local x = flare.ones(1, 1, 1, 1)
    for _, t in ipairs(s.timesteps) do x = s:step(x * 0, t, x) end
    assert.equal(13, s.next)
  end)

  it("is saved and loaded", function()
    local path = os.tmpname()
    os.remove(path)
    local s = models.EulerDiscreteScheduler {beta_schedule = "scaled_linear", steps_offset = 1}
    assert(s:save(path))
    local config = flare.core.json.decode(assert(flare.core.file.read(path
                                                                  .. "/scheduler_config.json")))
    assert.equal("EulerDiscreteScheduler", config._class_name)
    assert.is_nil(config.architectures)
    local again = assert(models.load(path))
    assert.same(s.sigmas, again.sigmas)
    assert(flare.core.file.write_atomic(path .. "/scheduler_config.json",
      '{"_class_name": "DDPMScheduler", "beta_schedule": "cosine", "new_field": 1}'))
    local none, message = models.load(path)
    assert.is_nil(none)
    assert.match("scheduler_config.json: DDPMScheduler: unknown beta_schedule 'cosine'", message)
    support.remove(path)
  end)

  it("is made of the configuration of another one", function()
    local s = models.DDPMScheduler {beta_schedule = "scaled_linear", variance_type = "fixed_large"}
    local euler = models.EulerDiscreteScheduler(s.config)
    assert.equal("scaled_linear", euler.config.beta_schedule)
    local path = os.tmpname()
    os.remove(path)
    assert(euler:save(path))
    local file = path .. "/scheduler_config.json"
    assert(flare.core.file.write_atomic(file, '{"_class_name": "PNDMScheduler", "beta_end": 0.03}'))
    local none, message = models.load(path)
    assert.is_nil(none)
    assert.match("the architecture PNDMScheduler is not known", message)
    local ddim = assert(models.load(path, {as = "DDIMScheduler"}))
    assert.equal(0.03, ddim.config.beta_end)
    assert.equal("DDIMScheduler", getmetatable(ddim).__name)
    support.remove(path)
  end)

  it("says what is wrong", function()
    local x = flare.ones(1, 1, 1, 1)
    local function refuses(pattern, f, ...) assert.match(pattern, select(2, pcall(f, ...))) end
    refuses("unknown option 'beta_shedule' %(did you mean 'beta_schedule'%?%)",
            models.DDPMScheduler, {beta_shedule = "linear"})
    refuses("unknown beta_schedule 'linea' %(did you mean 'linear'%?%)", models.DDIMScheduler,
            {beta_schedule = "linea"})
    refuses("num_train_timesteps must be an integer", models.DDIMScheduler,
            {num_train_timesteps = 0})
    refuses("trained_betas are %(2%), num_train_timesteps is 1000", models.DDPMScheduler,
            {trained_betas = {0.1, 0.2}})
    local s = models.DDPMScheduler()
    refuses("1001 steps, num_train_timesteps is 1000", s.set_timesteps, s, 1001)
    refuses("descending order, got 5", s.set_timesteps, s, {4, 5})
    s:set_timesteps(10)
    refuses("901 is none of its timesteps %(the nearest is 900%)", s.step, s, x, 901, x)
    refuses("unknown option 'eta'", s.step, s, x, 900, x, {eta = 1})
    refuses("the model's output must be a tensor", s.step, s, 3, 900, x)
    local learned = models.DDPMScheduler {variance_type = "learned"}
    refuses("has 2 channels; it is %(1, 1, 1, 1%)", learned.step, learned, x, 900, x)
    local flow = models.FlowMatchEulerDiscreteScheduler {use_dynamic_shifting = true}
    refuses("the option mu is needed", flow.set_timesteps, flow, 4)
    assert.near(0.63, flow:shift_of(1024), 1e-12)
    local euler = models.EulerDiscreteScheduler {use_karras_sigmas = true}
    refuses("the configuration chooses the times", euler.set_timesteps, euler, {5, 1})
    euler = models.EulerDiscreteScheduler()
    refuses("descending order, got 1000", euler.set_timesteps, euler, {1000, 4})
    refuses("exclude each other", models.EulerDiscreteScheduler,
            {use_karras_sigmas = true, use_exponential_sigmas = true})
  end)
end)
