--- What the host does for small work on a GPU: lines "name<tab>microseconds, the least and the
-- median of rounds"; steps a second of an MLP; what temporaries reserve and cost. For
-- spec/gpu/overhead.sh, beside overhead.py.
--   flare spec/gpu/overhead.lua [DEVICE [SHARE OF THE WORK]]
local flare = require "flare"
local core, nn, optim = flare.core, flare.nn, flare.optim

local device, share = arg[1] or "cuda", tonumber(arg[2]) or 1
local clock = core.clock
core.collector "flare"
flare.manual_seed(1)
local others = {} -- a program has other objects, too
for i = 1, 20000 do others[i] = {i, tostring(i)} end
collectgarbage()

local function tell(name, ...)
  local list = {...}
  for i, v in ipairs(list) do list[i] = math.type(v) == "integer" and v or ("%.4g"):format(v) end
  print(name .. "\t" .. table.concat(list, "\t"))
end

-- rounds of n calls back to back, each waited for apart
local function host(name, n, f)
  local times = {}
  for r = -1, 40 do
    local start = clock()
    f(n)
    local time = (clock() - start) / n * 1e6
    core.synchronize(device)
    if r > 0 then times[r] = time end
  end
  table.sort(times)
  tell(name, times[1], times[#times // 2 + 1])
end

local function make(o)
  o = o or {}
  return flare.rand({16, 16}, {device = device, requires_grad = o.grad or false})
end

local x, y, w, v = make(), make(), make {grad = true}, make {grad = true}
host("add", 2000, function(n) for _ = 1, n do local _ = x + y end end)
host("four", 200, function(n)
  for _ = 1, n do
    ((w * v + y):relu()):sum():backward()
    w:zero_grad()
    v:zero_grad()
  end
end)

if share == 0 then return end -- what one call costs is all that was asked for

---------------------------------------------------------------- an MLP

local mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                          nn.Linear(128, 10)):to(device)
local adam = optim.Adam(mlp:parameters(), {lr = 1e-3})
local images = flare.rand({128, 784}, {device = device})
local digits = flare.randint(1, 11, {128}, {device = device})
local function steps(n)
  for _ = 1, n do
    local loss = nn.functional.cross_entropy(mlp(images), digits)
    adam:zero_grad()
    loss:backward()
    adam:step()
  end
  core.synchronize(device)
end
steps(200)
local segments, best = core.memory.stats(device).segments, 0
for _ = 1, 5 do
  local start, n = clock(), (2000 * share) // 1
  steps(n)
  best = math.max(best, n / (clock() - start))
end
tell("mlp", best)
tell("mlp_segments", core.memory.stats(device).segments - segments)

---------------------------------------------------------------- temporaries

local MIB = 1 << 20
local function temporaries(n, closed)
  local a = flare.zeros({MIB // 4}, {device = device})
  core.synchronize(device)
  local start = clock()
  if closed then
    for _ = 1, n do local _ <close> = a + 1 end
  else
    for _ = 1, n do local _ = a + 1 end
  end
  core.synchronize(device)
  return (clock() - start) / n * 1e6
end

for _, gib in ipairs {0, 8} do
  if gib * share == gib then
    local big = gib > 0 and flare.zeros({gib << 30}, {dtype = "u8", device = device})
    core.collect()
    core.memory.flush(device)
    core.memory.reset_peak(device)
    temporaries(1000)
    local before = core.memory.stats(device)
    local time = temporaries(1000000 * share // 1)
    local after = core.memory.stats(device)
    local left, closed = {}, {}
    for k = 1, 7 do
      left[k], closed[k] = temporaries(20000), temporaries(20000, true)
    end
    table.sort(left)
    table.sort(closed)
    local alive = (gib << 30) + 2 * MIB
    tell("temporaries_" .. gib, time, after.peak_reserved / MIB,
      (after.peak_reserved - math.max(64e6, 4 * MIB)) / alive,
      closed[4] / left[4], after.segments - before.segments)
    if big then big:close() end
  end
end
assert(#others == 20000)
