-- On a GPU plans are made in slices: a call makes one plan of the search for values that are
-- computed again, and runs without it meanwhile. The first call by a plan finds its kernels loaded.
-- The GPU computes nothing.
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
local path = os.getenv "FAKE_WORK"
local function work() -- what the driver has been asked for so far, besides launches
  local text, loads = "", 0
  local file = path and io.open(path)
  if file then
    text = file:read "a"
    file:close()
  end
  for what in text:gmatch "(%w+) call" do loads = loads + (what ~= "memory" and 1 or 0) end
  return loads, select(2, text:gsub("module thread", ""))
end
local calls, most, stats = 0, 0
repeat
  local before = work()
  step()
  calls = calls + 1
  stats = flare.compile_stats(step)
  if calls > 2 then most = math.max(most, work() - before) end
until stats.planned > 2 or calls == 100000
if path then return print(most, (select(2, work()))) end
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

  -- a call would have to wait for the driver
  it("comes in with kernels that threads have loaded", function()
    local said, status = fakes.run(place, ("FLARE_CACHE=off FLARE_COMPILE= FAKE_WORK='%s/work'")
      :format(place), script)
    assert.equal(0, status, said)
    local most, loaded = said:match "^(%d+)\t(%d+)\n$"
    assert.equal("0", most)
    assert.is_true(tonumber(loaded) > 0)
  end)
end)
