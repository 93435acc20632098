--- CLIP (arXiv:2103.00020): a transformer for texts and one for images, whose results are compared.
local flare = require "flare"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local attend = require "flare.models.heads"
local nn = flare.nn
local null = flare.core.json.null

local tower = {hidden_act = "quick_gelu", layer_norm_eps = 1e-5, attention_dropout = 0}
local text = {vocab_size = 49408, hidden_size = 512, intermediate_size = 2048,
  num_hidden_layers = 12, num_attention_heads = 8, max_position_embeddings = 77,
  eos_token_id = 49407}
local vision = {hidden_size = 768, intermediate_size = 3072, num_hidden_layers = 12,
  num_attention_heads = 12, num_channels = 3, image_size = 224, patch_size = 32}
local defaults = {projection_dim = 512, logit_scale_init_value = 2.6592, text_config = null,
  vision_config = null, initializer_factor = 1}

local Attention = flare.class("CLIPAttention", nn.Module)

function Attention:init(c)
  self.heads, self.drop = c.num_attention_heads, c.attention_dropout
  for _, name in ipairs{"k_proj", "v_proj", "q_proj", "out_proj"} do
    self[name] = nn.Linear(c.hidden_size, c.hidden_size)
  end
end

function Attention:forward(x, causal)
  return self.out_proj(attend(self.q_proj(x), self.k_proj(x), self.v_proj(x), {
    heads = self.heads, causal = causal, dropout = self.training and self.drop or 0}))
end

local MLP = flare.class("CLIPMLP", nn.Module)

function MLP:init(c)
  local act, more = activations.find(c.hidden_act)
  self.act = more
  self.fc1 = nn.Linear(c.hidden_size, c.intermediate_size, {act = act})
  self.fc2 = nn.Linear(c.intermediate_size, c.hidden_size)
end

function MLP:forward(x)
  x = self.fc1(x)
  return self.fc2(self.act and self.act(x) or x)
end

local Layer = flare.class("CLIPEncoderLayer", nn.Module)

function Layer:init(c)
  self.self_attn = Attention(c)
  self.layer_norm1 = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
  self.mlp = MLP(c)
  self.layer_norm2 = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
end

function Layer:forward(x, causal)
  x = x + self.self_attn(self.layer_norm1(x), causal)
  return x + self.mlp(self.layer_norm2(x))
end

local Encoder = flare.class("CLIPEncoder", nn.Module)

function Encoder:init(c)
  self.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layers:append(Layer(c)) end
end

function Encoder:forward(x, causal)
  for _, layer in ipairs(self.layers) do x = layer(x, causal) end
  return x
end

local Text = flare.class("CLIPTextTransformer", nn.Module)

function Text:init(c)
  self.eos = c.eos_token_id
  self.embeddings = nn.ModuleDict{
    token_embedding = nn.Embedding(c.vocab_size, c.hidden_size, {base = 0}),
    position_embedding = nn.Embedding(c.max_position_embeddings, c.hidden_size, {base = 0})}
  self.encoder = Encoder(c)
  self.final_layer_norm = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
end

-- The features of the end token of each text: (batch, hidden_size). Of the first published models
-- the end token has the largest id, and their configuration has another.
function Text:forward(ids)
  local at = flare.arange(0, ids:size(2), {device = ids.device})
  local x = self.embeddings.token_embedding(ids) + self.embeddings.position_embedding(at)
  x = self.final_layer_norm(self.encoder(x, true))
  local last = self.eos == 2 and ids:argmax{dim = 2} or ids:eq(self.eos):to("i32"):argmax{dim = 2}
  local texts = flare.range(1, ids:size(1), {dtype = "i64", device = ids.device})
  return x:flatten(1, 2):index_select(1, (texts - 1) * ids:size(2) + last)
end

local Vision = flare.class("CLIPVisionTransformer", nn.Module)

function Vision:init(c)
  local side = c.image_size // c.patch_size
  self.embeddings = nn.Module()
  self.embeddings.class_embedding = self.embeddings:param(flare.zeros(c.hidden_size))
  self.embeddings.patch_embedding = nn.Conv2d(c.num_channels, c.hidden_size, c.patch_size,
                                              {stride = c.patch_size, bias = false})
  self.embeddings.position_embedding = nn.Embedding(side * side + 1, c.hidden_size, {base = 0})
  self.pre_layrnorm = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps}) -- as files call it
  self.encoder = Encoder(c)
  self.post_layernorm = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
end

function Vision:forward(images)
  local e = self.embeddings
  local x = e.patch_embedding(images):flatten(3, 4):transpose(2, 3)
  local class = e.class_embedding:expand(x:size(1), 1, x:size(3))
  x = flare.cat({class, x}, 2) + e.position_embedding.weight
  return self.post_layernorm(self.encoder(self.pre_layrnorm(x)):select(2, 1))
end

local CLIP = flare.class("CLIPModel", Model)

-- The configuration of a part: what the file has of it over the defaults.
local function part(given, own)
  local out = {}
  for _, fields in ipairs{tower, own, given or {}} do
    for name, value in pairs(fields) do out[name] = value ~= null and value end
  end
  return out
end

function CLIP:build(c)
  local t, v = part(c.text_config, text), part(c.vision_config, vision)
  self.logit_scale = self:param(flare.tensor(c.logit_scale_init_value))
  self.text_model, self.vision_model = Text(t), Vision(v)
  self.visual_projection = nn.Linear(v.hidden_size, c.projection_dim, {bias = false})
  self.text_projection = nn.Linear(t.hidden_size, c.projection_dim, {bias = false})
end

local function unit(x) return x / x:norm{dims = -1, keepdim = true} end

--- The embeddings of images, (batch, projection_dim), each of length 1.
-- @param images (batch, channels, height, width)
function CLIP:images(images) return unit(self.visual_projection(self.vision_model(images))) end

--- The embeddings of texts, (batch, projection_dim), each of length 1.
-- @param ids (batch, time), from 0, with an end token
function CLIP:texts(ids) return unit(self.text_projection(self.text_model(ids))) end

--- How much images are like texts: logits (images, texts).
function CLIP:forward(images, ids)
  return self:images(images):matmul(self:texts(ids):t()) * self.logit_scale:exp()
end

--- The loss of telling which image goes with which text, image k with text k.
function CLIP:loss(images, ids)
  local logits = self(images, ids)
  local k = flare.range(1, logits:size(1), {dtype = "i64", device = logits.device})
  return (flare.cross_entropy(logits, k) + flare.cross_entropy(logits:t(), k)) / 2
end

Model.publish(CLIP, {type = "clip", defaults = defaults, ignored = {"position_ids$"}})

return {CLIPModel = CLIP}
