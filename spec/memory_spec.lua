-- What memory scripts need: a part of spec/long/memory.lua, where there are more temporaries.
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

  it("20000 temporaries of 1 MB stays under 80 MB", function()
    local peak, whole = memory.peak(function() memory.temporaries(20000, MB) end)
    assert.is_true(peak <= 80 * MB, peak)
    assert.is_true(whole <= 80 * MB, whole)
  end)

  it("20000 temporaries of 1 MB beside 1 GB stays under 1.15 GB + 80 MB", function()
    local big = core.ones(1 << 30, {dtype = "u8"})
    local peak, whole = memory.peak(function() memory.temporaries(20000, MB) end)
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

  -- how far the tensors' bytes rise over those before, once the loop runs steadily; and how
  -- many steps and full collections there are for each time round
  local function steady(count, x, body)
    core.collect()
    for _ = 1, 200 do body(x) end
    local before = core.memory.stats(x.device)
    core.memory.reset_peak(x.device)
    for _ = 1, count do body(x) end
    local after = core.memory.stats(x.device)
    return after.peak - x:nbytes(), (after.steps - before.steps) / count, after.fulls - before.fulls
  end

  for _, bytes in ipairs {MB, 4 * MB} do
    it(("temporaries of %d bytes that nothing holds is that of one"):format(bytes), function()
      local x <close> = core.zeros(bytes, {dtype = "u8"})
      local live = core.memory.stats().live - bytes
      local peak = steady(1000, x, function() local _ = x:clone() end)
      assert.is_true(peak - live <= 2 * bytes, (peak - live) / bytes)
    end)
  end

  it("temporaries that live for a while needs no full collection", function()
    local x <close> = core.zeros(MB, {dtype = "u8"})
    local big = core.zeros(256 * MB, {dtype = "u8"})
    local _, steps, fulls = steady(1000, x, function()
      local a = x:clone()
      local b = a:clone()
      local c = b:clone()
      return a, b, c
    end)
    big:close()
    core.memory.flush()
    assert.is_true(steps <= 1, steps)
    assert.equal(0, fulls)
  end)

  it("a device's temporaries is not worth a step for each", function()
    local x <close> = core.zeros(MB, {dtype = "u8", device = "sim:0"})
    local _, steps, fulls = steady(1000, x, function() local _ = x:clone() end)
    assert.is_true(steps <= 0.3, steps)
    assert.equal(0, fulls)
  end)

  it("Lua's own garbage is given back, however old it has become", function()
    local out = tree.output(("'%s/flare' -e '%s' 2>&1"):format(tree.build, [[
      local x = require "flare".core.zeros(16)
      local before = collectgarbage "count"
      for _ = 1, 3000 do
        local old = {}
        for k = 1, 20 do old[k] = {k} end
        for _ = 1, 600 do local _ = x:clone() end -- steps, which old survives
      end
      print(collectgarbage "count" < 3 * before + 1000)]]))
    assert.equal("true\n", out)
  end)

  for _, bytes in ipairs {1000, 100 << 10, MB, 5 * MB, 20 * MB} do
    it(("temporaries of %d bytes on a device reserves little more"):format(bytes), function()
      core.memory.flush "sim:0"
      local peak, reserved = memory.reserved("sim:0", bytes <= MB and 3000 or 200, bytes)
      assert.is_true(peak <= 5 * bytes + 16 * MB, peak)
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

  it("20000 batches of a threaded loader is flat", function()
    local more = memory.batches(20000)
    assert.is_true(more < 4 * MB, more)
  end)

  -- in a process of its own, where no memory is free that others have used
  it("an expression and its operator stays under 5 KiB", function()
    local said = tree.output(([['%s/flare' -e '
      local flare, memory = require "flare", require "spec.support.memory"
      local x, kept = flare.ones(4), {}
      local function make(from, to)
        for k = from, to do
          kept[k] = flare.elementwise("T x", "T y", ("y = x * %%d + 1"):format(k))
          kept[k](x)
        end
      end
      make(1, 500) -- now tables have their room
      local before = memory.resident()
      make(501, 4500)
      print((memory.resident() - before) // 4000)' 2>&1]]):format(tree.build))
    assert.is_true(assert(tonumber(said), said) < 5 * 1024, said)
  end)
end)
