-- Detection without anchors: a grid of cells predicts boxes and classes; non-maximum suppression,
-- mean average precision.
local flare = require "flare"
local nn, optim, metrics = flare.nn, flare.optim, flare.metrics
flare.manual_seed(3)
math.randomseed(3)

local size, cells = 48, 6
local function scene()
  local image = flare.rand(1, size, size) * 0.3
  local boxes, labels = {}, {}
  for k = 1, math.random(1, 2) do
    local w, h = math.random(10, 16), math.random(10, 16)
    local x1, y1 = math.random(1, size - w), (k - 1) * 24 + math.random(1, 24 - 17 + 1)
    local class = math.random(2)
    image[{1, {y1, y1 + h - 1}, {x1, x1 + w - 1}}] = class == 1 and 1 or 0.6
    boxes[k] = {x1 - 1, y1 - 1, x1 - 1 + w, y1 - 1 + h}
    labels[k] = class
  end
  return image, flare.tensor(boxes), flare.tensor(labels, {dtype = "i64"})
end

local function encode(boxes, labels)          -- (5, cells, cells): is there one, box; and classes
  local target = flare.zeros(5, cells, cells)
  local classes = flare.ones(cells, cells, {dtype = "i64"})
  for k = 1, #labels do
    local b = boxes[k]:totable()
    local cx, cy = (b[1] + b[3]) / 2 / size * cells, (b[2] + b[4]) / 2 / size * cells
    local i, j = math.floor(cy) + 1, math.floor(cx) + 1
    target[{{}, i, j}] = flare.tensor{1, cx - j + 1, cy - i + 1,
      (b[3] - b[1]) / size, (b[4] - b[2]) / size}
    classes[{i, j}] = labels[k]
  end
  return target, classes
end

local function batch(n)
  local images, targets, classes, truth = {}, {}, {}, {}
  for k = 1, n do
    local image, boxes, labels = scene()
    images[k] = image
    targets[k], classes[k] = encode(boxes, labels)
    truth[k] = {boxes = boxes, labels = labels}
  end
  return flare.stack(images), flare.stack(targets), flare.stack(classes), truth
end

local model = nn.Sequential(
  nn.Conv2d(1, 16, 3, {stride = 2, padding = 1}), nn.BatchNorm2d(16), nn.ReLU(),
  nn.Conv2d(16, 32, 3, {stride = 2, padding = 1}), nn.BatchNorm2d(32), nn.ReLU(),
  nn.Conv2d(32, 64, 3, {stride = 2, padding = 1}), nn.BatchNorm2d(64), nn.ReLU(),
  nn.Conv2d(64, 64, 3, {padding = 1}), nn.ReLU(), nn.Conv2d(64, 7, 1))
local optimizer = optim.AdamW(model, {lr = 3e-3})
for step = 1, 250 do
  local x, target, class = batch(16)
  local out = model(x)
  local there = target[{{}, 1}]
  local boxes = out[{{}, {2, 5}}]:sigmoid()
  local loss = flare.bce_with_logits(out[{{}, 1}], there, {pos_weight = flare.tensor(5)})
    + 5 * ((boxes - target[{{}, {2, 5}}]):abs() * there:unsqueeze(2)):sum() / there:sum()
    + (flare.cross_entropy(out[{{}, {6, 7}}], class, {reduction = "none"}) * there):sum()
      / there:sum()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 50 == 0 then print(step, loss:item()) end
end

local function iou(a, b)                      -- (n, 4), (m, 4) -> (n, m)
  local low = a:unsqueeze(2)[{"...", {1, 2}}]:maximum(b[{"...", {1, 2}}])
  local high = a:unsqueeze(2)[{"...", {3, 4}}]:minimum(b[{"...", {3, 4}}])
  local both = (high - low):clamp(0):prod(3)
  local function area(x) return (x[{{}, 3}] - x[{{}, 1}]) * (x[{{}, 4}] - x[{{}, 2}]) end
  return both / (area(a):unsqueeze(2) + area(b) - both)
end

local function detect(out)                    -- (7, cells, cells)
  local score = out[1]:sigmoid():flatten()
  local b = out[{{2, 5}}]:sigmoid():flatten(2)                       -- (4, cells * cells)
  local column = (flare.arange(0, cells * cells) % cells):float()
  local row = (flare.arange(0, cells * cells) // cells):float()
  local cx, cy = (b[1] + column) / cells * size, (b[2] + row) / cells * size
  local w, h = b[3] * size / 2, b[4] * size / 2
  local boxes = flare.stack({cx - w, cy - h, cx + w, cy + h}, 2)
  local class = out[{{6, 7}}]:flatten(2):argmax(1)
  local order = score:argsort{descending = true}
  local overlap = iou(boxes, boxes):totable()
  local keep, scores = {}, score:totable()
  for _, i in ipairs(order:totable()) do
    local free = scores[i] > 0.3
    for _, j in ipairs(keep) do free = free and overlap[i][j] < 0.5 end
    if free then keep[#keep + 1] = i end
  end
  if not keep[1] then
    return {boxes = flare.zeros(0, 4), scores = flare.zeros(0),
      labels = flare.zeros(0, {dtype = "i64"})}
  end
  local index = flare.tensor(keep, {dtype = "i64"})
  return {boxes = boxes[index], scores = score[index], labels = class[index]}
end

model:eval()
local x, _, _, truth = batch(60)
local out = flare.no_grad(model, x)
local found = {}
for k = 1, 60 do found[k] = detect(out[k]) end
local map = metrics.MeanAveragePrecision()
map:update(found, truth)
local figures = map:compute()
print("mAP", figures.map, "at 0.5", figures.map_50)
assert(figures.map_50 > 0.8, figures.map_50)
