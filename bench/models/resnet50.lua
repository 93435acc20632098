-- ResNet-50 (arXiv:1512.03385, stride in the 3 x 3 convolutions): SGD with momentum. layout=last
-- gives images and weights with channels innermost.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Bottleneck = flare.class("Bottleneck", nn.Module)

function Bottleneck:init(inputs, inner, outputs, stride)
  self.conv1 = nn.Conv2d(inputs, inner, 1, {bias = false})
  self.norm1 = nn.BatchNorm2d(inner)
  self.conv2 = nn.Conv2d(inner, inner, 3, {stride = stride, padding = 1, bias = false})
  self.norm2 = nn.BatchNorm2d(inner)
  self.conv3 = nn.Conv2d(inner, outputs, 1, {bias = false})
  self.norm3 = nn.BatchNorm2d(outputs)
  if stride > 1 or inputs ~= outputs then
    self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, {stride = stride, bias = false}),
                               nn.BatchNorm2d(outputs))
  end
end

function Bottleneck:forward(x)
  local y = self.norm1(self.conv1(x)):relu()
  y = self.norm2(self.conv2(y)):relu()
  y = self.norm3(self.conv3(y))
  return (y + (self.short and self.short(x) or x)):relu()
end

local ResNet = flare.class("ResNet", nn.Module)

function ResNet:init(o)
  self.stem = nn.Conv2d(3, o.width, 7, {stride = 2, padding = 3, bias = false})
  self.norm = nn.BatchNorm2d(o.width)
  self.blocks = nn.ModuleList()
  local channels = o.width
  for stage, count in ipairs(o.depths) do
    local inner = o.width << (stage - 1)
    for k = 1, count do
      local stride = k == 1 and stage > 1 and 2 or 1
      self.blocks:append(Bottleneck(channels, inner, 4 * inner, stride))
      channels = 4 * inner
    end
  end
  self.head = nn.Linear(channels, o.classes)
end

function ResNet:forward(x)
  x = flare.max_pool(self.norm(self.stem(x)):relu(), 3, 2, 1)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(x:mean {3, 4})
end

local function channels_last(x)
  return x:permute(1, 3, 4, 2):contiguous():permute(1, 4, 2, 3)
end

local function build(o)
  local model = common.prepare(o, ResNet(o), math.sqrt(2))
  local x = common.numbers(o, {o.batch, 3, o.image, o.image})
  local y = common.ids(o, o.classes, {o.batch})
  if o.layout == "last" then
    x = channels_last(x)
    for _, m in ipairs(model:modules()) do
      if m.weight and m.weight:dim() == 4 then
        m.weight = m:param(channels_last(m.weight:detach()))
      end
    end
  end
  local optimizer = flare.optim.SGD(model:parameters(), {lr = 0.05, momentum = 0.9,
                                                         weight_decay = 1e-4})
  local function forward() return F.cross_entropy(model(x), y) end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 4, image = 32, width = 8, depths = {1, 1}, classes = 10, layout = "first"},
    full = {batch = 256, image = 224, width = 64, depths = {3, 4, 6, 3}, classes = 1000,
            layout = "first"},
  },
}
