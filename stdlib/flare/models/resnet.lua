--- ResNet (arXiv:1512.03385), with basic layers or bottlenecks, downsampling in their 3 x 3
-- convolution (version 1.5).
local flare = require "flare"
local Images = require "flare.models.images"
local Model = require "flare.models.model"
local nn = flare.nn

local defaults = {num_channels = 3, embedding_size = 64, hidden_sizes = {256, 512, 1024, 2048},
  depths = {3, 4, 6, 3}, layer_type = "bottleneck", hidden_act = "relu",
  downsample_in_first_stage = false, downsample_in_bottleneck = false}

-- A convolution, a norm of its result and, with `act`, an activation.
local ConvLayer = flare.class("ResNetConvLayer", nn.Module)

function ConvLayer:init(from, to, o)
  local window = o.window or 3
  self.convolution = nn.Conv2d(from, to, window, {stride = o.stride or 1, padding = window // 2,
                                                  bias = false})
  self.normalization = nn.BatchNorm2d(to)
  self.act = o.act
end

function ConvLayer:forward(x)
  x = self.normalization(self.convolution(x))
  return self.act and flare[self.act](x) or x
end

-- The layers of a residual: {channels, window, stride, whether it has an activation}.
local kinds = {
  basic = function(_, to, stride) return {{to, 3, stride, true}, {to, 3, 1}} end,
  bottleneck = function(c, to, stride)
    local first = c.downsample_in_bottleneck
    return {{to // 4, 1, first and stride or 1, true}, {to // 4, 3, first and 1 or stride, true},
            {to, 1, 1}}
  end,
}

local Layer = flare.class("ResNetLayer", nn.Module)

function Layer:init(c, from, to, stride)
  local kind = kinds[c.layer_type]
  if not kind then
    flare.core.raise(("ResNet: unknown layer_type '%s'%s"):format(c.layer_type,
                     flare.options.hint(c.layer_type, kinds)))
  end
  if from ~= to or stride ~= 1 then
    self.shortcut = ConvLayer(from, to, {window = 1, stride = stride})
  end
  self.layer, self.act = nn.Sequential(), c.hidden_act
  for _, part in ipairs(kind(c, to, stride)) do
    self.layer:append(ConvLayer(from, part[1], {window = part[2], stride = part[3],
                                                act = part[4] and c.hidden_act}))
    from = part[1]
  end
end

function Layer:forward(x)
  return flare[self.act](self.layer(x) + (self.shortcut and self.shortcut(x) or x))
end

local Stage = flare.class("ResNetStage", nn.Module)

function Stage:init(c, from, to, stride, depth)
  self.layers = nn.Sequential(Layer(c, from, to, stride))
  for _ = 2, depth do self.layers:append(Layer(c, to, to, 1)) end
end

function Stage:forward(x) return self.layers(x) end

local Body = flare.class("ResNetModel", Model)

function Body:build(c)
  self.embedder = nn.ModuleDict{embedder = ConvLayer(c.num_channels, c.embedding_size, {
    window = 7, stride = 2, act = c.hidden_act})}
  self.encoder = nn.ModuleDict{stages = nn.ModuleList()}
  local from = c.embedding_size
  for k, to in ipairs(c.hidden_sizes) do
    local stride = (k > 1 or c.downsample_in_first_stage) and 2 or 1
    self.encoder.stages:append(Stage(c, from, to, stride, c.depths[k]))
    from = to
  end
end

--- Features (batch, channels, height / 32, width / 32) of images (batch, channels, height, width),
-- and their means (batch, channels).
function Body:forward(images)
  local x = flare.max_pool(self.embedder.embedder(images), {3, 3}, {stride = {2, 2},
                                                                     padding = {1, 1}})
  for _, stage in ipairs(self.encoder.stages) do x = stage(x) end
  return x, x:mean{3, 4}
end

local Classifier = flare.class("ResNetForImageClassification", Images)

function Classifier:build(c)
  self.resnet = Body(c)
  self.classifier = nn.Sequential(nn.Flatten(),
                                  nn.Linear(c.hidden_sizes[#c.hidden_sizes], Model.labels(c)))
end

function Classifier:forward(images)
  local _, whole = self.resnet(images)
  return self.classifier(whole)
end

for _, class in ipairs{Body, Classifier} do
  Model.publish(class, {type = "resnet", defaults = defaults, prefix = "resnet",
    tensors = {{"embedder%.embedder%.convolution", "embedder.embedder.convolution"}},
    ignored = {"num_batches_tracked$"}})
end

return {ResNetModel = Body, ResNetForImageClassification = Classifier}
