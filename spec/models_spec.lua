-- The training steps of bench/models compute under flare.compile what they compute at once: losses
-- and parameters after four steps, from the same weights and with the same random draws.
local flare = require "flare"
local common = assert(loadfile "bench/models/loop.lua")()

local STEPS = 4

local function train(text, device, amp, compile)
  local name, given = common.parse(text)
  given.amp = amp
  local built = common.build(assert(common.load(name)), "small", device, given)
  local step = built.step
  if compile then step = flare.compile(step, compile) end
  flare.manual_seed(7)
  local losses, params = {}, {}
  for k = 1, STEPS do losses[k] = step():to("f32"):to "cpu" end
  if built.model then
    for key, p in built.model:named_parameters() do params[key] = p:detach():to "cpu" end
  end
  return losses, params, compile and flare.compile_stats(step)
end

local function distance(a, b)
  return ((a - b):abs() / (b:abs() + 1)):max():item()
end

-- Adam moves a parameter whose gradient is rounding noise, such as the bias of attention's keys, by
-- up to lr in each step: so parameters are compared less strictly than losses.
local function compare(name, device, amp, exact, tolerance)
  local want, want_params = train(name, device, amp)
  local got, got_params, stats = train(name, device, amp, {exact = exact})
  assert.truthy(stats.planned > 0 and not stats.off, "no plan was used")
  for k = 1, STEPS do
    assert.truthy(want[k]:isfinite():all():item(), "the loss is not finite")
    local far = distance(got[k], want[k])
    assert.truthy(far <= tolerance, ("loss of step %d is off by %g"):format(k, far))
  end
  for key, p in pairs(want_params) do
    local far = distance(got_params[key], p)
    assert.truthy(far <= 1000 * tolerance, ("parameter %s is off by %g"):format(key, far))
  end
end

describe("a compiled training step of", function()
  for _, name in ipairs(common.names) do
    it(name .. " gives the same bits when it must be exact", function()
      compare(name, "cpu", "none", true, 0)
    end)

    it(name .. " differs by rounding otherwise", function()
      compare(name, "cpu", "none", false, 1e-5)
    end)
  end

  for _, name in ipairs {"gpt2", "resnet50:layout=last"} do
    it(name .. " gives the same bits on sim:0 in bf16", function()
      compare(name, "sim:0", "bf16", true, 0)
    end)
  end
end)
