-- A GAN whose generator learns points on a ring: two optimizers, frozen parts, spectral norm.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(11)

local function real(n)
  local angle = flare.rand(n) * 2 * math.pi
  return flare.stack({angle:cos(), angle:sin()}, 2) * 2 + 0.05 * flare.randn(n, 2)
end

local generator = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64),
  nn.LeakyReLU(0.2),
  nn.Linear(64, 2))
local discriminator = nn.Sequential(nn.spectral_norm(nn.Linear(2, 64)), nn.LeakyReLU(0.2),
  nn.spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.2), nn.Linear(64, 1))
local g_opt = optim.Adam(generator:parameters(), {lr = 1e-3, betas = {0.5, 0.999}})
local d_opt = optim.Adam(discriminator:parameters(), {lr = 2e-3, betas = {0.5, 0.999}})
local bce = nn.BCEWithLogitsLoss()
local batch = 128
local ones, zeros = flare.ones(batch, 1), flare.zeros(batch, 1)

for step = 1, 1500 do
  local fake = generator(flare.randn(batch, 8))
  local d_loss = bce(discriminator(real(batch)), ones) + bce(discriminator(fake:detach()), zeros)
  d_opt:zero_grad()
  d_loss:backward()
  d_opt:step()

  local g_loss = bce(discriminator(fake), ones)
  g_opt:zero_grad()
  g_loss:backward()
  g_opt:step()
  if step % 500 == 0 then
    print(("step %d: d %.3f g %.3f"):format(step, d_loss:item(), g_loss:item()))
  end
end

local points = flare.no_grad(function() return generator(flare.randn(1000, 8)) end)
local radius = points:norm{dim = 2}
print("radius", radius:mean():item(), radius:std():item())
assert(math.abs(radius:mean():item() - 2) < 0.3)
-- all around the ring
local angle = flare.atan2(points:select(2, 2), points:select(2, 1))
local counts = angle:histc(8, -math.pi, math.pi)
print(counts)
assert(counts:min():item() > 0)
