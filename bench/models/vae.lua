-- A convolutional variational autoencoder (arXiv:1312.6114) of images of 64 x 64. A step draws
-- noise; noise=fixed takes the same in each step.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local VAE = flare.class("VAE", nn.Module)

function VAE:init(o)
  self.encoder, self.decoder = nn.Sequential(), nn.Sequential()
  local channels, side = 3, o.image
  for k = 0, o.layers - 1 do
    local width = o.width << k
    self.encoder:append(nn.Conv2d(channels, width, 3, {stride = 2, padding = 1, bias = false}))
    self.encoder:append(nn.BatchNorm2d(width)):append(nn.LeakyReLU())
    channels, side = width, side // 2
  end
  self.inner, self.side = channels, side
  self.mean = nn.Linear(channels * side * side, o.latent)
  self.log_var = nn.Linear(channels * side * side, o.latent)
  self.back = nn.Linear(o.latent, channels * side * side)
  for k = o.layers - 2, 0, -1 do
    local width = o.width << k
    self.decoder:append(nn.ConvTranspose2d(channels, width, 4, {stride = 2, padding = 1,
                                                                bias = false}))
    self.decoder:append(nn.BatchNorm2d(width)):append(nn.LeakyReLU())
    channels = width
  end
  self.last = nn.ConvTranspose2d(channels, 3, 4, {stride = 2, padding = 1})
end

function VAE:forward(x, noise)
  local h = self.encoder(x):flatten(2)
  local mean, log_var = self.mean(h):to "f32", self.log_var(h):to "f32"
  local z = mean + (log_var * 0.5):exp() * noise
  local y = self.last(self.decoder(self.back(z):view(-1, self.inner, self.side, self.side)))
  local loss = F.bce_with_logits(y:to "f32", x, {reduction = "sum"})
  local kl = -0.5 * (1 + log_var - mean * mean - log_var:exp()):sum()
  return (loss + kl) / x:size(1)
end

local function build(o)
  local model = common.prepare(o, VAE(o))
  local optimizer = flare.optim.Adam(model:parameters(), {lr = 1e-3})
  local x = common.numbers(o, {o.batch, 3, o.image, o.image}):sigmoid()
  local noise = common.numbers(o, {o.batch, o.latent}, 3)
  local function forward()
    if o.noise == "drawn" then noise = flare.randn({o.batch, o.latent}, {device = o.device}) end
    return model(x, noise)
  end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 4, image = 16, width = 8, layers = 2, latent = 4, noise = "drawn"},
    full = {batch = 256, image = 64, width = 32, layers = 4, latent = 128, noise = "drawn"},
  },
}
