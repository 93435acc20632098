-- Plans of training steps for chips whose blocks have less shared memory than an H100's, and under
-- a cap of bytes: the driver refuses a kernel that asks for more than the chip has, so a plan fits
-- or leaves the launches their own kernels. The GPU computes nothing.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"

-- Steps, and rows that are too wide for a chip to keep.
local script = [[
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local steps = require "spec.support.steps"
local device, part = "cuda:0", %s

local function wide(width, dtype)
  local w = flare.ones({width}, {device = device, dtype = dtype}):requires_grad_()
  local x = flare.ones({64, width}, {device = device, dtype = dtype})
  return {step = function()
    local mean = x:mean(-1, {keepdim = true})
    local y = (x - mean) * ((x - mean):square():mean(-1, {keepdim = true}) + 1e-5):rsqrt() * w
    local loss = (y:softmax(-1) * x):sum()
    loss:backward()
    w.grad = nil
    return loss
  end}
end

local models = {
  {"mlp", steps.mlp(device)}, {"conv", steps.conv(device)}, {"gpt", steps.gpt(device, 2)},
}
for _, dtype in ipairs {"f32", "bf16", "f64"} do
  for _, width in ipairs {768, 16384, 50257} do
    models[#models + 1] = {"rows of " .. width .. " " .. dtype, wide(width, dtype)}
  end
end
for _, m in ipairs(models) do
  local name, step = m[1], m[2].step
  for _ = 1, 2 do step() end
  flare.synchronize()
  local function measured(f)
    collectgarbage()
    collectgarbage()
    local before = flare.memory.stats(device).live
    flare.memory.reset_peak(device)
    f()
    return before, flare.memory.stats(device).peak
  end
  local before, peak = measured(step)
  local cap = part and before + (peak - before) * part // 1
  local f, most = flare.compile(step, {memory = cap or nil})
  local ok, why = pcall(function()
    for _ = 1, 6 do _, most = measured(f) end
  end)
  local stats = flare.compile_stats(f)
  if not ok then
    print(name, tostring(why):match "compile: memory = .* too little" and "says" or why)
  elseif cap and most > cap then print(name, most .. " bytes of " .. cap)
  else print(name, stats.planned > 0 and stats.kernels < stats.launches and "fits" or "no plan") end
end
]]

-- What becomes of each model there, as text.
local function outcomes(major, minor, kilobytes, part)
  local said, status = fakes.run(place, ("FLARE_CACHE=off FAKE_MAJOR=%d FAKE_MINOR=%d "
    .. "FAKE_SHARED=%d"):format(major, minor, kilobytes * 1024), script:format(part))
  assert.equal(0, status, said)
  return said
end

describe("plans of steps", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  for _, chip in ipairs {{8, 6, 99}, {12, 0, 99}, {8, 0, 48}} do
    it(("fit a chip of %d.%d with %d KiB of shared memory"):format(table.unpack(chip)), function()
      local said = outcomes(chip[1], chip[2], chip[3], "nil")
      assert.equal(12, select(2, said:gsub("\tfits\n", "")), said)
    end)
  end

  it("keep to a cap of memory on such a chip, or say what is missing", function()
    local said = outcomes(12, 0, 99, "0.9")
    local _, fits = said:gsub("\tfits\n", "")
    local _, says = said:gsub("\tsays\n", "")
    assert.equal(12, fits + says, said)
    assert.is_true(fits >= 6, said)
  end)
end)
