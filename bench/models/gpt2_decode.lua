-- GPT-2 124M decoding one text: a token a step, keys and values in a cache of fixed size, the
-- position in a tensor. Weights are bf16; the most probable token is next.
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
  self.cache = self:buffer(flare.zeros(2, 1, o.heads, o.time, o.width // o.heads))
end

-- x (1, 1, width), position (1), mask (1, 1, 1, time)
function Block:forward(x, position, mask)
  local heads = self.qkv(self.norm1(x)):view(1, 1, 3, self.heads, -1):permute(3, 1, 4, 2, 5)
  self.cache:index_copy_(4, position, heads:narrow(1, 2, 2)) -- keys and values
  local y = flare.attention(heads[1], self.cache[1], self.cache[2], {mask = mask})
  x = x + self.proj(y:transpose(2, 3):reshape(x.shape))
  return x + self.down(flare.gelu(self.up(self.norm2(x)), "tanh"))
end

local GPT = flare.class("GPT", nn.Module)

function GPT:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.embed_positions = nn.Embedding(o.time, o.width)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o)) end
  self.norm = nn.LayerNorm(o.width)
  self.all = self:buffer(flare.arange(1, o.time + 1))
end

-- token (1, 1), position (1) -> the next token
function GPT:forward(token, position)
  local h = self.embed(token) + self.embed_positions(position)
  local mask = self.all:le(position):view(1, 1, 1, -1)
  for _, block in ipairs(self.blocks) do h = block(h, position, mask) end
  return F.linear(self.norm(h), self.embed.weight):argmax(3)
end

local function build(o)
  local model = common.prepare(o, GPT(o)):to(o.dtype)
  return common.decoding(o, model)
end

return {
  unit = "tokens", build = build, steps = 500,
  sizes = {
    small = {time = 6, layers = 2, width = 32, heads = 2, vocabulary = 64, dtype = "f32"},
    full = {time = 1024, layers = 12, width = 768, heads = 12, vocabulary = 50304, dtype = "bf16"},
  },
}
