-- Random programs of few small square matrices: elementwise operators, sums and extremes over rows
-- and columns, copies, and writes in place to parts and transposes of what later operators read.
-- Compiled with every value computed again that may be, they compute what eager programs do.
local flare = require "flare"
local M = {}

local N, GIVEN = 9, 3

local function viewed(x, k)
  if k == 1 then return x:transpose(1, 2) end
  if k == 2 then return x[1]:view(1, N):expand(N, N) end
  if k == 3 then return x:sum(-1, {keepdim = true}):expand(N, N) end
  return x
end

local results = {
  function(a, b) return a + b end,
  function(a, b) return a * b end,
  function(a, b) return a - b end,
  function(a) return a * 2 end,
  function(a, b) return (a + b):sum(1, {keepdim = true}):expand(N, N) * 0.1 end,
  function(a, b) return flare.where(a:gt(b), a, b) end,
  function(a, b) return a:amax(-1, {keepdim = true}) - b end,
}

-- Steps of a program: {place = k, ...} writes value k, the others make the next value.
local function steps(random)
  local list, n = {}, GIVEN
  for _ = 1, random(4, 14) do
    if random(10) <= 4 then
      list[#list + 1] = {place = random(random(2) == 1 and GIVEN or n), a = random(n),
                         view = random(6), how = random(3), part = random(3)}
    else
      list[#list + 1] = {a = random(n), view = random(6), b = random(n), other = random(6),
                         how = random(#results)}
      n = n + 1
    end
  end
  return list
end

local function write(x, y, s)
  y = y * 0.5
  if s.part == 1 then x, y = x:narrow(1, 2, 5), y:narrow(1, 3, 5) end
  if s.part == 2 then x = x:transpose(1, 2) end
  if s.how == 1 then x:add_(y) elseif s.how == 2 then x:mul_(0.75) else x:copy_(y + 1) end
end

local function program(list, all)
  return function(...)
    local t = {...}
    for _, s in ipairs(list) do
      local a = viewed(t[s.a], s.view)
      if s.place then
        write(t[s.place], a, s)
      else
        t[#t + 1] = results[s.how](a, viewed(t[s.b], s.other))
      end
    end
    if all then return table.unpack(t, GIVEN + 1) end
    return t[#t]
  end
end

local function near(want, got)
  local off = (want - got):abs():max():item()
  return off <= 1e-4 * (1 + want:abs():max():item()) or not want:isfinite():all():item()
end

local function all_near(want, got)
  for k, x in ipairs(want) do
    if not near(x, got[k]) then return false end
  end
  return true
end

-- Runs `count` programs from number `first` on, and raises for the first one that differs.
function M.check(device, count, first)
  local _ <close> = flare.no_grad()
  for number = first, first + count - 1 do
    math.randomseed(number)
    flare.manual_seed(number)
    local run = program(steps(math.random), math.random(2) == 1)
    local compiled = flare.core.compiled(run, true, "again", false, true, 0)
    local eager, other = {}, {}
    for k = 1, GIVEN do eager[k] = flare.zeros({N, N}, {device = device}) end
    for k = 1, GIVEN do other[k] = flare.zeros({N, N}, {device = device}) end
    for _ = 1, 3 do
      for k = 1, GIVEN do
        eager[k]:copy_(flare.rand({N, N}, {device = device}))
        other[k]:copy_(eager[k])
      end
      local want, got = {run(table.unpack(eager))}, {compiled(table.unpack(other))}
      if not (all_near(want, got) and all_near(eager, other)) then
        error(("program %d on %s differs"):format(number, device))
      end
    end
  end
end

return M
