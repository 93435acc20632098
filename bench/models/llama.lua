-- A Llama-style decoder (arXiv:2307.09288): RMSNorm, rotary positions and SwiGLU of plain
-- operators, fewer heads for keys and values (arXiv:2305.13245).
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local RMSNorm = flare.class("RMSNorm", nn.Module)

function RMSNorm:init(width) self.weight = self:param(flare.ones(width)) end

function RMSNorm:forward(x)
  x = x:to "f32"
  return x / ((x * x):mean(-1, {keepdim = true}) + 1e-5):sqrt() * self.weight
end

local Block = flare.class("Block", nn.Module)

function Block:init(o)
  self.heads, self.groups, self.size = o.heads, o.groups, o.width // o.heads
  local inner = o.groups * self.size
  self.norm1 = RMSNorm(o.width)
  self.q = nn.Linear(o.width, o.width, {bias = false})
  self.k = nn.Linear(o.width, inner, {bias = false})
  self.v = nn.Linear(o.width, inner, {bias = false})
  self.out = nn.Linear(o.width, o.width, {bias = false})
  self.norm2 = RMSNorm(o.width)
  self.gate = nn.Linear(o.width, o.hidden, {bias = false})
  self.up = nn.Linear(o.width, o.hidden, {bias = false})
  self.down = nn.Linear(o.hidden, o.width, {bias = false})
end

function Block:forward(x, cos, sin)
  local batch, time = x:size(1), x:size(2)
  local h = self.norm1(x)
  local q = self.q(h):view(batch, time, self.heads, self.size):transpose(2, 3)
  local k = self.k(h):view(batch, time, self.groups, self.size):transpose(2, 3)
  local v = self.v(h):view(batch, time, self.groups, self.size):transpose(2, 3)
  q, k = common.rotate(q, cos, sin), common.rotate(k, cos, sin)
  local y = flare.attention(q, k, v, {causal = true})
  x = x + self.out(y:transpose(2, 3):reshape(x.shape))
  h = self.norm2(x)
  local gate = self.gate(h)
  return x + self.down(gate * gate:sigmoid() * self.up(h))
end

local Llama = flare.class("Llama", nn.Module)

function Llama:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.norm = RMSNorm(o.width)
  self.head = nn.Linear(o.width, o.vocabulary, {bias = false})
  local half = o.width // o.heads // 2
  local rates = (flare.arange(0, half, {dtype = "f32"}) * (-math.log(10000) / half)):exp()
  local angles = flare.outer(flare.arange(0, o.time, {dtype = "f32"}), rates)
  self.cos = self:buffer(angles:cos():to(o.amp or "f32"))
  self.sin = self:buffer(angles:sin():to(o.amp or "f32"))
end

function Llama:forward(x, y)
  local h = self.embed(x)
  for _, block in ipairs(self.blocks) do h = block(h, self.cos, self.sin) end
  return F.cross_entropy(self.head(self.norm(h)):flatten(1, 2), y:flatten(1, 2))
end

local function build(o)
  local model = common.prepare(o, Llama(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-4, weight_decay = 0.1})
  local text = common.ids(o, o.vocabulary, {o.batch, o.time + 1})
  local x, y = text:narrow(2, 1, o.time):contiguous(), text:narrow(2, 2, o.time):contiguous()
  local function forward() return model(x, y) end
  return {model = model, items = o.batch * o.time,
          step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "tokens", build = build,
  sizes = {
    small = {batch = 2, time = 16, layers = 2, width = 32, heads = 4, groups = 2, hidden = 48,
             vocabulary = 64},
    full = {batch = 8, time = 2048, layers = 16, width = 1024, heads = 16, groups = 4,
            hidden = 2816, vocabulary = 32000},
  },
}
