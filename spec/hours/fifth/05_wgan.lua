-- A WGAN with a gradient penalty: convolutional generator and critic of 16 x 16 digits.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(5)

local images = flare.interpolate(data.digits(400), {size = {16, 16}, mode = "linear"}) * 2 - 1
local generator = nn.Sequential(nn.Linear(16, 32 * 4 * 4), nn.ReLU(), nn.Unflatten(2, {32, 4, 4}),
  nn.ConvTranspose2d(32, 16, 4, {stride = 2, padding = 1}), nn.BatchNorm2d(16), nn.ReLU(),
  nn.ConvTranspose2d(16, 1, 4, {stride = 2, padding = 1}), nn.Tanh())
local critic = nn.Sequential(nn.Conv2d(1, 16, 4, {stride = 2, padding = 1}), nn.LeakyReLU(0.2),
  nn.Conv2d(16, 32, 4, {stride = 2, padding = 1}), nn.LeakyReLU(0.2), nn.Flatten(),
  nn.Linear(512, 1))
local g_opt = optim.Adam(generator, {lr = 1e-3, betas = {0, 0.9}})
local c_opt = optim.Adam(critic, {lr = 1e-3, betas = {0, 0.9}})

local function penalty(real, fake)
  local mix = flare.rand(#real, 1, 1, 1)
  local x = (mix * real + (1 - mix) * fake):detach():requires_grad_()
  local g = flare.grad(critic(x):sum(), {x}, {create_graph = true})
  return ((g:flatten(2):norm{dim = 2} - 1) ^ 2):mean()
end
local loader = data.Loader(data.Tensors(images), {batch = 32, shuffle = true, drop_last = true})
local step, distance = 0, nil
for real in loader:forever() do
  step = step + 1
  local fake = flare.no_grad(function() return generator(flare.randn(32, 16)) end)
  local gap = critic(real):mean() - critic(fake):mean()
  local loss = -gap + 10 * penalty(real, fake)
  c_opt:zero_grad()
  loss:backward()
  c_opt:step()
  distance = gap:item()
  if step % 3 == 0 then
    local g_loss = -critic(generator(flare.randn(32, 16))):mean()
    g_opt:zero_grad()
    g_loss:backward()
    g_opt:step()
  end
  if step % 100 == 0 then print(step, distance) end
  if step == 300 then break end
end
generator:eval()
local samples = flare.no_grad(generator, flare.randn(64, 16))
local a, b = samples:mean(1):flatten(), images:mean(1):flatten()
local like = flare.cosine_similarity(a + 1, b + 1, {dim = 1}):item()
print("mean image", like, distance)
assert(like > 0.8, like)
