-- A variational autoencoder of digits, with samples in a PNG file.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local D = flare.distributions
flare.manual_seed(3)

local VAE = flare.class("VAE", nn.Module)
function VAE:init(latent)
  self.latent = latent
  self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(),
    nn.Linear(128, 2 * latent))
  self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, 784))
end
function VAE:encode(x)
  local mean, log_var = table.unpack(self.encoder(x):chunk(2, 2))
  return D.Normal(mean, (0.5 * log_var):exp())
end
function VAE:forward(x)
  local posterior = self:encode(x)
  return self.decoder(posterior:rsample()), posterior
end
function VAE:sample(n)
  return self.decoder(flare.randn(n, self.latent)):sigmoid():view(n, 1, 28, 28)
end

local images, labels = data.digits(1000)
local loader = data.Loader(data.Tensors(images, labels),
  {batch = 50, shuffle = true, drop_last = true})
local model = VAE(8)
local optimizer = optim.Adam(model, {lr = 2e-3})
local prior = D.Normal(0, 1)
local first, last
for epoch = 1, 6 do
  local total, count = 0, 0
  for x in loader:epoch() do
    local logits, posterior = model(x)
    local rec = flare.bce_with_logits(logits, x:flatten(2), {reduction = "sum"})
    local kl = D.kl(posterior, prior):sum()
    local loss = (rec + kl) / #x
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    total, count = total + loss:item(), count + 1
  end
  last = total / count
  first = first or last
  print(("epoch %d: ELBO %.1f"):format(epoch, -last))
end
assert(last < 0.75 * first)

model:eval()
local samples = flare.no_grad(function() return model:sample(16) end)
assert(samples:min():item() >= 0 and samples:max():item() <= 1)
local grid = samples:view(4, 4, 28, 28):permute(1, 3, 2, 4):reshape(1, 4 * 28, 4 * 28)
local path = os.tmpname() .. ".png"
assert(data.images.write(path, (grid * 255):to("u8")))
local back = assert(data.images.read(path))
print(back.shape)
assert(back:size(2) == 112)
os.remove(path)
