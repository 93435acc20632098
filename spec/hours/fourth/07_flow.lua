-- A normalizing flow (RealNVP) and a mixture density network: densities that integrate to one.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local D = flare.distributions
flare.manual_seed(7)

local function moons(n)
  local angle = flare.rand(n) * math.pi
  local up = flare.rand(n):gt(0.5):float()
  local px = flare.where(up:gt(0), angle:cos(), 1 - angle:cos())
  local py = flare.where(up:gt(0), angle:sin(), 0.5 - angle:sin())
  return flare.stack({px, py}, 2) + 0.05 * flare.randn(n, 2)
end

local Coupling = flare.class("Coupling", nn.Module)
function Coupling:init(flip)
  self.flip = flip
  self.net = nn.Sequential(nn.Linear(1, 64, {act = "relu"}), nn.Linear(64, 64, {act = "relu"}),
    nn.Linear(64, 2))
end
function Coupling:forward(x)                          -- to the latent, and log |det|
  if self.flip then x = x:flip(2) end
  local a, b = x[{{}, {1}}], x[{{}, {2}}]
  local s, t = table.unpack(self.net(a):chunk(2, 2))
  s = s:tanh()
  local z = flare.cat({a, b * s:exp() + t}, 2)
  if self.flip then z = z:flip(2) end
  return z, s:squeeze(2)
end
function Coupling:inverse(z)
  if self.flip then z = z:flip(2) end
  local a, b = z[{{}, {1}}], z[{{}, {2}}]
  local s, t = table.unpack(self.net(a):chunk(2, 2))
  local x = flare.cat({a, (b - t) / s:tanh():exp()}, 2)
  if self.flip then x = x:flip(2) end
  return x
end

local layers = nn.ModuleList{}
for k = 1, 6 do layers:append(Coupling(k % 2 == 0)) end
local base = D.Independent(D.Normal(flare.zeros(2), flare.ones(2)), 1)
local function log_prob(x)
  local sum = 0
  for _, layer in ipairs(layers) do
    local log_det
    x, log_det = layer(x)
    sum = sum + log_det
  end
  return base:log_prob(x) + sum
end
local optimizer = optim.Adam(layers, {lr = 2e-3})
for step = 1, 500 do
  local loss = -log_prob(moons(128)):mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 125 == 0 then print(step, loss:item()) end
end
local side = flare.linspace(-3, 4, 141)
local gx, gy = flare.meshgrid(side, side)
local grid = flare.stack({gx:flatten(), gy:flatten()}, 2)
local mass = flare.no_grad(function() return log_prob(grid):exp():sum():item() * 0.05 ^ 2 end)
print("mass", mass)
assert(math.abs(mass - 1) < 0.1, mass)
local x = moons(10)
local back = flare.no_grad(function()
  local z = x
  for k = 1, #layers do z = (layers[k](z)) end
  for k = #layers, 1, -1 do z = layers[k]:inverse(z) end
  return z
end)
assert((back - x):abs():max():item() < 1e-3)

-- the mixture density network: y given x has two branches
local mdn = nn.Sequential(nn.Linear(1, 32, {act = "tanh"}), nn.Linear(32, 6))
local function mixture(a)
  local logits, mean, log_std = table.unpack(mdn(a):chunk(3, 2))
  return D.MixtureSameFamily(D.Categorical{logits = logits}, D.Normal(mean, log_std:exp()))
end
local opt = optim.Adam(mdn, {lr = 1e-2})
local first, last
for _ = 1, 300 do
  local a = flare.rand(128, 1) * 2 - 1
  local sign = flare.rand(128):gt(0.5):float() * 2 - 1
  local b = sign * (a:squeeze(2) + 1.2) + 0.05 * flare.randn(128)
  local loss = -mixture(a):log_prob(b):mean()
  opt:zero_grad()
  loss:backward()
  opt:step()
  first, last = first or loss:item(), loss:item()
end
print("mixture", first, last)
assert(last < 0)
print(mixture(flare.tensor{{0.5}}):sample().shape)
