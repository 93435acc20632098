-- What a compiled function costs on the CPU beside its kernels: nanoseconds a call of an operator
-- that waits and runs by a plan, with a tape node and without; of entering and leaving; of making
-- plans. `flare bench/compile_costs.lua`; the best of nine.
local flare = require "flare"

local function best(calls, f)
  local least = math.huge
  for _ = 1, 9 do
    local start = flare.clock()
    for _ = 1, calls do f() end
    least = math.min(least, (flare.clock() - start) / calls)
  end
  return least * 1e9
end

local N = 100
local x = flare.ones(16, 16)
local w = flare.ones(16, 16):requires_grad_()

local function chain(t)
  for _ = 1, N do t = t + x end
  return t
end

-- Plans that lose are dropped on the CPU, so tensors wait in the window of a function that reads
-- nothing: `first` keeps to its plans.
local function keeps(f) return (flare.core.compiled(f, false, true)) end

local empty = keeps(function() end)
empty()
print(("entering and leaving          %8.0f ns"):format(best(20000, empty)))
for _, case in ipairs {{"without a node", x}, {"with a node", w}} do
  local eager = best(50, function() chain(case[2]) end) / N
  local f = keeps(chain)
  for _ = 1, 3 do f(case[2]) end
  local matched = best(50, function() f(case[2]) end) / N
  print(("16 x 16 add, %-16s %8.0f ns eager, %.0f ns in a plan, with its part of the kernel")
    :format(case[1], eager, matched))
end
for _, n in ipairs {1000, 5000} do
  local function body(t)
    for k = 1, n do t = k % 3 == 0 and t:tanh() or t * 1.001 end
    return t
  end
  local f = flare.compile(body, {wait = true})
  local start = flare.clock()
  f(x)
  local first = flare.clock()
  f(x)
  local second = flare.clock()
  f(x)
  local third = flare.clock()
  print(("%4d operators: %.1f ms recorded and run, %.1f ms planned and run, %.1f ms by the plan")
    :format(n, (first - start) * 1e3, (second - first) * 1e3, (third - second) * 1e3))
end
