-- What memory scripts need, and that long runs stay flat. limit: 40 min
package.path = "./?.lua;" .. package.path
local core = require "flare".core
local memory = require "spec.support.memory"

local MB = 1 << 20
local failed = false

local function figure(good, format, ...)
  print("figure: " .. format:format(...) .. (good and "" or ": FAILED"))
  failed = failed or not good
end

-- one line: what, its peaks, and the most there may be
local function peaks(what, most, f)
  local peak, whole = memory.peak(f)
  local good = peak <= most and whole <= most
  figure(good, "%s: tensors' peak %.1f MB, process's %.1f MB, at most %.0f", what, peak / MB,
    whole / MB, most / MB)
end

local function rate(f)
  local start = core.clock()
  f()
  return core.clock() - start
end

for _, alive in ipairs{0, 1 << 30} do
  local big = alive > 0 and core.ones(alive, {dtype = "u8"})
  peaks(("10^6 temporaries of 1 MB, %d MB alive"):format(alive // MB),
    alive > 0 and 80 * MB + 0.15 * 1024 * MB or 80 * MB,
    function() memory.temporaries(1000000, MB) end)
  local left, closed = 0, 0
  for _ = 1, 5 do
    left = left + rate(function() memory.temporaries(20000, MB) end)
    closed = closed + rate(function() memory.closed(20000, MB) end)
  end
  figure(true, "their speed: %.0f %% of the loop with <close>", 100 * closed / left)
  if big then big:close() end
end
peaks("10^7 temporaries of 1 KB", 16 * MB, function() memory.temporaries(10000000, 1024) end)

for name, step in pairs(memory.steps()) do
  for _ = 1, 3 do step() end
  local exact = memory.exact(step)
  local peak = memory.needed(function() for _ = 1, 200 do step() end end)
  local near = peak <= 1.1 * exact
  figure(near, "a training step (%s): peak %.2f MB, exact counting %.2f MB, ratio %.3f",
    name, peak / MB, exact / MB, peak / exact)
end

local start = core.clock()
memory.chain(1000000)
figure(true, "a chain of 10^6 operations, forward and backward: %.2f s", core.clock() - start)

local tensors, entries, resident = memory.captured(100000)
local flat = tensors == 0 and entries == 0 and resident < 4 * MB
figure(flat, "10^5 steps with hooks and functions: %+d tensors, %+d registry entries, %+.2f MB",
  tensors, entries, resident / MB)

local more = memory.batches(100000)
figure(more < 4 * MB, "10^5 batches of a threaded loader: %+.2f MB", more / MB)
os.exit(not failed)
