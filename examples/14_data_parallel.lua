-- The spirals of 05_mlp.lua on several processes: flare launch -n 2 examples/14_data_parallel.lua
-- Only the lines with dist, shard and DataParallel are new. It also runs as a single process.
local flare = require "flare"
flare.args(arg, "Trains a network on several processes, each with a part of the data.")
local nn, optim, data, dist = flare.nn, flare.optim, flare.data, flare.dist
local rank = dist.init()

flare.manual_seed(1)
local n = 400
local turn = flare.rand(n):sqrt() * 6
local class = flare.randint(1, 3, {n})
local angle = turn + (class - 1):to("f32") * math.pi
local x = flare.stack({turn * angle:cos(), turn * angle:sin()}, {dim = 2}) / 6
local loader = data.Loader(data.Tensors(x, class), {batch = 100, shuffle = true,
  shard = dist.world})

local model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                            nn.Linear(64, 2))
model = dist.DataParallel(model)
local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
local loss_of = nn.CrossEntropyLoss()

for _ = 1, 75 do
  for a, b in loader:epoch() do
    optimizer:zero_grad()
    loss_of(model(a), b):backward()
    optimizer:step()
  end
end
local right = model(x):argmax(2):eq(class):to("f32"):mean():item()
if rank == 0 then print(("%d ranks, right: %.0f %%"):format(dist.size(), right * 100)) end
