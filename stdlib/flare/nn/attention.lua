--- Multi-head attention (arXiv:1706.03762).
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local Module = require "flare.nn.module"
local Linear = require "flare.nn.linear"

local MultiHeadAttention = class("MultiHeadAttention", Module)

--- nn.MultiHeadAttention(width, heads, {bias = true, dropout = 0, causal = false,
--   memory = width})
-- `dropout`: the probability with which attention weights are set to zero in training. `memory`:
-- the number of features of the memory, from which keys and values are made. With `causal`, the
-- last position of x attends to all of the memory, the position before it to all but the last
-- position of the memory, and so on. The projections are the Linear layers q, k, v and out; their
-- weights are (width, width), those of k and v (width, memory).
function MultiHeadAttention:init(width, heads, opts)
  local where = "nn.MultiHeadAttention"
  local o = options.check(where, opts, {bias = true, dropout = 0, causal = false,
                                        memory = options.none})
  self.width = options.count(where, "width", width)
  self.heads = options.count(where, "heads", heads)
  if width % heads ~= 0 then
    fail("%s: a width of %d cannot be cut into %d equal heads", where, width, heads)
  end
  self.dropout, self.causal = o.dropout, o.causal
  -- q, k and v are one (3 width, width) matrix in PyTorch, unless the memory has a width of its own
  local gain = (o.memory or width) == width and math.sqrt(0.5) or 1
  for _, name in ipairs{"q", "k", "v", "out"} do
    local from = (name == "k" or name == "v") and o.memory or width
    local layer = Linear(from, width, {bias = o.bias})
    if name ~= "out" then init.xavier_(layer.weight, {gain = gain}) end
    if o.bias then init.zeros_(layer.bias) end
    self[name] = layer
  end
end

local function check(x)
  if not core.is_tensor(x) or x:dim() ~= 3 then
    fail("MultiHeadAttention: the input must be (batch, time, width), got %s",
         core.is_tensor(x) and tostring(x.shape) or options.kind(x))
  end
end

-- (batch, time, width) -> (batch, heads, time, width / heads), without moving anything
local function split(x, heads)
  local shape = x.shape
  return x:view(shape[1], shape[2], heads, shape[3] // heads):transpose(2, 3)
end

--- Self-attention of x, or cross-attention from x to `memory`, if it is given.
-- @param x (batch, time, width), for the queries
-- @param memory (batch, memory time, memory width), for the keys and values
-- @param mask added to the scores or, if bool, true where attention is allowed; it
--   broadcasts to (batch, heads, time, memory time)
-- @return (batch, time, width)
function MultiHeadAttention:forward(x, memory, mask)
  check(x)
  if memory then check(memory) end
  memory = memory or x
  local heads = self.heads
  local q, k = split(self.q(x), heads), split(self.k(memory), heads)
  local v = split(self.v(memory), heads)
  local y = core.attention(q, k, v, mask, {causal = self.causal,
                                           dropout = self.training and self.dropout or 0})
  return self.out(y:transpose(2, 3):reshape(x:size(1), x:size(2), y:size(2) * y:size(4)))
end

--- The attention weights that forward uses: the softmax of the scores over the memory's positions.
-- The arguments are those of forward.
-- @return (batch, heads, time, memory time)
function MultiHeadAttention:weights(x, memory, mask)
  check(x)
  local q, k = split(self.q(x), self.heads), split(self.k(memory or x), self.heads)
  local scores = q:matmul(k:transpose(3, 4)) / math.sqrt(q:size(4))
  if self.causal then
    local past = core.ones(x:size(2), scores:size(4), {device = x.device})
      :tril(scores:size(4) - x:size(2)):gt(0)
    scores = scores:masked_fill(past:logical_not(), -math.huge)
  end
  if mask and mask.dtype == "bool" then
    scores = scores:masked_fill(mask:logical_not(), -math.huge)
  elseif mask then
    scores = scores + mask
  end
  return scores:softmax(-1)
end

function MultiHeadAttention:describe()
  return ("%d, heads=%d%s"):format(self.width, self.heads, self.causal and ", causal" or "")
end

return MultiHeadAttention
