-- A residual network on a binary file of CIFAR's layout, in f16 with scaled losses.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local t = data.transforms
flare.manual_seed(1)
math.randomseed(1)

-- the file: a byte for the label, then red, green and blue of 32 x 32 pixels
local path = os.tmpname()
local file = assert(io.open(path, "wb"))
for _ = 1, 400 do
  local label = math.random(0, 9)
  local image = flare.rand(3, 32, 32) * 80
  image[{label % 3 + 1}] = image[{label % 3 + 1}] + 60
  local row = label // 3 * 8 + 1
  image[{{}, {row, row + 7}}] = image[{{}, {row, row + 7}}] + 90
  file:write(string.char(label), image:clamp(0, 255):to("u8"):bytes())
end
file:close()
local images, labels = assert(data.cifar.read(path))
os.remove(path)
print(images.shape, images.dtype, labels:min():item(), labels:max():item())

local Block = flare.class("Block", nn.Module)
function Block:init(inputs, outputs, stride)
  self.conv1 = nn.Conv2d(inputs, outputs, 3, {stride = stride, padding = 1, bias = false})
  self.bn1 = nn.BatchNorm2d(outputs)
  self.conv2 = nn.Conv2d(outputs, outputs, 3, {padding = 1, bias = false})
  self.bn2 = nn.BatchNorm2d(outputs)
  if stride ~= 1 or inputs ~= outputs then
    self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, {stride = stride, bias = false}),
      nn.BatchNorm2d(outputs))
  end
end
function Block:forward(x)
  local h = self.bn2(self.conv2(self.bn1(self.conv1(x)):relu()))
  return (h + (self.short and self.short(x) or x)):relu()
end
local model = nn.Sequential(nn.Conv2d(3, 16, 3, {padding = 1, bias = false}), nn.BatchNorm2d(16),
  nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 2), nn.AdaptiveAvgPool2d(2),
  nn.Flatten(), nn.Linear(128, 10))
for _, m in ipairs(model:modules()) do
  if flare.class.is(m, nn.Conv2d) then nn.init.kaiming_(m.weight, {normal = true, act = "relu"}) end
end

local train, held = data.split(data.Tensors(images, labels), {0.8, 0.2}, {seed = 1})
local change = t.Compose{t.RandomCrop(32, {padding = 1}), t.RandomErasing(), t.ToFloat()}
local loader = data.Loader(train, {batch = 32, shuffle = true, transform = change, workers = 1})
local optimizer = optim.SGD(model,
  {lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 5e-4})
local schedule = optim.OneCycleLR(optimizer, {total = 6 * loader:batches()})
local scaler = optim.GradScaler{scale = 1024}
for epoch = 1, 6 do
  local mean = flare.metrics.Mean()
  for x, y in loader:epoch() do
    local loss = flare.autocast("f16", function() return flare.cross_entropy(model(x), y) end)
    optimizer:zero_grad()
    scaler:scale(loss):backward()
    scaler:step(optimizer)
    scaler:update()
    schedule:step()
    mean:update(loss, #y)
  end
  print(epoch, mean:compute(), schedule:lr())
end
loader:close()
model:eval()
local top = flare.metrics.Collection{top1 = flare.metrics.Accuracy(),
  top3 = flare.metrics.Accuracy{top_k = 3}}
for x, y in data.Loader(held, {batch = 80, transform = t.ToFloat()}):epoch() do
  top:update(flare.no_grad(model, x), y)
end
local figures = top:compute()
print(figures.top1, figures.top3)
assert(figures.top1 > 0.6 and figures.top3 >= figures.top1)
