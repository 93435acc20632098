--- A small U-Net: 3 x 3 convolutions, GroupNorm, SiLU, attention at the lowest resolution, and
-- nearest upsampling. Run as a script it takes steps and prints the losses:
--   flare spec/support/unet.lua DEVICE STEPS CHANNELS SIZE
local flare = require "flare"
local nn = flare.nn

local M = {}

-- GroupNorm, SiLU, convolution, twice, beside a shortcut.
local Block = flare.class("Block", nn.Module)

function Block:init(from, to)
  self.layers = nn.Sequential(
    nn.GroupNorm(8, from), nn.SiLU(), nn.Conv2d(from, to, 3, {padding = 1}),
    nn.GroupNorm(8, to), nn.SiLU(), nn.Conv2d(to, to, 3, {padding = 1}))
  self.shortcut = nn.Conv2d(from, to, 1)
end

function Block:forward(x) return self.layers(x) + self.shortcut(x) end

local UNet = flare.class("UNet", nn.Module)

function UNet:init(c)
  self.first = nn.Conv2d(3, c, 3, {padding = 1})
  self.one = Block(c, c)
  self.down = nn.Conv2d(c, 2 * c, 3, {stride = 2, padding = 1})
  self.two = Block(2 * c, 2 * c)
  self.attention = nn.MultiHeadAttention(2 * c, 4)
  self.up = nn.Upsample {scale = 2}
  self.after = nn.Conv2d(2 * c, c, 3, {padding = 1})
  self.three = Block(2 * c, c)
  self.last = nn.Conv2d(c, 3, 3, {padding = 1})
end

function UNet:forward(x)
  local a = self.one(self.first(x))
  local b = self.two(self.down(a))
  local n, c, h, w = table.unpack(b.shape)
  local rows = b:reshape(n, c, h * w):transpose(2, 3)
  b = b + self.attention(rows):transpose(2, 3):reshape(n, c, h, w)
  return self.last(self.three(flare.cat({a, self.after(self.up(b))}, 2)))
end

--- Takes steps in bf16; the losses.
function M.train(device, steps, channels, size)
  flare.manual_seed(1)
  local model = UNet(channels):to(device)
  local opt = flare.optim.AdamW(model:parameters(), {lr = 2e-4})
  local x = flare.randn(2, 3, size, size, {device = device})
  local losses = {}
  for step = 1, steps do
    local loss = (flare.autocast("bf16", model, x):float() - x):square():mean()
    opt:zero_grad()
    loss:backward()
    flare.optim.clip_grad_norm_(model:parameters(), 1)
    opt:step()
    losses[step] = loss:item()
  end
  return losses
end

if arg and arg[0] and arg[0]:find "unet%.lua$" then
  local losses = M.train(arg[1] or "cpu", tonumber(arg[2] or 5), tonumber(arg[3] or 64),
    tonumber(arg[4] or 32))
  for step, loss in ipairs(losses) do print(step, loss) end
  assert(losses[#losses] < losses[1], "it learns nothing")
end

return M
