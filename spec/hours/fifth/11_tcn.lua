-- A causal convolutional network forecasts quantiles of a series; the coverage of its bands.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(11)

local n, window = 1500, 48
local time = flare.arange(0, n):float()
local series = (2 * math.pi * time / 24):sin() + 0.3 * (2 * math.pi * time / 7):cos()
local spread = 0.1 + 0.15 * (2 * math.pi * time / 24):cos():clamp{min = 0}
series = series + spread * flare.randn(n)

local Causal = flare.class("Causal", nn.Module)
function Causal:init(inputs, outputs, dilation)
  self.left = 2 * dilation
  self.conv = nn.weight_norm(nn.Conv1d(inputs, outputs, 3, {dilation = dilation}))
  self.same = inputs == outputs
end
function Causal:forward(x)
  local h = self.conv(flare.pad(x, {self.left, 0})):relu()
  return self.same and x + h or h
end
local quantiles = flare.tensor{0.1, 0.5, 0.9}
local model = nn.Sequential(Causal(1, 16, 1), Causal(16, 16, 2), Causal(16, 16, 4),
  Causal(16, 16, 8), nn.Conv1d(16, 3, 1))
-- nothing of the future is seen
local probe = flare.randn(1, 1, 20)
local changed = probe:clone()
changed[{1, 1, 15}] = 9
local difference = (model(probe) - model(changed)):abs():sum{dim = {1, 2}}
assert(difference[{{1, 14}}]:max():item() == 0 and difference[15]:item() > 0)

local function pinball(p, target)               -- (batch, 3, time), (batch, 1, time)
  local e = target - p
  local q = quantiles:view(1, 3, 1)
  return flare.maximum(q * e, (q - 1) * e):mean()
end
local windows = series:unfold(1, window + 1, 1):unsqueeze(2):contiguous()
local train, held = windows[{{1, 1200}}], windows[{{1260, -1}}]
local optimizer = optim.AdamW(model, {lr = 4e-3})
for epoch = 1, 6 do
  local last
  for w in data.Loader(data.Tensors(train), {batch = 64, shuffle = true, seed = epoch}):epoch() do
    local loss = pinball(model(w[{"...", {1, -2}}]), w[{"...", {2, -1}}])
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_value_(model, 1)
    optimizer:step()
    last = loss:item()
  end
  print(epoch, last)
end
model:eval()
local p = flare.no_grad(model, held[{"...", {1, -2}}])[{"...", -1}]
local truth = held[{{}, 1, -1}]
local inside = (truth:gt(p[{{}, 1}]) & truth:lt(p[{{}, 3}])):mean():item()
local mae = (p[{{}, 2}] - truth):abs():mean():item()
print("inside of the band", inside, "mean absolute error", mae)
assert(inside > 0.6 and inside < 0.95 and mae < 0.25)
nn.remove_parametrization(model[1].conv)
assert(flare.class.is(model[1].conv, nn.Conv1d))
