--- Transformers (arXiv:1706.03762) with PyTorch's names: layers of an encoder and of a decoder,
-- stacks of them, and both together. Tensors are (batch, time, width); masks are those of
-- MultiHeadAttention.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local walk = require "flare.nn.walk"
local LayerNorm = require "flare.nn.layer_norm"
local Linear = require "flare.nn.linear"
local Module = require "flare.nn.module"
local ModuleList = require("flare.nn.containers").ModuleList
local MultiHeadAttention = require "flare.nn.attention"

local defaults = {hidden = 2048, dropout = 0.1, act = "relu", eps = 1e-5, bias = true,
                  norm_first = false, causal = false}

local Layer = class("Layer", Module)

-- The parts of both kinds of layers; `norms`: the number of norms.
function Layer:prepare(width, heads, opts, norms)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, defaults)
  if o.dropout < 0 or o.dropout >= 1 then
    fail("%s: dropout must be in [0, 1), got %g", where, o.dropout)
  end
  self.width, self.heads = options.count(where, "width", width), heads
  self.dropout, self.norm_first = o.dropout, o.norm_first
  self.self_attn = MultiHeadAttention(width, heads, {bias = o.bias, dropout = o.dropout,
                                                     causal = o.causal})
  self.linear1 = Linear(width, options.count(where, "hidden", o.hidden),
                        {bias = o.bias, act = o.act})
  self.linear2 = Linear(o.hidden, width, {bias = o.bias})
  for k = 1, norms do
    self["norm" .. k] = LayerNorm(width, {bias = o.bias, eps = o.eps})
  end
  return o
end

function Layer:drop(x)
  return self.training and self.dropout > 0 and core.dropout(x, self.dropout) or x
end

-- x + f(norm(x)) or norm(x + f(x)).
function Layer:around(norm, x, f)
  if self.norm_first then return x + self:drop(f(norm(x))) end
  return norm(x + self:drop(f(x)))
end

function Layer:feed(norm, x)
  return self:around(norm, x, function(y) return self.linear2(self:drop(self.linear1(y))) end)
end

function Layer:describe() return ("%d, heads=%d"):format(self.width, self.heads) end

local TransformerEncoderLayer = class("TransformerEncoderLayer", Layer)

--- nn.TransformerEncoderLayer(width, heads, {hidden = 2048, dropout = 0.1, act = "relu",
--   eps = 1e-5, bias = true, norm_first = false, causal = false})
-- Self-attention, then two linear layers of sizes `hidden` and width, each with a residual
-- connection and a norm after the sum, or before the layer with norm_first. `act` is one of
-- nn.Linear's.
function TransformerEncoderLayer:init(width, heads, opts)
  self:prepare(width, heads, opts, 2)
end

--- (batch, time, width) -> the same shape
function TransformerEncoderLayer:forward(x, mask)
  x = self:around(self.norm1, x, function(y) return self.self_attn(y, nil, mask) end)
  return self:feed(self.norm2, x)
end

local TransformerDecoderLayer = class("TransformerDecoderLayer", Layer)

--- nn.TransformerDecoderLayer(width, heads, {hidden = 2048, dropout = 0.1, act = "relu",
--   eps = 1e-5, bias = true, norm_first = false, causal = false})
-- An encoder layer with attention to `memory` after the self-attention. `causal` applies to the
-- self-attention only.
function TransformerDecoderLayer:init(width, heads, opts)
  local o = self:prepare(width, heads, opts, 3)
  self.multihead_attn = MultiHeadAttention(width, heads, {bias = o.bias, dropout = o.dropout})
end

--- (batch, time, width), (batch, other time, width) -> the first shape
function TransformerDecoderLayer:forward(x, memory, mask, memory_mask)
  options.tensor("TransformerDecoderLayer", "memory", memory)
  x = self:around(self.norm1, x, function(y) return self.self_attn(y, nil, mask) end)
  x = self:around(self.norm2, x, function(y)
    return self.multihead_attn(y, memory, memory_mask)
  end)
  return self:feed(self.norm3, x)
end

local Stack = class("Stack", Module)

function Stack:init(layer, count, opts)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, {norm = options.none})
  if not walk.is_module(layer) then
    fail("%s: a layer is expected, got %s", where, options.kind(layer))
  end
  self.layers = ModuleList()
  self.norm = o.norm
  for _ = 1, options.count(where, "count", count) do self.layers:append(layer:clone()) end
end

--- (batch, time, width) and what a layer takes besides -> the same shape
function Stack:forward(x, ...)
  for _, layer in ipairs(self.layers) do x = layer(x, ...) end
  return self.norm and self.norm(x) or x
end

local TransformerEncoder = class("TransformerEncoder", Stack)
TransformerEncoder.about = {"nn.TransformerEncoder(layer, count, {norm =})",
  "Copies of a layer one after the other, equal at first, and a norm at the end."}

local TransformerDecoder = class("TransformerDecoder", Stack)
TransformerDecoder.about = {"nn.TransformerDecoder(layer, count, {norm =})",
  "Copies of a layer one after the other, equal at first, and a norm at the end."}

local Transformer = class("Transformer", Module)

--- nn.Transformer(width, heads, {encoder = 6, decoder = 6, hidden = 2048, dropout = 0.1,
--   act = "relu", eps = 1e-5, bias = true, norm_first = false, causal = false})
-- `encoder`, `decoder`: the number of layers; `causal` applies to the decoder's self-attention.
function Transformer:init(width, heads, opts)
  local own = {encoder = 6, decoder = 6}
  for key, value in pairs(defaults) do own[key] = value end
  local o = options.check("nn.Transformer", opts, own)
  local causal, norm = o.causal, {bias = o.bias, eps = o.eps}
  local encoder, decoder = o.encoder, o.decoder
  o.encoder, o.decoder, o.causal = nil, nil, false
  self.encoder = TransformerEncoder(TransformerEncoderLayer(width, heads, o), encoder,
                                    {norm = LayerNorm(width, norm)})
  o.causal = causal
  self.decoder = TransformerDecoder(TransformerDecoderLayer(width, heads, o), decoder,
                                    {norm = LayerNorm(width, norm)})
  for name, p in self:named_parameters() do
    -- q, k and v of an attention are one matrix for this
    local joined = name:find "%.[qkv]%.weight$"
    if p:dim() > 1 then init.xavier_(p, {gain = joined and math.sqrt(0.5) or 1}) end
  end
end

--- (batch, time, width), (batch, other time, width) -> the second shape
-- @param source the input of the encoder
-- @param target the input of the decoder
-- @param opts {source_mask =, target_mask =, memory_mask =}
function Transformer:forward(source, target, opts)
  local none = options.none
  local o = options.check("nn.Transformer", opts, {source_mask = none, target_mask = none,
                                                   memory_mask = none})
  options.tensor("Transformer", "target", target)
  return self.decoder(target, self.encoder(source, o.source_mask), o.target_mask, o.memory_mask)
end

return {TransformerEncoderLayer = TransformerEncoderLayer,
        TransformerDecoderLayer = TransformerDecoderLayer,
        TransformerEncoder = TransformerEncoder, TransformerDecoder = TransformerDecoder,
        Transformer = Transformer}
