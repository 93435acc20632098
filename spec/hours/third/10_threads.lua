-- A search over learning rates on several threads, each with a Lua state of its own.
local flare = require "flare"

local worker = [[
  local rate = ...
  local flare = require "flare"
  flare.manual_seed(1)
  local model = flare.nn.Linear(4, 1)
  local optimizer = flare.optim.SGD(model, {lr = rate})
  local x = flare.randn(64, 4)
  local y = x:sum{dim = 2, keepdim = true}
  local loss
  for _ = 1, 50 do
    loss = flare.mse_loss(model(x), y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
  return loss:item(), model.weight:detach()
]]
local rates, threads = {0.001, 0.01, 0.1, 0.3}, {}
for k, rate in ipairs(rates) do threads[k] = flare.spawn(worker, rate) end
local best, at = math.huge, nil
for k, thread in ipairs(threads) do
  local ok, loss, weight = thread:join()
  assert(ok, loss)
  print(rates[k], loss, weight)
  if loss < best then best, at = loss, k end
end
print("best", rates[at], best)
assert(best < 1e-3 and at >= 3)
