-- BERT-base (arXiv:1810.04805), masked language modelling: norms after the residual sums, dropout
-- in attention and after each part, loss at 15 % of the positions.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Block = flare.class("Block", nn.Module)

function Block:init(o)
  self.heads, self.p = o.heads, o.dropout
  self.q, self.k = nn.Linear(o.width, o.width), nn.Linear(o.width, o.width)
  self.v = nn.Linear(o.width, o.width)
  self.out = nn.Linear(o.width, o.width)
  self.norm1 = nn.LayerNorm(o.width, {eps = 1e-12})
  self.up, self.down = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)
  self.norm2 = nn.LayerNorm(o.width, {eps = 1e-12})
  self.drop = nn.Dropout(o.dropout)
end

function Block:forward(x)
  local batch, time, width = table.unpack(x.shape)
  local function heads(y) return y:view(batch, time, self.heads, -1):transpose(2, 3) end
  local y = flare.attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)),
                            {dropout = self.training and self.p or 0})
  y = self.out(y:transpose(2, 3):reshape(batch, time, width))
  x = self.norm1(x + self.drop(y))
  return self.norm2(x + self.drop(self.down(flare.gelu(self.up(x)))))
end

local BERT = flare.class("BERT", nn.Module)

function BERT:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.embed_positions = nn.Embedding(o.time, o.width)
  self.embed_types = nn.Embedding(2, o.width)
  self.norm = nn.LayerNorm(o.width, {eps = 1e-12})
  self.drop = nn.Dropout(o.dropout)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.dense = nn.Linear(o.width, o.width)
  self.norm_head = nn.LayerNorm(o.width, {eps = 1e-12})
  self.bias = self:param(flare.zeros(o.vocabulary))
end

function BERT:forward(x, types, labels)
  local h = self.embed(x) + self.embed_positions.weight:narrow(1, 1, x:size(2))
    + self.embed_types(types)
  h = self.drop(self.norm(h))
  for _, block in ipairs(self.blocks) do h = block(h) end
  h = self.norm_head(flare.gelu(self.dense(h)))
  local logits = F.linear(h, self.embed.weight, self.bias)
  return F.cross_entropy(logits:flatten(1, 2), labels:flatten(1, 2))
end

local function build(o)
  local model = common.prepare(o, BERT(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 1e-4, weight_decay = 0.01})
  local x, types = common.ids(o, o.vocabulary, {o.batch, o.time}), common.ids(o, 2, {o.batch, 1}, 3)
  local masked = common.ids(o, 100, {o.batch, o.time}, 4):le(15)
  local labels = flare.where(masked, x, -100)
  x = flare.where(masked, 4, x)
  types = types:expand(o.batch, o.time):contiguous()
  local function forward() return model(x, types, labels) end
  return {model = model, items = o.batch * o.time,
          step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "tokens", build = build,
  sizes = {
    small = {batch = 3, time = 16, layers = 2, width = 32, heads = 2, vocabulary = 60,
             dropout = 0.1},
    full = {batch = 32, time = 512, layers = 12, width = 768, heads = 12, vocabulary = 30522,
            dropout = 0.1},
  },
}
