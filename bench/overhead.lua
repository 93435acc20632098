--- The overhead of an operation besides its arithmetic: 16 x 16 f32 from Lua, with 20,000 other Lua
-- objects alive, in steady state. Medians of a few rounds, in microseconds of processor time, so
-- that other programs have little influence.
--   flare bench/overhead.lua [rounds]
local core = require "flare.core"

core.collector "flare"
local others = {}
for i = 1, 20000 do others[i] = {i, tostring(i)} end
collectgarbage()

local N = 100000
local rounds = tonumber(arg and arg[1]) or 9

local function median(list)
  table.sort(list)
  return list[#list // 2 + 1], list[1], list[#list]
end

local function measure(name, n, f)
  f(n)
  local times = {}
  for r = 1, rounds do
    local start = os.clock()
    f(n)
    times[r] = (os.clock() - start) / n * 1e6
  end
  local mid, low, high = median(times)
  print(("%-28s %8.3f us   (%.3f .. %.3f)"):format(name, mid, low, high))
  return mid
end

local x, y = core.rand(16, 16), core.rand(16, 16)
local w = core.rand{16, 16, requires_grad = true}
local v = core.rand{16, 16, requires_grad = true}

measure("empty loop", N, function(n) for _ = 1, n do end end)
measure("x + y", N, function(n) for _ = 1, n do local _ = x + y end end)
measure("x + 1", N, function(n) for _ = 1, n do local _ = x + 1 end end)
measure("x:add(y)", N, function(n) for _ = 1, n do local _ = x:add(y) end end)
measure("x:sum(1)", N, function(n) for _ = 1, n do local _ = x:sum(1) end end)
measure("x[3]", N, function(n) for _ = 1, n do local _ = x[3] end end)
measure("x + y, x closed", N, function(n)
  for _ = 1, n do local _ <close> = x + y end
end)
measure("w + y with gradient", N, function(n) for _ = 1, n do local _ = w + y end end)
measure("w * v with gradient", N, function(n) for _ = 1, n do local _ = w * v end end)
measure("4 ops, no gradient", N // 4, function(n)
  for _ = 1, n do local _ = ((x * y + x):relu()):sum() end
end)
measure("4 ops, forward + backward", N // 4, function(n)
  for _ = 1, n do
    local loss = ((w * v + y):relu()):sum()
    loss:backward()
    w:zero_grad()
    v:zero_grad()
  end
end)
assert(#others == 20000)
