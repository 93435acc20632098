--- The vision transformer (arXiv:2010.11929): patches of an image as tokens, norms before each
-- part.
local flare = require "flare"
local Images = require "flare.models.images"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local attend = require "flare.models.heads"
local nn = flare.nn

local defaults = {hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12,
  intermediate_size = 3072, hidden_act = "gelu", hidden_dropout_prob = 0,
  attention_probs_dropout_prob = 0, layer_norm_eps = 1e-12, image_size = 224, patch_size = 16,
  num_channels = 3, qkv_bias = true, encoder_stride = 16}

local Embeddings = flare.class("ViTEmbeddings", nn.Module)

function Embeddings:init(c)
  local side = c.image_size // c.patch_size
  self.size, self.side = c.image_size, side
  self.cls_token = self:param(flare.zeros(1, 1, c.hidden_size))
  self.position_embeddings = self:param(flare.zeros(1, side * side + 1, c.hidden_size))
  self.patch_embeddings = nn.ModuleDict{projection = nn.Conv2d(c.num_channels, c.hidden_size,
    c.patch_size, {stride = c.patch_size})}
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

-- The learned positions, resampled for images of another size.
function Embeddings:positions(height, width)
  local all = self.position_embeddings
  if height == self.side and width == self.side then return all end
  local grid = all:narrow(2, 2, self.side * self.side):view(1, self.side, self.side, -1)
  grid = flare.interpolate(grid:permute(1, 4, 2, 3), {size = {height, width}, mode = "cubic"})
  return flare.cat({all:narrow(2, 1, 1), grid:flatten(3, 4):transpose(2, 3)}, 2)
end

function Embeddings:forward(images)
  local x = self.patch_embeddings.projection(images)
  local height, width = x:size(3), x:size(4)
  x = x:flatten(3, 4):transpose(2, 3)
  local class = self.cls_token:expand(x:size(1), 1, x:size(3))
  return self.dropout(flare.cat({class, x}, 2) + self:positions(height, width))
end

local Self = flare.class("ViTSelfAttention", nn.Module)

function Self:init(c)
  self.heads, self.drop = c.num_attention_heads, c.attention_probs_dropout_prob
  for _, name in ipairs{"query", "key", "value"} do
    self[name] = nn.Linear(c.hidden_size, c.hidden_size, {bias = c.qkv_bias})
  end
end

function Self:forward(x)
  return attend(self.query(x), self.key(x), self.value(x), {
    heads = self.heads, dropout = self.training and self.drop or 0})
end

local Attention = flare.class("ViTAttention", nn.Module)

function Attention:init(c)
  self.attention = Self(c)
  self.output = nn.ModuleDict{dense = nn.Linear(c.hidden_size, c.hidden_size)}
end

function Attention:forward(x) return self.output.dense(self.attention(x)) end

local Layer = flare.class("ViTLayer", nn.Module)

function Layer:init(c)
  self.attention = Attention(c)
  self.intermediate = nn.ModuleDict{dense = nn.Linear(c.hidden_size, c.intermediate_size, {
    act = activations.fused(c.hidden_act)})}
  self.output = nn.ModuleDict{dense = nn.Linear(c.intermediate_size, c.hidden_size)}
  self.layernorm_before = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
  self.layernorm_after = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Layer:forward(x)
  x = x + self.dropout(self.attention(self.layernorm_before(x)))
  local y = self.intermediate.dense(self.layernorm_after(x))
  return x + self.dropout(self.output.dense(y))
end

local Body = flare.class("ViTModel", Model)

function Body:build(c, without_pooler)
  self.embeddings = Embeddings(c)
  self.encoder = nn.ModuleDict{layer = nn.ModuleList()}
  for _ = 1, c.num_hidden_layers do self.encoder.layer:append(Layer(c)) end
  self.layernorm = nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps})
  if not without_pooler then
    self.pooler = nn.ModuleDict{dense = nn.Linear(c.hidden_size, c.hidden_size, {act = "tanh"})}
  end
end

--- The features of the class token and of the patches, (batch, 1 + patches, hidden_size).
-- @param images (batch, channels, height, width)
function Body:forward(images)
  local x = self.embeddings(images)
  for _, layer in ipairs(self.encoder.layer) do x = layer(x) end
  return self.layernorm(x)
end

local Classifier = flare.class("ViTForImageClassification", Images)

function Classifier:build(c)
  self.vit = Body(c, true)
  self.classifier = nn.Linear(c.hidden_size, Model.labels(c))
end

--- The logits of images, (batch, labels).
function Classifier:forward(images) return self.classifier(self.vit(images):select(2, 1)) end

for _, class in ipairs{Body, Classifier} do
  Model.publish(class, {type = "vit", defaults = defaults, prefix = "vit"})
end

return {ViTModel = Body, ViTForImageClassification = Classifier}
