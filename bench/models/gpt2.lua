-- GPT-2 124M (Radford et al. 2019): a training step with the loss over the whole vocabulary.
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
  self.drop = nn.Dropout(o.dropout)
end

function Block:forward(x)
  local batch, time, width = table.unpack(x.shape)
  local qkv = self.qkv(self.norm1(x)):view(batch, time, 3, self.heads, width // self.heads)
  local heads = qkv:permute(3, 1, 4, 2, 5)
  local y = flare.attention(heads[1], heads[2], heads[3], {causal = true})
  x = x + self.drop(self.proj(y:transpose(2, 3):reshape(x.shape)))
  return x + self.drop(self.down(flare.gelu(self.up(self.norm2(x)), "tanh")))
end

local GPT = flare.class("GPT", nn.Module)

function GPT:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.embed_positions = nn.Embedding(o.time, o.width)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.norm = nn.LayerNorm(o.width)
  self.drop = nn.Dropout(o.dropout)
end

function GPT:forward(x, y)
  local h = self.drop(self.embed(x) + self.embed_positions.weight:narrow(1, 1, x:size(2)))
  for _, block in ipairs(self.blocks) do h = block(h) end
  local logits = F.linear(self.norm(h), self.embed.weight)
  return F.cross_entropy(logits:flatten(1, 2), y:flatten(1, 2))
end

local function build(o)
  local model = common.prepare(o, GPT(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.01})
  local text = common.ids(o, o.tokens, {o.batch, o.time + 1})
  local x, y = text:narrow(2, 1, o.time):contiguous(), text:narrow(2, 2, o.time):contiguous()
  local function forward() return model(x, y) end
  return {model = model, items = o.batch * o.time,
          step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "tokens", build = build,
  sizes = {
    small = {batch = 2, time = 16, layers = 2, width = 32, heads = 2, vocabulary = 64, tokens = 60,
             dropout = 0.1},
    full = {batch = 64, time = 1024, layers = 12, width = 768, heads = 12, vocabulary = 50304,
            tokens = 50257, dropout = 0},
  },
}
