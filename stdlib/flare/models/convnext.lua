--- ConvNeXt (arXiv:2201.03545): depthwise 7 x 7 convolutions and pointwise layers.
local flare = require "flare"
local Images = require "flare.models.images"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local nn = flare.nn

local defaults = {num_channels = 3, patch_size = 4, num_stages = 4,
  hidden_sizes = {96, 192, 384, 768}, depths = {3, 3, 9, 3}, hidden_act = "gelu",
  layer_norm_eps = 1e-12, layer_scale_init_value = 1e-6, drop_path_rate = 0, image_size = 224}

-- A norm over the channels of (batch, channels, height, width).
local ChannelNorm = flare.class("ConvNextLayerNorm", nn.LayerNorm)

function ChannelNorm:forward(x)
  return nn.LayerNorm.forward(self, x:permute(1, 3, 4, 2)):permute(1, 4, 2, 3)
end

local Layer = flare.class("ConvNextLayer", nn.Module)

function Layer:init(c, width, drop)
  self.dwconv = nn.Conv2d(width, width, 7, {padding = 3, groups = width})
  self.layernorm = nn.LayerNorm(width, {eps = 1e-6})
  self.pwconv1 = nn.Linear(width, 4 * width, {act = activations.fused(c.hidden_act)})
  self.pwconv2 = nn.Linear(4 * width, width)
  if c.layer_scale_init_value > 0 then
    self.layer_scale_parameter = self:param(flare.full({width}, c.layer_scale_init_value))
  end
  self.drop = drop
end

function Layer:forward(x)
  local y = self.dwconv(x):permute(1, 3, 4, 2)
  y = self.pwconv2(self.pwconv1(self.layernorm(y)))
  if self.layer_scale_parameter then y = y * self.layer_scale_parameter end
  if self.training and self.drop > 0 then -- whole images (arXiv:1603.09382)
    local keep = flare.dropout(flare.ones(x:size(1), 1, 1, 1, {device = x.device}), self.drop)
    y = y * keep:to(y.dtype)
  end
  return x + y:permute(1, 4, 2, 3)
end

local Stage = flare.class("ConvNextStage", nn.Module)

function Stage:init(c, from, to, stride, drops)
  if from ~= to or stride > 1 then
    self.downsampling_layer = nn.ModuleList(ChannelNorm(from, {eps = 1e-6}),
                                            nn.Conv2d(from, to, 2, {stride = stride}))
  end
  self.layers = nn.ModuleList()
  for _, drop in ipairs(drops) do self.layers:append(Layer(c, to, drop)) end
end

function Stage:forward(x)
  for _, layer in ipairs(self.downsampling_layer or {}) do x = layer(x) end
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return x
end

local Embeddings = flare.class("ConvNextEmbeddings", nn.Module)

function Embeddings:init(c)
  self.patch_embeddings = nn.Conv2d(c.num_channels, c.hidden_sizes[1], c.patch_size,
                                    {stride = c.patch_size})
  self.layernorm = ChannelNorm(c.hidden_sizes[1], {eps = 1e-6})
end

function Embeddings:forward(images) return self.layernorm(self.patch_embeddings(images)) end

local Body = flare.class("ConvNextModel", Model)

function Body:build(c)
  self.embeddings = Embeddings(c)
  self.encoder = nn.ModuleDict{stages = nn.ModuleList()}
  local total, done, from = 0, 0, c.hidden_sizes[1]
  for _, depth in ipairs(c.depths) do total = total + depth end
  for k, to in ipairs(c.hidden_sizes) do
    local drops = {}
    for i = 1, c.depths[k] do
      drops[i] = c.drop_path_rate * (done + i - 1) / math.max(total - 1, 1)
    end
    self.encoder.stages:append(Stage(c, from, to, k > 1 and 2 or 1, drops))
    done, from = done + c.depths[k], to
  end
  self.layernorm = nn.LayerNorm(from, {eps = c.layer_norm_eps})
end

--- Features (batch, channels, height / 32, width / 32) of images, and of whole images (batch,
-- channels).
function Body:forward(images)
  local x = self.embeddings(images)
  for _, stage in ipairs(self.encoder.stages) do x = stage(x) end
  return x, self.layernorm(x:mean{3, 4})
end

local Classifier = flare.class("ConvNextForImageClassification", Images)

function Classifier:build(c)
  self.convnext = Body(c)
  self.classifier = nn.Linear(c.hidden_sizes[#c.hidden_sizes], Model.labels(c))
end

function Classifier:forward(images)
  local _, whole = self.convnext(images)
  return self.classifier(whole)
end

for _, class in ipairs{Body, Classifier} do
  Model.publish(class, {type = "convnext", defaults = defaults, prefix = "convnext"})
end

return {ConvNextModel = Body, ConvNextForImageClassification = Classifier}
