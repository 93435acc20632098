--- A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"
local MultiHeadAttention = require "flare.nn.attention"
local Linear = require "flare.nn.linear"

local TransformerBlock = class("TransformerBlock", Module)

--- nn.TransformerBlock(width, heads, {bias = true, dropout = 0, causal = false, ratio = 4,
--   act = "gelu", norm = "layer", eps = 1e-5})
-- `ratio`: hidden width of the two linear layers over `width`; `act`: none, relu, gelu,
-- gelu_tanh, silu, tanh or sigmoid; `norm`: "layer" or "rms".
function TransformerBlock:init(width, heads, opts)
  local where = "nn.TransformerBlock"
  local o = options.check(where, opts, {bias = true, dropout = 0, causal = false, ratio = 4,
                                        act = "gelu", norm = "layer", eps = 1e-5})
  self.width, self.dropout = options.count(where, "width", width), o.dropout
  self.attention = MultiHeadAttention(width, heads, {bias = o.bias, dropout = o.dropout,
                                                     causal = o.causal})
  local hidden = math.tointeger(width * o.ratio)
  if not hidden or hidden < 1 then
    fail("%s: width * ratio must be a whole number, got %g", where, width * o.ratio)
  end
  self.up = Linear(width, hidden, {bias = o.bias, act = o.act})
  self.down = Linear(hidden, width, {bias = o.bias})
  if o.norm == "layer" then
    local LayerNorm = require "flare.nn.layer_norm"
    self.norm1 = LayerNorm(width, {bias = o.bias, eps = o.eps})
    self.norm2 = LayerNorm(width, {bias = o.bias, eps = o.eps})
  elseif o.norm == "rms" then
    local RMSNorm = require "flare.nn.rms_norm"
    self.norm1, self.norm2 = RMSNorm(width, {eps = o.eps}), RMSNorm(width, {eps = o.eps})
  else
    fail("%s: norm is 'layer' or 'rms', got '%s'", where, tostring(o.norm))
  end
end

-- Whether a layer makes new tensors that no other code refers to.
local function fresh(layer, cls)
  return getmetatable(layer) == cls and not layer._hooks
end

-- x + dropout(y). If y is `ours`, it is closed at once, which frees its memory before the next
-- garbage collection.
local function add(x, y, drop, ours)
  if drop > 0 then
    local kept = core.dropout(y, drop)
    if ours then y:close() end
    y, ours = kept, true
  end
  local sum = x + y
  if ours then y:close() end
  return sum
end

--- (batch, time, width) -> the same shape; see MultiHeadAttention for memory and mask
function TransformerBlock:forward(x, memory, mask)
  local drop = self.training and self.dropout or 0
  local attention, down = self.attention, self.down
  x = add(x, attention(self.norm1(x), memory, mask), drop,
          fresh(attention, MultiHeadAttention) and fresh(attention.out, Linear))
  return add(x, down(self.up(self.norm2(x))), drop, fresh(down, Linear))
end

return TransformerBlock
