--- Two runtimes in one process on one GPU at the same time, each with its tensors, gradients and
-- memory: states on threads. Says what each computed; fails where they disagree.
--   flare spec/gpu/runtimes.lua [DEVICE]
local flare = require "flare"
local core = flare.core
local device = arg[1] or "cuda"
-- who does a product is chosen once for the process, in one runtime earlier than in the others
flare.backends{deterministic = true}

local text = [[
  local flare = require "flare"
  local device, rounds = ...
  flare.manual_seed(7)
  local w = flare.randn({256, 256}):to(device)
  w.requires_grad = true
  local x = flare.randn({256, 256}):to(device)
  local total = 0
  for k = 1, rounds do
    local loss = x:matmul(w):tanh():square():mean()
    loss:backward()
    flare.no_grad(function() w:sub_(w.grad * 0.1) end)
    w:zero_grad()
    total = total + loss:item()
  end
  return total, flare.memory.stats(device).live
]]
local other = core.spawn(text, device, 300)
local third = core.spawn(text, device, 300)
local mine = {load(text)(device, 300)}
local ok, theirs, live = other:join()
local ok3, theirs3 = third:join()
assert(ok and ok3, theirs)
print(("three runtimes on %s: %.9g, %.9g, %.9g"):format(device, mine[1], theirs, theirs3))
assert(mine[1] == theirs and mine[1] == theirs3, "the runtimes computed different things")
assert(live > 0 and mine[2] > 0)
print "done"
