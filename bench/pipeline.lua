-- A pipeline of two stages: batches go from pinned memory to a device on a stream of their own
-- while the batch before is computed on. Prints the time of each stage alone and of both, and
-- max(copy, compute) / pipeline.
--
--     flare bench/pipeline.lua [--device cuda] [--mib 64] [--batches 40]
local flare = require "flare"

local options = {device = "cuda", mib = 64, batches = 40, cols = 0}
for i = 1, #arg, 2 do
  local name = arg[i]:match "^%-%-(%w+)$"
  if options[name] == nil then error("there is no option " .. arg[i], 0) end
  options[name] = tonumber(arg[i + 1]) or arg[i + 1]
end
local device, n = options.device, options.batches

local width = 1024
local rows = options.mib * 1024 * 1024 // (4 * width)
local host = {}
for k = 1, 3 do host[k] = flare.rand({rows, width}):pin_memory() end
local compute = flare.current_stream(device)
local copies = flare.stream(device)

local function fetch(i)
  local x = host[i % #host + 1]:to(device, {stream = copies, async = true})
  return x, copies:record()
end

local function work(x, w)
  x:matmul(w):close()
end

local stages = {}

function stages.copy()
  local before
  for i = 1, n do
    local x, ready = fetch(i)
    x:close()
    if before then before:synchronize() end
    before = ready
  end
end

function stages.compute(w)
  local x = fetch(1)
  compute:wait(copies)
  for _ = 1, n do work(x, w) end
end

-- At most two batches are on the device: the next copy starts when the batch before this one
-- has been consumed.
function stages.pipeline(w)
  local x, ready = fetch(1)
  local before
  for i = 1, n do
    compute:wait(ready)
    work(x, w)
    x:close()
    local used = compute:record()
    if before then before:synchronize() end
    before = used
    if i < n then x, ready = fetch(i + 1) end
  end
end

--- Milliseconds per batch, the best of several rounds.
local function time(stage, w)
  local best = math.huge
  for _ = 1, 4 do
    flare.synchronize(device)
    local start = flare.clock()
    stages[stage](w)
    flare.synchronize(device)
    best = math.min(best, flare.clock() - start)
  end
  return best / n * 1e3
end

local function weights(cols) return flare.rand({width, cols}):to(device) end

-- so that computing takes as long as copying
local copy = time "copy"
local cols = 1024
for _ = 1, 3 do
  if options.cols > 0 then break end
  cols = math.floor(cols * copy / time("compute", weights(cols)) / 64 + 0.5) * 64
  cols = math.max(64, math.min(cols, 32768))
end
local w = weights(options.cols > 0 and options.cols or cols)
local alone, both = time("compute", w), time("pipeline", w)
copy = time "copy"
local bytes = rows * width * 4
print(("%s: batches of %d MiB, matmul to %d columns"):format(device, options.mib, w:size(2)))
print(("copy      %8.3f ms  %6.1f GB/s"):format(copy, bytes / copy * 1e-6))
print(("compute   %8.3f ms"):format(alone))
print(("pipeline  %8.3f ms  %6.1f %% of max(copy, compute); one after the other: %.1f %%"):format(
  both, 100 * math.max(copy, alone) / both, 100 * math.max(copy, alone) / (copy + alone)))
local stats = flare.memory.stats(device)
print(("peak      %8.1f MiB on the device"):format(stats.peak / 2 ^ 20))
