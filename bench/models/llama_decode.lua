-- A Llama-style decoder of the shape of the 1B model, decoding one text: a token a step, keys and
-- values in a cache of fixed size, the position in a tensor. Rows of q, k and v are one weight, and
-- so are those of gate and up. `bits`: of the weights, 16, or 8 or 4 in groups of `group` columns.
local flare = require "flare"
local common = ...
local nn = flare.nn

local RMSNorm = flare.class("RMSNorm", nn.Module)

function RMSNorm:init(width) self.weight = self:param(flare.ones(width)) end

function RMSNorm:forward(x)
  local y = x:to "f32"
  return (y / ((y * y):mean(-1, {keepdim = true}) + 1e-5):sqrt()):to(x.dtype) * self.weight
end

local Block = flare.class("Block", nn.Module)

function Block:init(o)
  self.heads, self.groups, self.size = o.heads, o.groups, o.width // o.heads
  self.hidden = o.hidden
  self.norm1 = RMSNorm(o.width)
  self.qkv = nn.Linear(o.width, o.width + 2 * o.groups * self.size, {bias = false})
  self.out = nn.Linear(o.width, o.width, {bias = false})
  self.norm2 = RMSNorm(o.width)
  self.up = nn.Linear(o.width, 2 * o.hidden, {bias = false})
  self.down = nn.Linear(o.hidden, o.width, {bias = false})
  self.keys = self:buffer(flare.zeros(1, o.groups, o.time, self.size))
  self.values = self:buffer(flare.zeros(1, o.groups, o.time, self.size))
end

-- x (1, 1, width), position (1), mask (1, 1, 1, time), cos and sin (1, size / 2)
function Block:forward(x, position, mask, cos, sin)
  local heads, groups = self.heads, self.groups
  local h = self.qkv(self.norm1(x)):view(1, -1, 1, self.size)
  local turned = common.rotate(h:narrow(2, 1, heads + groups), cos, sin)
  self.keys:index_copy_(3, position, turned:narrow(2, heads + 1, groups))
  self.values:index_copy_(3, position, h:narrow(2, heads + groups + 1, groups))
  local y = flare.attention(turned:narrow(2, 1, heads), self.keys, self.values, {mask = mask})
  x = x + self.out(y:reshape(x.shape))
  h = self.up(self.norm2(x))
  local gate, up = h:narrow(3, 1, self.hidden), h:narrow(3, self.hidden + 1, self.hidden)
  return x + self.down(flare.silu(gate) * up)
end

local Llama = flare.class("Llama", nn.Module)

function Llama:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.norm = RMSNorm(o.width)
  self.head = nn.Linear(o.width, o.vocabulary, {bias = false})
  local half = o.width // o.heads // 2
  local rates = (flare.arange(0, half, {dtype = "f32"}) * (-math.log(500000) / half)):exp()
  local angles = flare.outer(flare.arange(0, o.time, {dtype = "f32"}), rates)
  self.cos, self.sin = self:buffer(angles:cos()), self:buffer(angles:sin())
  self.all = self:buffer(flare.arange(1, o.time + 1))
end

-- token (1, 1), position (1) -> the next token
function Llama:forward(token, position)
  local h = self.embed(token)
  local mask = self.all:le(position):view(1, 1, 1, -1)
  local cos, sin = self.cos:index_select(1, position), self.sin:index_select(1, position)
  for _, block in ipairs(self.blocks) do h = block(h, position, mask, cos, sin) end
  return self.head(self.norm(h)):argmax(3)
end

local function build(o)
  local model = common.prepare(o, Llama(o)):to(o.dtype)
  if o.bits < 16 then model:quantize {bits = o.bits, group = o.group} end
  return common.decoding(o, model)
end

return {
  unit = "tokens", build = build, steps = 300,
  sizes = {
    small = {time = 6, layers = 2, width = 64, heads = 4, groups = 2, hidden = 96, vocabulary = 64,
             dtype = "f32", bits = 16, group = 32},
    full = {time = 2048, layers = 16, width = 2048, heads = 32, groups = 8, hidden = 8192,
            vocabulary = 128256, dtype = "bf16", bits = 16, group = 128},
  },
}
