-- What memory scripts need: a tenth of spec/long/memory.lua.
local core = require "flare".core
local memory = require "spec.support.memory"
local tree = require "spec.support.tree"

local MB = 1 << 20

describe("the memory of", function()
  local was = core.collector()
  setup(function() core.collector "flare" end)
  teardown(function() core.collector(was) end)

  it("10^4 steps with functions that capture everything is flat", function()
    local tensors, entries, resident = memory.captured(10000)
    assert.equal(0, tensors)
    assert.equal(0, entries)
    assert.is_true(resident < 4 * MB, resident)
  end)

  it("10^5 temporaries of 1 MB stays under 80 MB", function()
    local peak, whole = memory.peak(function() memory.temporaries(100000, MB) end)
    assert.is_true(peak <= 80 * MB, peak)
    assert.is_true(whole <= 80 * MB, whole)
  end)

  it("10^5 temporaries of 1 MB beside 1 GB stays under 1.15 GB + 80 MB", function()
    local big = core.ones(1 << 30, {dtype = "u8"})
    local peak, whole = memory.peak(function() memory.temporaries(100000, MB) end)
    assert.equal(1, big[1]:item())
    big:close()
    core.memory.flush()
    assert.is_true(peak <= 0.15 * 1024 * MB + 80 * MB, peak)
    assert.is_true(whole <= 0.15 * 1024 * MB + 80 * MB, whole)
  end)

  it("10^6 temporaries of 1 KB stays under 16 MB", function()
    local peak, whole = memory.peak(function() memory.temporaries(1000000, 1024) end)
    assert.is_true(peak <= 16 * MB, peak)
    assert.is_true(whole <= 16 * MB, whole)
  end)

  for _, bytes in ipairs {1000, 100 << 10, MB, 5 * MB, 20 * MB} do
    it(("temporaries of %d bytes on a device reserves little more"):format(bytes), function()
      core.memory.flush "sim:0"
      local peak, reserved = memory.reserved("sim:0", bytes <= MB and 3000 or 200, bytes)
      assert.is_true(peak <= 8 * bytes + 2 * MB, peak)
      local most = 1.15 * peak + math.max(64e6, 4 * bytes)
      assert.is_true(reserved <= most, ("%.1f MB of %.1f"):format(reserved / 1e6, most / 1e6))
    end)
  end

  it("a device is that of its tensors with FLARE_MEMORY=direct", function()
    local out = tree.output(("FLARE_MEMORY=direct '%s/flare' -e '%s' 2>&1"):format(tree.build, [[
      local flare = require "flare"
      local x = flare.ones(10, {device = "sim:0"})
      local y = x + 1
      local before = flare.memory.stats "sim:0"
      y:close()
      flare.synchronize()
      print(before.reserved, before.blocks, flare.memory.stats "sim:0".reserved)]]))
    assert.equal("80\t2\t40\n", out)
  end)

  for name, step in pairs(memory.steps()) do
    it(("a training step (%s) is near that of exact reference counting"):format(name), function()
      for _ = 1, 3 do step() end
      local exact = memory.exact(step)
      local peak = memory.needed(function() for _ = 1, 10 do step() end end)
      assert.is_true(peak <= 1.1 * exact, ("%.2f MB, exact %.2f MB"):format(peak / MB, exact / MB))
    end)
  end

  it("a chain of 10^5 operations is given back", function()
    core.collect()
    local before = core.memory.stats().live
    memory.chain(100000)
    core.collect()
    assert.equal(before, core.memory.stats().live)
  end)

  it("10^5 batches of a threaded loader is flat", function()
    local more = memory.batches(100000)
    assert.is_true(more < 4 * MB, more)
  end)
end)
