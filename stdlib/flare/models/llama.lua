--- Llama (arXiv:2302.13971, arXiv:2307.09288, arXiv:2407.21783) and the decoders that are made
-- like it: root mean square norms before each part, rotary positions, fewer heads for keys and
-- values (arXiv:2305.13245), a gated feed-forward layer (arXiv:2002.05202). SmolLM is a Llama.
local flare = require "flare"
local Cache = require "flare.models.cache"
local Causal = require "flare.models.causal"
local Model = require "flare.models.model"
local Rope = require "flare.models.rope"
local nn = flare.nn

local activations = require "flare.models.activations"

---------------------------------------------------------------- parts of a layer

local Attention = flare.class("LlamaAttention", nn.Module)

function Attention:init(c, layer)
  local size = c.head_dim or c.hidden_size // c.num_attention_heads
  local groups = c.num_key_value_heads or c.num_attention_heads
  local function linear(from, to, bias) return nn.Linear(from, to, {bias = bias or false}) end
  self.size, self.window = size, c.windows and c.windows[layer] or nil
  self.dropout = c.attention_dropout
  self.q_proj = linear(c.hidden_size, c.num_attention_heads * size, c.qkv_bias)
  self.k_proj = linear(c.hidden_size, groups * size, c.qkv_bias)
  self.v_proj = linear(c.hidden_size, groups * size, c.qkv_bias)
  self.o_proj = linear(c.num_attention_heads * size, c.hidden_size, c.out_bias)
  if c.qk_norm then
    self.q_norm = nn.RMSNorm(size, {eps = c.rms_norm_eps})
    self.k_norm = nn.RMSNorm(size, {eps = c.rms_norm_eps})
  end
end

function Attention:forward(x, span)
  local function heads(y) return y:view(span.batch, span.time, -1, self.size) end
  local q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
  if self.q_norm then q, k = self.q_norm(q), self.k_norm(k) end
  q, k = Rope.rotate(q, span.cos, span.sin), Rope.rotate(k, span.cos, span.sin)
  return self.o_proj(span:attend(self, q, k, v, {
    window = self.window, dropout = self.training and self.dropout or 0}))
end

local MLP = flare.class("LlamaMLP", nn.Module)

function MLP:init(c)
  local bias = {bias = c.mlp_bias or false}
  self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size,
                             {bias = bias.bias, act = activations.fused(c.hidden_act)})
  self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias)
  self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias)
end

function MLP:forward(x) return self.down_proj(self.gate_proj(x) * self.up_proj(x)) end

local Layer = flare.class("LlamaDecoderLayer", nn.Module)

function Layer:init(c, layer, mlp)
  self.self_attn = Attention(c, layer)
  self.mlp = mlp(c, layer)
  self.input_layernorm = nn.RMSNorm(c.hidden_size, {eps = c.rms_norm_eps})
  self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, {eps = c.rms_norm_eps})
end

function Layer:forward(x, span)
  x = x + self.self_attn(self.input_layernorm(x), span)
  return x + self.mlp(self.post_attention_layernorm(x))
end

---------------------------------------------------------------- models

local defaults = {vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008,
  num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = flare.core.json.null,
  head_dim = flare.core.json.null, hidden_act = "silu", max_position_embeddings = 2048,
  rms_norm_eps = 1e-6, rope_theta = flare.core.json.null, rope_scaling = flare.core.json.null,
  rope_parameters = flare.core.json.null, attention_bias = false, attention_dropout = 0,
  mlp_bias = false, tie_word_embeddings = false}

local Body = flare.class("LlamaModel", Model)

function Body:build(c)
  self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size, {base = 0})
  self.layers = nn.ModuleList()
  local how = setmetatable(self.variant(c), {__index = c})
  for i = 1, c.num_hidden_layers do self.layers:append(Layer(how, i, self.mlp)) end
  self.norm = nn.RMSNorm(c.hidden_size, {eps = c.rms_norm_eps})
  self._rope = Rope(c)
end

function Body:embed(ids) return self.embed_tokens(ids) end

--- Adds what the layers need to a span of tokens.
function Body:prepare(span)
  span.cos, span.sin = self._rope:angles(span.positions, span.length)
  return span
end

--- The features of tokens, (batch, time, hidden_size).
function Body:forward(ids, cache)
  local span = self:prepare(Cache.span(ids, cache))
  local x = self:embed(ids)
  for _, layer in ipairs(self.layers) do x = layer(x, span) end
  return self.norm(x)
end

--- The names of the modules before the layers, of the layers, and of those behind.
function Body:layout() -- luacheck: ignore self
  return {"embed_tokens"}, "layers", "norm"
end

local ForCausalLM = flare.class("LlamaForCausalLM", Causal)

function ForCausalLM:build(c)
  self.model = self.body(c)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, {bias = false})
  if c.tie_word_embeddings then self.lm_head.weight = self.model.embed_tokens.weight end
end

function ForCausalLM:parts() return self:decoder "model" end
function ForCausalLM:features(ids, cache) return self.model(ids, cache) end
function ForCausalLM:logits(features) return self.lm_head(features) end

--- Makes the classes of a decoder like Llama.
-- @param o `name` of the classes without their endings; `type`, the model_type of config.json;
--   `defaults` of the configuration that differ from Llama's; `variant`, a function of the
--   configuration that gives {qkv_bias =, out_bias =, qk_norm =, windows = of each layer}; `mlp`,
--   what makes layer i's feed-forward layer of a configuration
--   and i; `tensors` and `names`, as Model.publish has them
-- @return {nameForCausalLM = class, nameModel = class}
local function family(o)
  local own = {}
  for _, list in ipairs{defaults, o.defaults or {}} do
    for key, value in pairs(list) do own[key] = value end
  end
  local body = flare.class(o.name .. "Model", Body)
  local model = flare.class(o.name .. "ForCausalLM", ForCausalLM)
  for _, cls in ipairs{body, model} do
    Model.publish(cls, {type = o.type, defaults = own, names = o.names, tensors = o.tensors,
                        prefix = "model", ignored = {"rotary_emb%.inv_freq$"}})
  end
  body.variant, body.mlp, model.body = o.variant, o.mlp or MLP, body
  return {[o.name .. "Model"] = body, [o.name .. "ForCausalLM"] = model}
end

local M = family{name = "Llama", type = "llama", variant = function(c)
  return {qkv_bias = c.attention_bias, out_bias = c.attention_bias}
end}
M.family, M.MLP = family, MLP
return M
