-- Streams: the next batch is copied to the device while the one before is computed on.
-- It runs on "cuda" if there is a GPU, otherwise on a simulated device.
local flare = require "flare"
flare.args(arg, "Copies batches to a device on one stream while another one computes.")

local device = flare.cuda.available() and "cuda" or "sim"
local compute, copies = flare.current_stream(device), flare.stream(device)

-- A data set on the host, and two pinned buffers, from which the device copies asynchronously.
flare.manual_seed(1)
local inputs = flare.randn(640, 8)
local targets = inputs:matmul(flare.randn(8, 1)) + 0.5
local pinned = {}
for k = 1, 2 do
  pinned[k] = {x = flare.zeros({64, 8}, {pinned = true}),
               y = flare.zeros({64, 1}, {pinned = true})}
end

-- Starts the copy of batch i; the copy is complete when the event `ready` has passed.
local function fetch(i)
  local p, from = pinned[i % 2 + 1], (i - 1) % 10 * 64 + 1
  if p.copied then p.copied:synchronize() end     -- the buffer has been read
  p.x:copy_(inputs[{{from, from + 63}}])
  p.y:copy_(targets[{{from, from + 63}}])
  local x = p.x:to(device, {stream = copies, async = true})
  local y = p.y:to(device, {stream = copies, async = true})
  p.copied = copies:record()
  return {x = x, y = y, ready = p.copied}
end

local w = flare.zeros({8, 1}, {device = device, requires_grad = true})
local b = flare.zeros({1}, {device = device, requires_grad = true})
local sgd = flare.optim.SGD({w, b}, {lr = 0.2})

flare.debug_streams(true)       -- says if a wait is missing; for trying out, not for speed
local batch, before, loss = fetch(1), nil, nil
for i = 1, 60 do
  compute:wait(batch.ready)
  loss = flare.mse_loss(batch.x:matmul(w) + b, batch.y)
  sgd:zero_grad()
  loss:backward()
  sgd:step()
  local used = compute:record()
  if before then before:synchronize() end         -- two batches at most are on the device
  before = used
  batch = fetch(i + 1)
end
print(("loss %.6f, bias %.3f"):format(loss:item(), b[1]:item()))
flare.debug_streams(false)
