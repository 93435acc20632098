-- ViT-B/16 (arXiv:2010.11929): images of 224 as 196 patches and a class token.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Block = flare.class("Block", nn.Module)

function Block:init(o)
  self.heads = o.heads
  self.norm1 = nn.LayerNorm(o.width)
  self.qkv = nn.Linear(o.width, 3 * o.width)
  self.proj = nn.Linear(o.width, o.width)
  self.norm2 = nn.LayerNorm(o.width)
  self.up = nn.Linear(o.width, 4 * o.width)
  self.down = nn.Linear(4 * o.width, o.width)
end

function Block:forward(x)
  local batch, time, width = table.unpack(x.shape)
  local qkv = self.qkv(self.norm1(x)):view(batch, time, 3, self.heads, width // self.heads)
  local heads = qkv:permute(3, 1, 4, 2, 5)
  local y = flare.attention(heads[1], heads[2], heads[3])
  x = x + self.proj(y:transpose(2, 3):reshape(x.shape))
  return x + self.down(flare.gelu(self.up(self.norm2(x))))
end

local ViT = flare.class("ViT", nn.Module)

function ViT:init(o)
  local patches = (o.image // o.patch) ^ 2 // 1 | 0
  self.patches = nn.Conv2d(3, o.width, o.patch, {stride = o.patch})
  self.embed_class = self:param(flare.zeros(1, 1, o.width))
  self.embed_positions = self:param(flare.zeros(1, patches + 1, o.width))
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.norm = nn.LayerNorm(o.width)
  self.head = nn.Linear(o.width, o.classes)
end

function ViT:forward(x)
  local h = self.patches(x):flatten(3, 4):transpose(2, 3)
  h = flare.cat({self.embed_class:expand(h:size(1), -1, -1), h}, 2) + self.embed_positions
  for _, block in ipairs(self.blocks) do h = block(h) end
  return self.head(self.norm(h):select(2, 1))
end

local function build(o)
  local model = common.prepare(o, ViT(o))
  local x = common.numbers(o, {o.batch, 3, o.image, o.image})
  local y = common.ids(o, o.classes, {o.batch})
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.05})
  local function forward() return F.cross_entropy(model(x), y) end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 2, image = 32, patch = 8, layers = 2, width = 32, heads = 2, classes = 10},
    full = {batch = 128, image = 224, patch = 16, layers = 12, width = 768, heads = 12,
            classes = 1000},
  },
}
