-- ConvNeXt-T (arXiv:2201.03545): depthwise convolutions of 7 x 7, linear layers with channels
-- innermost, a scale for each channel, stochastic depth.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Block = flare.class("Block", nn.Module)

function Block:init(width, p)
  self.p = p
  self.depthwise = nn.Conv2d(width, width, 7, {padding = 3, groups = width})
  self.norm = nn.LayerNorm(width, {eps = 1e-6})
  self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
  self.scale = self:param(flare.ones(width))
end

function Block:forward(x)
  local y = self.norm(self.depthwise(x):permute(1, 3, 4, 2))
  y = (self.down(flare.gelu(self.up(y))) * self.scale):permute(1, 4, 2, 3)
  if self.training and self.p > 0 then
    local kept = flare.full({x:size(1), 1, 1, 1}, 1 - self.p, {device = x.device})
    y = y * (flare.bernoulli(kept) / (1 - self.p))
  end
  return x + y
end

-- A layer norm over the channels of (batch, channels, height, width).
local ChannelNorm = flare.class("ChannelNorm", nn.LayerNorm)

function ChannelNorm:forward(x)
  return nn.LayerNorm.forward(self, x:permute(1, 3, 4, 2)):permute(1, 4, 2, 3)
end

local ConvNeXt = flare.class("ConvNeXt", nn.Module)

function ConvNeXt:init(o)
  self.parts = nn.ModuleList()
  local blocks, total = 0, 0
  for _, depth in ipairs(o.depths) do total = total + depth end
  for stage, depth in ipairs(o.depths) do
    local width = o.width << (stage - 1)
    if stage == 1 then
      self.parts:append(nn.Conv2d(3, width, 4, {stride = 4}))
      self.parts:append(ChannelNorm(width, {eps = 1e-6}))
    else
      self.parts:append(ChannelNorm(width // 2, {eps = 1e-6}))
      self.parts:append(nn.Conv2d(width // 2, width, 2, {stride = 2}))
    end
    for _ = 1, depth do
      self.parts:append(Block(width, o.dropout * blocks / (total - 1)))
      blocks = blocks + 1
    end
  end
  local last = o.width << (#o.depths - 1)
  self.norm = nn.LayerNorm(last, {eps = 1e-6})
  self.head = nn.Linear(last, o.classes)
end

function ConvNeXt:forward(x)
  for _, part in ipairs(self.parts) do x = part(x) end
  return self.head(self.norm(x:mean {3, 4}))
end

local function build(o)
  local model = common.prepare(o, ConvNeXt(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.05})
  local x = common.numbers(o, {o.batch, 3, o.image, o.image})
  local y = common.ids(o, o.classes, {o.batch})
  local function forward() return F.cross_entropy(model(x), y) end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 4, image = 32, width = 8, depths = {1, 2}, classes = 10, dropout = 0.3},
    full = {batch = 128, image = 224, width = 96, depths = {3, 3, 9, 3}, classes = 1000,
            dropout = 0.1},
  },
}
