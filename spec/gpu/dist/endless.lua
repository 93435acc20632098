-- Collectives for ever, until a rank is killed from outside, or by itself at the call that
-- arg[1] names: "RANK CALL".
local flare = require "flare"
local dist = flare.dist

local rank = dist.init()
local device = "cuda:" .. dist.local_rank()
local victim, call = (arg[1] or ""):match "^(%d+) (%d+)$"
local x = flare.ones({70000}, {device = device})
for k = 1, math.maxinteger do
  if k == tonumber(call) and rank == tonumber(victim) then
    os.execute("kill -KILL " .. flare.core.net.pid())
  end
  dist.all_reduce_(x, {reduce = "mean", algorithm = arg[2] or "auto"})
  if k % 50 == 0 then assert(x:sum():item() == 70000) end
end
