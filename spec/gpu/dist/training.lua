-- Data parallel and ZeRO 1 to 3 on GPUs against one process on the whole batch, in f64; buckets
-- that leave while backward goes on. Under flare launch; ends with a line "right".
local flare = require "flare"
local nn, optim, dist = flare.nn, flare.optim, flare.dist

local rank, size = dist.init()
local device = arg[1] or "cuda:" .. dist.local_rank()

local function make(seed)
  flare.manual_seed(seed or 3)
  return nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.LayerNorm(33),
    nn.Sequential(nn.Linear(33, 20), nn.ReLU()), nn.Linear(20, 3)):to(device):to "f64"
end
flare.manual_seed(9)
local x = flare.randn({8 * size, 6}, {dtype = "f64"}):to(device)
local y = flare.randn({8 * size, 3}, {dtype = "f64"}):to(device)
local a, b = x:narrow(1, rank * 8 + 1, 8), y:narrow(1, rank * 8 + 1, 8)

local function adam(params) return optim.Adam(params, {lr = 0.01}) end

local function train(model, o, input, target, steps)
  for _ = 1, steps do
    o:zero_grad();
    (model(input) - target):square():mean():backward()
    o:step()
  end
  return model
end

local alone = make()
train(alone, adam(alone:parameters()), x, y, 6)

local function check(what, state, limit)
  local most = 0
  for name, p in alone:named_parameters() do
    most = math.max(most, (state[name]:detach() - p:detach()):abs():max():item())
    local all = dist.all_gather(state[name]:detach():sum():reshape(1))
    assert(all:eq(all[1]):all():item(), what .. ": ranks differ in " .. name)
  end
  assert(most < (limit or 1e-12), ("%s: off by %g"):format(what, most))
  if rank == 0 then print(("%s: within %.1g"):format(what, most)) end
end

for _, mb in ipairs {25, 0.001} do
  local model = dist.DataParallel(make(rank + 3), {bucket_mb = mb})
  train(model, adam(model:parameters()), a, b, 6)
  check(("DataParallel, buckets of %g MB"):format(mb), model:state_dict())
end
for k, words in ipairs {"1", "2", "3", "3, computed again", "3, nothing gathered again"} do
  local zero = dist.ZeRO(make(rank + 3), adam, {stage = math.min(k, 3), bucket_mb = 0.003,
    recompute = k == 4, regather = k < 5})
  train(zero, zero, a, b, 6)
  check("ZeRO " .. words, zero:state_dict())
end
for _, dtype in ipairs {"bf16", "f16"} do -- Adam's first steps have the size of lr, 0.01
  local model = dist.DataParallel(make(rank + 3), {bucket_mb = 0.001, compress = dtype})
  train(model, adam(model:parameters()), a, b, 6)
  check("DataParallel, gradients in " .. dtype, model:state_dict(), 0.06)
  local zero = dist.ZeRO(make(rank + 3), adam, {stage = 3, compress = dtype})
  train(zero, zero, a, b, 6)
  check("ZeRO 3, gradients in " .. dtype, zero:state_dict(), 0.06)
end
local model = dist.DataParallel(make())
local o = adam(model:parameters())
for _ = 1, 6 do
  o:zero_grad()
  local function half(from)
    local diff = model(a:narrow(1, from, 4)) - b:narrow(1, from, 4);
    (diff:square():mean() * 0.5):backward()
  end
  model:no_sync(half, 1)
  half(5)
  o:step()
end
check("gradients accumulated", model:state_dict())
if rank == 0 then print("right") end
