-- A pipeline of two ranks and a divided layer, compared with one process:
-- flare launch -n 2 05_pipeline.lua
local flare = require "flare"
local nn, optim, dist = flare.nn, flare.optim, flare.dist
local rank = dist.init()

local function make()
  flare.manual_seed(5)
  return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    :to "f64"
end
local x = flare.randn({64, 8}, {generator = flare.generator(1), dtype = "f64"})
local y = x:sum{dim = 2, keepdim = true}
local function loss_of(p, target) return (p - target):square():mean() end

-- alone
local model = make()
local optimizer = optim.SGD(model, {lr = 0.05})
local alone = {}
for step = 1, 10 do
  local loss = loss_of(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  alone[step] = loss:item()
end

-- as a pipeline
local pipe = dist.Pipeline(make(), dist.mesh{pp = dist.size()}, {scheme = "1f1b", micro_batches = 4,
  loss = loss_of, optimizer = function(params) return optim.SGD(params, {lr = 0.05}) end})
for step = 1, 10 do
  pipe.optimizer:zero_grad()
  local loss = pipe:step(x, y):item()
  pipe.optimizer:step()
  assert(math.abs(loss - alone[step]) < 1e-10, ("%d: %g %g"):format(step, loss, alone[step]))
end

-- with divided layers
local divided = dist.tensor_parallel(make(), dist.mesh{tp = dist.size()},
  {plan = {["1"] = "column", ["3"] = "row"}})
local opt = optim.SGD(divided:parameters(), {lr = 0.05})
for step = 1, 10 do
  local loss = loss_of(divided(x), y)
  opt:zero_grad()
  loss:backward()
  opt:step()
  assert(math.abs(loss:item() - alone[step]) < 1e-10, step)
end
local state = dist.state_dict(divided)
assert((state["1.weight"] - model:state_dict()["1.weight"]):abs():max():item() < 1e-10)
if rank == 0 then
  print(divided[1], divided[3])
  print("the same losses by", dist.size(), "ranks", alone[1], alone[10])
end
