-- An encoder and decoder like T5's (arXiv:1910.10683): attention of plain operators with a learned
-- bias for each distance, norms without means, no biases in linear layers.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Norm = flare.class("Norm", nn.Module)

function Norm:init(width) self.weight = self:param(flare.ones(width)) end

function Norm:forward(x)
  x = x:to "f32"
  return x * ((x * x):mean(-1, {keepdim = true}) + 1e-6):rsqrt() * self.weight
end

local Attention = flare.class("Attention", nn.Module)

function Attention:init(o)
  self.heads = o.heads
  self.q = nn.Linear(o.width, o.width, {bias = false})
  self.k = nn.Linear(o.width, o.width, {bias = false})
  self.v = nn.Linear(o.width, o.width, {bias = false})
  self.out = nn.Linear(o.width, o.width, {bias = false})
  self.drop = nn.Dropout(o.dropout)
end

-- x (batch, time, width), memory (batch, other, width), bias (1, heads, time, other) or nil
function Attention:forward(x, memory, bias)
  local batch, time, width = table.unpack(x.shape)
  local function heads(y)
    return y:view(batch, -1, self.heads, width // self.heads):transpose(2, 3)
  end
  local q, k, v = heads(self.q(x)), heads(self.k(memory)), heads(self.v(memory))
  local scores = q:matmul(k:transpose(3, 4))
  if bias then scores = scores + bias end
  local weights = self.drop(flare.softmax(scores:to "f32", -1))
  return self.out(weights:matmul(v):transpose(2, 3):reshape(batch, time, width))
end

local Block = flare.class("Block", nn.Module)

function Block:init(o, decoder)
  self.norm1, self.attention = Norm(o.width), Attention(o)
  if decoder then self.norm2, self.cross = Norm(o.width), Attention(o) end
  self.norm3 = Norm(o.width)
  self.up = nn.Linear(o.width, 4 * o.width, {bias = false})
  self.down = nn.Linear(4 * o.width, o.width, {bias = false})
  self.drop = nn.Dropout(o.dropout)
end

function Block:forward(x, bias, memory)
  local h = self.norm1(x)
  x = x + self.drop(self.attention(h, h, bias))
  if self.cross then x = x + self.drop(self.cross(self.norm2(x), memory)) end
  return x + self.drop(self.down(self.drop(self.up(self.norm3(x)):relu())))
end

-- Positions of the table for each pair of query and key: half of the buckets are for small
-- distances, one each; the others grow with the logarithm of the distance up to 128.
local function buckets(time, count, both)
  local at = flare.arange(0, time)
  local d = at:unsqueeze(1) - at:unsqueeze(2) -- key - query
  local base = flare.zeros_like(d)
  if both then
    count = count // 2
    base = d:gt(0):to "i64" * count
    d = d:abs()
  else
    d = (-d):clamp(0, time)
  end
  local exact = count // 2
  local far = ((d:to "f32" / exact):clamp(1e-6, math.huge):log() * ((count - exact)
    / math.log(128 / exact))):to "i64" + exact
  return base + flare.where(d:lt(exact), d, far:clamp(0, count - 1)) + 1
end

local T5 = flare.class("T5", nn.Module)

function T5:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.embed_near = nn.Embedding(o.buckets, o.heads)
  self.embed_past = nn.Embedding(o.buckets, o.heads)
  self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
  for _ = 1, o.layers do self.encoder:append(Block(o, false)) end
  for _ = 1, o.layers do self.decoder:append(Block(o, true)) end
  self.norm1, self.norm2 = Norm(o.width), Norm(o.width)
  self.drop, self.factor = nn.Dropout(o.dropout), o.width ^ -0.5
  self.near = self:buffer(buckets(o.time, o.buckets, true))
  self.past = self:buffer(buckets(o.target, o.buckets, false))
  self.mask = self:buffer(flare.triu(flare.full({o.target, o.target}, -1e9), 1))
end

function T5:forward(x, z, y)
  local h = self.drop(self.embed(x))
  local bias = self.embed_near(self.near):permute(3, 1, 2):unsqueeze(1)
  for _, block in ipairs(self.encoder) do h = block(h, bias) end
  h = self.drop(self.norm1(h))
  local g = self.drop(self.embed(z))
  bias = self.embed_past(self.past):permute(3, 1, 2):unsqueeze(1) + self.mask
  for _, block in ipairs(self.decoder) do g = block(g, bias, h) end
  g = self.drop(self.norm2(g)) * self.factor
  return F.cross_entropy(F.linear(g, self.embed.weight):flatten(1, 2), y:flatten(1, 2))
end

local function build(o)
  local model = common.prepare(o, T5(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0})
  local x = common.ids(o, o.vocabulary, {o.batch, o.time})
  local text = common.ids(o, o.vocabulary, {o.batch, o.target + 1}, 3)
  local z, y = text:narrow(2, 1, o.target):contiguous(), text:narrow(2, 2, o.target):contiguous()
  local function forward() return model(x, z, y) end
  return {model = model, items = o.batch * (o.time + o.target),
          step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "tokens", build = build,
  sizes = {
    small = {batch = 2, time = 24, target = 12, layers = 1, width = 32, heads = 2, buckets = 8,
             vocabulary = 60, dropout = 0.1},
    full = {batch = 32, time = 512, target = 128, layers = 6, width = 512, heads = 8, buckets = 32,
            vocabulary = 32128, dropout = 0.1},
  },
}
