-- On a GPU plans are made in slices: a call makes one plan of the search for values that are
-- computed again, and runs without it meanwhile. The GPU computes nothing.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"

local script = [[
local flare = require "flare"
local nn = flare.nn
local net = nn.Sequential()
for _ = 1, 40 do
  net:append(nn.Linear(256, 256))
  net:append(nn.LayerNorm(256))
  net:append(nn.GELU())
end
net:to "cuda"
local x = flare.ones({2048, 256}, {device = "cuda"})
local step = flare.compile(function()
  net:zero_grad()
  local loss = net(x):square():mean()
  loss:backward()
  return loss
end)
local calls, stats = 0
repeat
  step()
  calls = calls + 1
  stats = flare.compile_stats(step)
until stats.planned > 2 or calls == 100000
print(stats.planned > 2, calls - stats.planned > 4, stats.launches, stats.kernels, stats.repeats,
      stats.memory)
]]

describe("a plan", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  local function run(settings)
    local said, status = fakes.run(place, "FLARE_CACHE=off " .. settings, script)
    assert.equal(0, status)
    return said:match "^(%a+)\t(%a+)\t(.*)\n$"
  end

  it("is the same one whether it is made at once or in slices", function()
    local planned, late, facts = run "FLARE_COMPILE=wait"
    assert.same({"true", "false"}, {planned, late})
    assert.is_true(tonumber(facts:match "^%d+") > 256)
    assert.same({"true", "true", facts}, {run "FLARE_COMPILE="})
  end)
end)
