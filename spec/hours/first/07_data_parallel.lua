-- Training by several processes: flare launch -n 2 07_data_parallel.lua
local flare = require "flare"
local nn, optim, data, dist, metrics = flare.nn, flare.optim, flare.data, flare.dist, flare.metrics

local rank = dist.init()
flare.manual_seed(1)
local x, y = data.digits(1200)
local held_x, held_y = data.digits(301, {seed = 9})
local loader = data.Loader(data.Tensors(x, y), {batch = 60, shuffle = true, shard = dist.world})
local validation = data.Loader(data.Tensors(held_x, held_y),
  {batch = 50, shard = dist.world, repeats = false})

local model = dist.DataParallel(nn.Sequential(nn.Flatten(),
  nn.Linear(784, 64, {act = "relu"}), nn.Linear(64, 10)))
local optimizer = optim.AdamW(model:parameters(), {lr = 3e-3})
for epoch = 1, 4 do
  for a, b in loader:epoch() do
    local loss = flare.cross_entropy(model(a), b)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
  local accuracy = metrics.Accuracy()
  for a, b in validation:epoch() do
    accuracy:update(flare.no_grad(function() return model(a) end), b)
  end
  local share = accuracy:compute()               -- all ranks call it
  if rank == 0 then print(("epoch %d on %d ranks: %.3f"):format(epoch, dist.size(), share)) end
  if epoch == 4 then assert(share > 0.9, share) end
end

-- all ranks have the same weights
local sum = flare.zeros(1)
for _, p in ipairs(model:parameters()) do sum:add_(p:detach():abs():sum()) end
local highest, lowest = dist.all_reduce(sum, {reduce = "max"}),
  dist.all_reduce(sum, {reduce = "min"})
assert(highest:item() == lowest:item())

if rank == 0 then
  local path = os.tmpname()
  assert(flare.save(path, model:state_dict()))
  local plain = nn.Sequential(nn.Flatten(), nn.Linear(784, 64, {act = "relu"}), nn.Linear(64, 10))
  plain:load_state_dict(assert(flare.load(path)))
  os.remove(path)
  print("saved and loaded", plain(held_x):argmax(2):eq(held_y):mean():item())
end
dist.barrier()
