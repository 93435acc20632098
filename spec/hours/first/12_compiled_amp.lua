-- A compiled training step with autocast, a schedule, clipping, accumulation and averaged weights.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(12)

local model = nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout(0.1),
  nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 4))
local decay, rest = {}, {}
for name, p in model:named_parameters() do
  if name:match "bias$" or p:dim() == 1 then rest[#rest + 1] = p else decay[#decay + 1] = p end
end
local optimizer = optim.AdamW({{params = decay, weight_decay = 0.1},
  {params = rest, weight_decay = 0}},
  {lr = 3e-3})
local total, accumulate = 120, 2
local schedule = optim.WarmupCosineLR(optimizer, {warmup = 10, total = total, floor = 0.1})
local ema = optim.EMA(model, {decay = 0.95})
local teacher = flare.randn(32, 4)

local function batch(n)
  local x = flare.randn(n, 32)
  return x, x:matmul(teacher):argmax(2)
end

local micro = flare.compile(function(x, y)
  local loss = flare.autocast("bf16", function()
    return flare.cross_entropy(model(x), y) / accumulate
  end)
  loss:backward()
  return loss:detach()
end)
local update = flare.compile(function()
  local norm = optim.clip_grad_norm_(model, 1)
  optimizer:step()
  optimizer:zero_grad()
  return norm
end)

local losses = {}
for step = 1, total do
  local loss = 0
  for _ = 1, accumulate do loss = loss + micro(batch(64)) end
  local norm = update()
  schedule:step()
  ema:update()
  losses[step] = loss:item()
  if step % 40 == 0 then
    print(("step %d: loss %.3f, norm %.2f, lr %.2e")
      :format(step, losses[step], norm:item(), schedule:lr()))
  end
end
print(flare.compile_stats(micro).launches, flare.compile_stats(micro).kernels)
assert(losses[total] < losses[1] / 2)

model:eval()
local x, y = batch(1000)
local function accuracy() return model(x):argmax(2):eq(y):mean():item() end
local plain = flare.no_grad(accuracy)
local averaged = flare.no_grad(function() return ema:with(accuracy) end)
print("accuracy", plain, "averaged", averaged)
assert(averaged > 0.8)

local report = flare.profile(function() micro(batch(64)) end)
print(report:text{by = "module", floor = false, most = 5})
