-- Rank 1 calls another collective than the others; FLARE_DIST_CHECK=1 reports it before it hangs.
local flare = require "flare"
local dist = flare.dist

local rank = dist.init()
local x = flare.ones({3}, {device = "cuda"})
dist.all_reduce(x)
if rank == 1 then dist.broadcast(x) else dist.all_reduce(x) end
print(x:sum():item())
