--- Whisper (arXiv:2212.04356): an encoder of log-mel spectra and a decoder of text that attends to
-- it.
local flare = require "flare"
local Cache = require "flare.models.cache"
local Causal = require "flare.models.causal"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local attend = require "flare.models.heads"
local nn = flare.nn

local defaults = {vocab_size = 51865, num_mel_bins = 80, encoder_layers = 4,
  encoder_attention_heads = 6, decoder_layers = 4, decoder_attention_heads = 6,
  decoder_ffn_dim = 1536, encoder_ffn_dim = 1536, decoder_start_token_id = 50257,
  activation_function = "gelu", d_model = 384, dropout = 0, attention_dropout = 0,
  activation_dropout = 0, scale_embedding = false, max_source_positions = 1500,
  max_target_positions = 448, is_encoder_decoder = true}
local names = {hidden_size = "d_model", max_position_embeddings = "max_target_positions"}

local Attention = flare.class("WhisperAttention", nn.Module)

function Attention:init(c, heads)
  self.heads, self.drop = heads, c.attention_dropout
  self.k_proj = nn.Linear(c.d_model, c.d_model, {bias = false})
  self.v_proj = nn.Linear(c.d_model, c.d_model)
  self.q_proj = nn.Linear(c.d_model, c.d_model)
  self.out_proj = nn.Linear(c.d_model, c.d_model)
end

function Attention:dropout() return self.training and self.drop or 0 end

-- Attention to `memory`, whose keys and values a cache computes once; to x itself without one.
function Attention:forward(x, memory, cache)
  local k, v
  local function project() return self.k_proj(memory or x), self.v_proj(memory or x) end
  if cache then k, v = cache:once(self, project) else k, v = project() end
  return self.out_proj(attend(self.q_proj(x), k, v, {heads = self.heads, dropout = self:dropout()}))
end

-- Attention of new tokens to all so far.
function Attention:past(x, span)
  local function split(y) return y:view(span.batch, span.time, self.heads, -1) end
  return self.out_proj(span:attend(self, split(self.q_proj(x)), split(self.k_proj(x)),
                                   split(self.v_proj(x)), {dropout = self:dropout()}))
end

-- What layers of the encoder and of the decoder share: attention to themselves and two layers.
local Layer = flare.class("WhisperLayer", nn.Module)

function Layer:init(c, heads, hidden, cross)
  self.self_attn = Attention(c, heads)
  self.self_attn_layer_norm = nn.LayerNorm(c.d_model)
  if cross then
    self.encoder_attn = Attention(c, heads)
    self.encoder_attn_layer_norm = nn.LayerNorm(c.d_model)
  end
  self.fc1 = nn.Linear(c.d_model, hidden, {act = activations.fused(c.activation_function)})
  self.fc2 = nn.Linear(hidden, c.d_model)
  self.final_layer_norm = nn.LayerNorm(c.d_model)
  self.drop = nn.Dropout(c.dropout)
end

function Layer:forward(x, span, memory)
  local y = self.self_attn_layer_norm(x)
  x = x + self.drop(span and self.self_attn:past(y, span) or self.self_attn(y))
  if memory then
    x = x + self.drop(self.encoder_attn(self.encoder_attn_layer_norm(x), memory, span.cache))
  end
  return x + self.drop(self.fc2(self.fc1(self.final_layer_norm(x))))
end

local Encoder = flare.class("WhisperEncoder", nn.Module)

function Encoder:init(c)
  self.conv1 = nn.Conv1d(c.num_mel_bins, c.d_model, 3, {padding = 1})
  self.conv2 = nn.Conv1d(c.d_model, c.d_model, 3, {stride = 2, padding = 1})
  self.embed_positions = nn.Embedding(c.max_source_positions, c.d_model, {base = 0})
  self.layers = nn.ModuleList()
  for _ = 1, c.encoder_layers do
    self.layers:append(Layer(c, c.encoder_attention_heads, c.encoder_ffn_dim))
  end
  self.layer_norm = nn.LayerNorm(c.d_model)
end

function Encoder:forward(spectra)
  local x = flare.gelu(self.conv2(flare.gelu(self.conv1(spectra)))):transpose(2, 3)
  x = x + self.embed_positions.weight:narrow(1, 1, x:size(2))
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return self.layer_norm(x)
end

local Decoder = flare.class("WhisperDecoder", nn.Module)

function Decoder:init(c)
  self.scale = c.scale_embedding and math.sqrt(c.d_model) or 1
  self.embed_tokens = nn.Embedding(c.vocab_size, c.d_model, {base = 0})
  self.embed_positions = nn.Embedding(c.max_target_positions, c.d_model, {base = 0})
  self.layers = nn.ModuleList()
  for _ = 1, c.decoder_layers do
    self.layers:append(Layer(c, c.decoder_attention_heads, c.decoder_ffn_dim, true))
  end
  self.layer_norm = nn.LayerNorm(c.d_model)
end

function Decoder:forward(ids, memory, cache)
  local span = Cache.span(ids, cache)
  local x = self.embed_tokens(ids) * self.scale + self.embed_positions(span.positions)
  for _, layer in ipairs(self.layers) do x = layer(x, span, memory) end
  return self.layer_norm(x)
end

local Whisper = flare.class("WhisperForConditionalGeneration", Causal)
Whisper.learned_positions = true

function Whisper:build(c)
  self.model = nn.ModuleDict{encoder = Encoder(c), decoder = Decoder(c)}
  self.proj_out = nn.Linear(c.d_model, c.vocab_size, {bias = false})
  if c.tie_word_embeddings then self.proj_out.weight = self.model.decoder.embed_tokens.weight end
end

--- The features of spectra, (batch, time / 2, d_model).
-- @param spectra (batch, num_mel_bins, time)
function Whisper:encode(spectra) return self.model.encoder(spectra) end

-- For generation: the cache has what `encode` gave.
function Whisper:features(ids, cache) return self.model.decoder(ids, cache.memory, cache) end
function Whisper:logits(features) return self.proj_out(features) end

--- The logits of the next token at each position, (batch, time, vocabulary).
-- @param spectra (batch, num_mel_bins, time)
-- @param ids (batch, time), which begin with decoder_start_token_id
function Whisper:forward(spectra, ids)
  return self:logits(self.model.decoder(ids, self:encode(spectra)))
end

--- The mean cross entropy of texts; labels of -100 are left out.
-- @param labels (batch, time), without the start token
function Whisper:loss(spectra, labels)
  local c = self.config
  local start = flare.full({labels:size(1), 1}, c.decoder_start_token_id,
                           {dtype = labels.dtype, device = labels.device})
  local ids = flare.cat({start, labels:narrow(2, 1, labels:size(2) - 1)}, 2)
  ids = ids:masked_fill(ids:eq(-100), c.pad_token_id or 0)
  return (flare.cross_entropy(self(spectra, ids):flatten(1, 2), labels:flatten(1, 2), {base = 0}))
end

Model.publish(Whisper, {type = "whisper", defaults = defaults, names = names})

return {WhisperForConditionalGeneration = Whisper}
