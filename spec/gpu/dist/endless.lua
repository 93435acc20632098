-- Collectives for ever, until a rank is killed from outside, or by itself at the call that
-- arg[1] names: "RANK CALL". With a third argument a second group is at it, too.
local flare = require "flare"
local dist = flare.dist

local rank, size = dist.init()
local device = "cuda"
local victim, call = (arg[1] or ""):match "^(%d+) (%d+)$"
local way = arg[2] or "auto"
local x, y = flare.ones({70000}, {device = device}), flare.ones({3000000}, {device = device})
local all = {}
for r = 0, size - 1 do all[r + 1] = r end
local second = arg[3] and dist.group(all)
for k = 1, math.maxinteger do
  if k == tonumber(call) and rank == tonumber(victim) then
    os.execute("kill -KILL " .. flare.core.net.pid())
  end
  if second then second:all_reduce_(y, {reduce = "mean", algorithm = way, async = true}) end
  dist.all_reduce_(x, {reduce = "mean", algorithm = way})
  if k % 50 == 0 then assert(x:sum():item() == 70000) end
end
