-- A convolutional network on files of MNIST: augmentation, early stopping, a confusion matrix.
local flare = require "flare"
local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics
local t = data.transforms

local o = flare.args(arg, "Trains a CNN on MNIST.",
  {images = "t10k-images-idx3-ubyte.gz", labels = "t10k-labels-idx1-ubyte.gz", epochs = 4,
   patience = 2, limit = 4000})
flare.manual_seed(1)

local images, labels = assert(data.idx.pairs(o.images, o.labels))
images, labels = images[{{1, o.limit}}], labels[{{1, o.limit}}]
local train, held = data.split(data.Tensors(images, labels), {0.9, 0.1}, {seed = 1})
local normalize = t.Normalize({0.1307}, {0.3081})
local augment = t.Compose{t.RandomAffine{degrees = 10, translate = {0.1, 0.1}}, normalize}
local train_loader = data.Loader(train,
  {batch = 64, shuffle = true, transform = augment, workers = 2})
local test_loader = data.Loader(held, {batch = 200, transform = normalize})

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.conv1 = nn.Conv2d(1, 16, 3, {padding = 1})
  self.bn1 = nn.BatchNorm2d(16)
  self.conv2 = nn.Conv2d(16, 32, 3, {padding = 1})
  self.bn2 = nn.BatchNorm2d(32)
  self.dropout = nn.Dropout(0.25)
  self.fc = nn.Linear(32 * 7 * 7, 10)
end
function Net:forward(x)
  x = flare.max_pool(self.bn1(self.conv1(x)):relu(), 2)
  x = flare.max_pool(self.bn2(self.conv2(x)):relu(), 2)
  return self.fc(self.dropout(x:flatten(2)))
end

local model = Net()
print(model:summary({64, 1, 28, 28}))
local optimizer = optim.AdamW(model, {lr = 2e-3, weight_decay = 1e-2})
local schedule = optim.CosineLR(optimizer, {total = o.epochs * train_loader:batches()})
local accuracy, confusion = metrics.Accuracy(), metrics.ConfusionMatrix{classes = 10}

local function evaluate()
  model:eval()
  accuracy:reset()
  confusion:reset()
  local _ <close> = flare.no_grad()
  for x, y in test_loader:epoch() do
    local scores = model(x)
    accuracy:update(scores, y)
    confusion:update(scores, y)
  end
  model:train()
  return accuracy:compute()
end

local best, best_state, waited = 0, nil, 0
for epoch = 1, o.epochs do
  local sum = 0
  for x, y in train_loader:epoch() do
    local loss = flare.cross_entropy(model(x), y, {label_smoothing = 0.05})
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    schedule:step()
    sum = sum + loss:item()
  end
  local score = evaluate()
  print(("epoch %d: loss %.3f, accuracy %.3f"):format(epoch, sum / train_loader:batches(), score))
  if score > best then
    best, best_state, waited = score, model:clone():state_dict(), 0
  else
    waited = waited + 1
    if waited >= o.patience then break end
  end
end
train_loader:close()
model:load_state_dict(best_state)
evaluate()
print(confusion:compute())
assert(best > 0.93, best)
assert(confusion:compute():sum():item() == #held)
