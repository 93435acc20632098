-- Contrastive learning (SimCLR) of digits without labels, then a linear probe.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local t = data.transforms
flare.manual_seed(4)

local x, y = data.digits(1000)
local change = t.Compose{t.RandomAffine{degrees = 15, translate = {0.1, 0.1}, scale = {0.9, 1.1}},
  t.GaussianBlur(3)}
local encoder = nn.Sequential(nn.Conv2d(1, 16, 3, {stride = 2, padding = 1}), nn.ReLU(),
  nn.Conv2d(16, 32, 3, {stride = 2, padding = 1}), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 64))
local head = nn.Sequential(nn.ReLU(), nn.Linear(64, 32))
local both = nn.ModuleList{encoder, head}

local function nt_xent(a, b, temperature)
  local n = #a
  local z = flare.normalize(flare.cat({a, b}, 1), {dim = 2})
  local similarity = z:matmul(z.T) / temperature
  similarity = similarity:masked_fill(flare.eye(2 * n):gt(0), -math.huge)
  local other = flare.cat({flare.range(n + 1, 2 * n), flare.range(1, n)}, 1)
  return flare.cross_entropy(similarity, other)
end

local optimizer = optim.AdamW(both, {lr = 2e-3})
local first, last
local loader = data.Loader(data.Tensors(x, y), {batch = 100, shuffle = true, drop_last = true})
for _ = 1, 4 do
  for images in loader:epoch() do
    local loss = nt_xent(head(encoder(change(images))), head(encoder(change(images))), 0.2)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    first, last = first or loss:item(), loss:item()
  end
end
print("contrastive loss", first, last)
assert(last < first)

encoder:eval()
local function features(images) return flare.no_grad(encoder, images) end
local held_x, held_y = data.digits(300, {seed = 7})
local few, few_y = x[{{1, 100}}], y[{{1, 100}}]
local probe = nn.Linear(64, 10)
local f = features(few)
local mean, std = f:mean(1), f:std(1) + 1e-5
local opt = optim.LBFGS(probe, {max_iter = 40})
opt:step(function()
  opt:zero_grad()
  local loss = flare.cross_entropy(probe((f - mean) / std), few_y)
    + 1e-3 * probe.weight:square():sum()
  loss:backward()
  return loss
end)
local right = probe((features(held_x) - mean) / std):argmax(2):eq(held_y):mean():item()
print("probe of 100 labels", right)
assert(right > 0.7, right)
