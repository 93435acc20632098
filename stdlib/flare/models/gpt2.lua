--- GPT-2 (Radford et al. 2019): learned positions, layer norms before each part, one matrix for
-- queries, keys and values. Files have the matrices as (inputs, outputs).
local flare = require "flare"
local Cache = require "flare.models.cache"
local Causal = require "flare.models.causal"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local nn = flare.nn
local null = flare.core.json.null

local defaults = {vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12,
  n_inner = null, activation_function = "gelu_new", resid_pdrop = 0.1, embd_pdrop = 0.1,
  attn_pdrop = 0.1, layer_norm_epsilon = 1e-5, scale_attn_weights = true,
  scale_attn_by_inverse_layer_idx = false}
local names = {hidden_size = "n_embd", num_hidden_layers = "n_layer",
  num_attention_heads = "n_head", max_position_embeddings = "n_positions"}

local Attention = flare.class("GPT2Attention", nn.Module)

function Attention:init(c, layer)
  self.heads, self.size = c.n_head, c.n_embd // c.n_head
  self.scale = c.scale_attn_weights and 1 / math.sqrt(self.size) or 1
  if c.scale_attn_by_inverse_layer_idx then self.scale = self.scale / layer end
  self.dropout = c.attn_pdrop
  self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd)
  self.c_proj = nn.Linear(c.n_embd, c.n_embd)
end

function Attention:forward(x, span)
  local qkv = self.c_attn(x):view(span.batch, span.time, 3, self.heads, self.size)
  return self.c_proj(span:attend(self, qkv:select(3, 1), qkv:select(3, 2), qkv:select(3, 3), {
    scale = self.scale, dropout = self.training and self.dropout or 0}))
end

local MLP = flare.class("GPT2MLP", nn.Module)

function MLP:init(c)
  local inner = c.n_inner or 4 * c.n_embd
  self.c_fc = nn.Linear(c.n_embd, inner, {act = activations.fused(c.activation_function)})
  self.c_proj = nn.Linear(inner, c.n_embd)
end

function MLP:forward(x) return self.c_proj(self.c_fc(x)) end

local Block = flare.class("GPT2Block", nn.Module)

function Block:init(c, layer)
  self.ln_1 = nn.LayerNorm(c.n_embd, {eps = c.layer_norm_epsilon})
  self.attn = Attention(c, layer)
  self.ln_2 = nn.LayerNorm(c.n_embd, {eps = c.layer_norm_epsilon})
  self.mlp = MLP(c)
  self.drop = nn.Dropout(c.resid_pdrop)
end

function Block:forward(x, span)
  x = x + self.drop(self.attn(self.ln_1(x), span))
  return x + self.drop(self.mlp(self.ln_2(x)))
end

local Body = flare.class("GPT2Model", Model)

function Body:build(c)
  self.wte = nn.Embedding(c.vocab_size, c.n_embd, {base = 0})
  self.wpe = nn.Embedding(c.n_positions, c.n_embd, {base = 0})
  self.drop = nn.Dropout(c.embd_pdrop)
  self.h = nn.ModuleList()
  for i = 1, c.n_layer do self.h:append(Block(c, i)) end
  self.ln_f = nn.LayerNorm(c.n_embd, {eps = c.layer_norm_epsilon})
end

function Body:embed(ids, span) return self.drop(self.wte(ids) + self.wpe(span.positions)) end

--- The features of tokens, (batch, time, n_embd).
function Body:forward(ids, cache)
  local span = Cache.span(ids, cache)
  local x = self:embed(ids, span)
  for _, block in ipairs(self.h) do x = block(x, span) end
  return self.ln_f(x)
end

--- The names of the modules before the blocks, of the blocks, and of those behind.
function Body:layout() -- luacheck: ignore self
  return {"wte", "wpe", "drop"}, "h", "ln_f"
end

local LMHead = flare.class("GPT2LMHeadModel", Causal)
LMHead.learned_positions = true

function LMHead:build(c)
  self.transformer = Body(c)
  self.lm_head = nn.Linear(c.n_embd, c.vocab_size, {bias = false})
  if c.tie_word_embeddings then self.lm_head.weight = self.transformer.wte.weight end
end

function LMHead:parts() return self:decoder "transformer" end
function LMHead:features(ids, cache) return self.transformer(ids, cache) end
function LMHead:logits(features) return self.lm_head(features) end

for _, class in ipairs{Body, LMHead} do
  Model.publish(class, {type = "gpt2", defaults = defaults, names = names, prefix = "transformer",
    tensors = {{"(c_%a+%.weight)$", "%1", "transpose"}},
    ignored = {"%.attn%.bias$", "%.attn%.masked_bias$"}})
end

return {GPT2Model = Body, GPT2LMHeadModel = LMHead}
