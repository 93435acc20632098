-- Segmentation by a small U-Net: transposed convolutions, a Dice loss of one's own, mean IoU.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(2)

local function scenes(n)
  local images, masks = flare.rand(n, 1, 32, 32) * 0.4, flare.ones(n, 32, 32, {dtype = "i64"})
  local row = flare.arange(1, 33):view(32, 1)
  local column = flare.arange(1, 33):view(1, 32)
  for k = 1, n do
    local r, c, size = math.random(8, 24), math.random(8, 24), math.random(4, 7)
    local disc = ((row - r) ^ 2 + (column - c) ^ 2):le(size ^ 2)
    masks[k][disc] = 2
    images[{k, 1}][disc] = 0.8
  end
  return images + 0.1 * flare.randn(n, 1, 32, 32), masks
end

local function block(inputs, outputs)
  return nn.Sequential(nn.Conv2d(inputs, outputs, 3, {padding = "same", bias = false}),
    nn.BatchNorm2d(outputs), nn.ReLU())
end
local UNet = flare.class("UNet", nn.Module)
function UNet:init(classes)
  self.down1, self.down2 = block(1, 8), block(8, 16)
  self.pool = nn.MaxPool2d(2)
  self.middle = block(16, 32)
  self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, {stride = 2}),
    nn.ConvTranspose2d(16, 8, 2, {stride = 2})
  self.join2, self.join1 = block(32, 16), block(16, 8)
  self.out = nn.Conv2d(8, classes, 1)
end
function UNet:forward(x)
  local a = self.down1(x)
  local b = self.down2(self.pool(a))
  local c = self.middle(self.pool(b))
  local d = self.join2(flare.cat({self.up2(c), b}, 2))
  return self.out(self.join1(flare.cat({self.up1(d), a}, 2)))
end

local function dice(logits, target)
  local p = logits:softmax(2)
  local hot = flare.one_hot(target, 2):permute(1, 4, 2, 3):float()
  local both = (p * hot):sum{dim = {1, 3, 4}}
  return 1 - (2 * both / (p + hot):sum{dim = {1, 3, 4}}):mean()
end

local model = UNet(2)
print(model:summary{4, 1, 32, 32})
local optimizer = optim.Adam(model, {lr = 3e-3})
local loader = data.Loader(data.Tensors(scenes(160)), {batch = 16, shuffle = true})
for epoch = 1, 5 do
  local mean = flare.metrics.Mean()
  for x, y in loader:epoch() do
    local logits = model(x)
    local loss = flare.cross_entropy(logits, y) + dice(logits, y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    mean:update(loss)
  end
  print(epoch, mean:compute())
end
model:eval()
local iou = flare.metrics.Jaccard{average = "none"}
local x, y = scenes(40)
iou:update(flare.no_grad(model, x), y)
print("IoU", iou:compute())
assert(iou:compute():min():item() > 0.8)
