-- MLP-Mixer B/16 (arXiv:2105.01601): linear layers over patches and over channels.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Block = flare.class("Block", nn.Module)

function Block:init(o, patches)
  self.norm1 = nn.LayerNorm(o.width)
  self.up1, self.down1 = nn.Linear(patches, o.hidden), nn.Linear(o.hidden, patches)
  self.norm2 = nn.LayerNorm(o.width)
  self.up2, self.down2 = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)
end

function Block:forward(x)
  local y = self.norm1(x):transpose(2, 3)
  x = x + self.down1(flare.gelu(self.up1(y))):transpose(2, 3)
  return x + self.down2(flare.gelu(self.up2(self.norm2(x))))
end

local Mixer = flare.class("Mixer", nn.Module)

function Mixer:init(o)
  self.patches = nn.Conv2d(3, o.width, o.patch, {stride = o.patch})
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o, (o.image // o.patch) ^ 2 // 1 | 0)) end
  self.norm = nn.LayerNorm(o.width)
  self.head = nn.Linear(o.width, o.classes)
end

function Mixer:forward(x)
  local h = self.patches(x):flatten(3, 4):transpose(2, 3)
  for _, block in ipairs(self.blocks) do h = block(h) end
  return self.head(self.norm(h):mean(2))
end

local function build(o)
  local model = common.prepare(o, Mixer(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.1})
  local x = common.numbers(o, {o.batch, 3, o.image, o.image})
  local y = common.ids(o, o.classes, {o.batch})
  local function forward()
    return F.cross_entropy(model(x), y, {label_smoothing = 0.1})
  end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 2, image = 32, patch = 8, layers = 2, width = 32, hidden = 24, classes = 10},
    full = {batch = 128, image = 224, patch = 16, layers = 12, width = 768, hidden = 384,
            classes = 1000},
  },
}
