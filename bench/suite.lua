--- flare's side of `flare bench peers`, which tells it what to measure: a line names the works of
-- works.lua by their place, or is "again" for one more round; the answer is seconds.
local flare = require "flare"
local core = flare.core
local works = dofile((arg[0]:match "^(.*/)" or "") .. "works.lua")

core.collector "flare"
local others = {} -- a program has other things alive
for i = 1, 20000 do others[i] = {i} end

local inputs, given -- the last work's, for the next one of the same
local function fresh()
  return setmetatable({
    flare = flare, normal = flare.randn, uniform = flare.rand, eye = flare.eye,
    complex = function(...) return flare.complex(flare.randn(...), flare.randn(...)) end,
    mask = function(...) return flare.rand(...):gt(0.5) end,
    positions = function(bound, ...) return flare.randint(1, bound + 1, {...}) end,
  }, {__index = _G})
end

local function run(text)
  local chunk = assert(load(text, text, "t", inputs))
  return chunk()
end

local function close(y, ...)
  if flare.is_tensor(y) then y:close() end
  if ... then return close(...) end
end

-- One call of a benchmark; the gradients of leaves are cleared again.
local function call_of(work)
  local text = work.given .. ";" .. (work.flare_given or "")
  if text ~= given then
    inputs, given = nil, nil
    collectgarbage()
    collectgarbage()
    inputs = fresh()
    run(text)
    given = text
  end
  local f = load("return " .. work.flare, work.name, "t", inputs)
    or assert(load(work.flare, work.name, "t", inputs))
  -- as scripts do, leaves small results to the collector
  local once = work.name:find "^overhead" and f or function() close(f()) end
  if not work.leaves then return once end
  local leaves = {}
  for name in work.leaves:gmatch "%S+" do
    inputs[name].requires_grad = true
    leaves[#leaves + 1] = inputs[name]
  end
  given = nil
  if work.forward then return once end
  local y <const> = f()
  local gradient = y:dim() > 0 and flare.randn_like(y) or nil
  local function back(result, ...)
    result:backward(gradient)
    close(result, ...)
  end
  return function()
    back(f())
    for _, leaf in ipairs(leaves) do leaf.grad = nil end
  end
end

local call, count, recorded
local function once()
  local start = core.clock()
  for _ = 1, count do call() end
  return (core.clock() - start) / count
end

-- The first round warms up and finds the number of calls that take 20 ms.
local function first(work)
  call, count = call_of(work), 1
  if once() > 0.5 then return end
  count = math.max(1, 0.02 / math.max(once(), 1e-8) // 1 | 0)
  for _ = 1, count // 4 do call() end
end

for line in io.lines() do
  if line ~= "again" then
    local work = works[tonumber(line)]
    call, recorded = nil, work.leaves ~= nil
    if recorded then first(work) else flare.no_grad(first, work) end
  end
  local seconds = recorded and once() or flare.no_grad(once)
  print(("%.9g"):format(seconds))
  io.stdout:flush()
end
assert(#others == 20000)
