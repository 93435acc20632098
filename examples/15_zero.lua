-- ZeRO: parameters, gradients and the optimizer's state are divided among the ranks:
-- flare launch -n 2 examples/15_zero.lua
local flare = require "flare"
flare.args(arg, "Trains with parameters, gradients and optimizer state divided among processes.")
local nn, optim, dist = flare.nn, flare.optim, flare.dist
local rank, size = dist.init()

flare.manual_seed(1)
local model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(),
                            nn.Linear(64, 4))
local zero = dist.ZeRO(model, function(parts) return optim.AdamW(parts, {lr = 0.01}) end,
                       {stage = 3})

flare.manual_seed(2)
local x, target = flare.randn(64, 16), flare.randn(64, 4)
local rows = 64 // size
local a, b = x:narrow(1, rank * rows + 1, rows), target:narrow(1, rank * rows + 1, rows)
local loss
for _ = 1, 200 do
  zero:zero_grad()
  loss = (zero(a) - b):square():mean()
  loss:backward()
  zero:clip_grad_norm_(1)
  zero:step()
end
loss = dist.all_reduce(loss:detach(), {reduce = "mean"}):item()

local kept = 0
for _, shard in ipairs(zero.shards) do kept = kept + shard.part:numel() end
if rank == 0 then
  print(("%d ranks, loss below 0.01: %s, %d of 5508 parameters kept"):format(size, loss < 0.01,
    kept))
end
