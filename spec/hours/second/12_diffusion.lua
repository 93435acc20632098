-- Denoising diffusion of digits of 16 x 16 pixels: a U-Net of one's own, averaged weights.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(1)

local images = data.digits(512)
images = flare.interpolate(images, {size = {16, 16}, mode = "linear"}) * 2 - 1

local Block = flare.class("Block", nn.Module)
function Block:init(inputs, outputs, time)
  self.conv1 = nn.Conv2d(inputs, outputs, 3, {padding = 1})
  self.norm = nn.GroupNorm(4, outputs)
  self.time = nn.Linear(time, outputs)
  self.conv2 = nn.Conv2d(outputs, outputs, 3, {padding = 1})
end
function Block:forward(x, t)
  local h = flare.silu(self.norm(self.conv1(x)))
  h = h + self.time(t)[{"...", "new", "new"}]
  return flare.silu(self.conv2(h))
end

local UNet = flare.class("UNet", nn.Module)
function UNet:init(width)
  self.embed = nn.Sequential(nn.Linear(16, 32), nn.SiLU())
  self.down = Block(1, width, 32)
  self.middle = Block(width, 2 * width, 32)
  self.up = Block(3 * width, width, 32)
  self.upsample = nn.Upsample{scale = 2}
  self.out = nn.Conv2d(width, 1, 1)
end
function UNet:forward(x, t)
  local f = t:float():unsqueeze(2) * (flare.arange(0, 8):float() * -1.15):exp()
  local e = self.embed(flare.cat({f:sin(), f:cos()}, 2))
  local a = self.down(x, e)
  local b = self.middle(flare.avg_pool(a, 2), e)
  return self.out(self.up(flare.cat({a, self.upsample(b)}, 2), e))
end

local T = 100
local beta = flare.linspace(1e-4, 0.05, T)
local kept = (1 - beta):cumprod(1)
local model = UNet(16)
local optimizer = optim.AdamW(model, {lr = 2e-3})
local ema = optim.EMA(model, {decay = 0.99})
local folder = os.tmpname()
os.remove(folder)
local board = assert(flare.log.tensorboard(folder))
local step = flare.compile(function(x, t, noise)
  local a = kept[t]:view(-1, 1, 1, 1)
  local loss = flare.mse_loss(model(a:sqrt() * x + (1 - a):sqrt() * noise, t), noise)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  return loss
end)
local loader = data.Loader(data.Tensors(images), {batch = 64, shuffle = true, drop_last = true})
local count, first, last = 0, nil, 0
for x in loader:forever() do
  count = count + 1
  local loss = step(x, flare.randint(1, T + 1, {#x}), flare.randn(x.shape)):item()
  ema:update()
  first, last = first or loss, count == 1 and loss or 0.9 * last + 0.1 * loss
  board:scalar("loss", loss, count)
  if count == 80 then break end
end
print("loss", first, last)
assert(last < first / 2)

local samples = flare.no_grad(function()
  return ema:with(function()
    local x = flare.randn(9, 1, 16, 16)
    for t = T, 1, -1 do
      local b, a = beta[t], kept[t]
      local noise = model(x, flare.full({9}, t, {dtype = "i64"}))
      x = (x - b / (1 - a):sqrt() * noise) / (1 - b):sqrt()
      if t > 1 then x = x + b:sqrt() * flare.randn_like(x) end
    end
    return x
  end)
end)
print(samples.shape, samples:mean():item(), samples:std():item())
assert(samples:isfinite():all():item() and math.abs(samples:mean():item()) < 1.5)
board:image("samples", (samples + 1) / 2, count)
board:histogram("out", model.out.weight, count)
board:close()
assert(#flare.core.file.list(folder) == 1)
os.execute("rm -r " .. folder)
