-- Handwritten digits: a network of three layers, or a small convolutional one.
--
--     flare examples/mnist.lua --model cnn            on digits that flare generates
--     flare examples/mnist.lua --images t10k-images-idx3-ubyte.gz \
--                              --labels t10k-labels-idx1-ubyte.gz
--
-- --help lists the options. A tenth of the digits is held out; the last line of the output is the
-- fraction of them that the network classifies correctly.
local flare = require "flare"
local nn, optim, data, log = flare.nn, flare.optim, flare.data, flare.log

local function usage(message)
  io.stderr:write("mnist: ", message, "\n")
  os.exit(2)
end

local o = flare.args(arg, "Trains a network to read handwritten digits.", {
  images = {"", "file of images in idx format, gzipped or not; without one digits are drawn"},
  labels = {"", "file of their labels"},
  model = {"mlp", "mlp or cnn"},
  epochs = {0, "0: 20 for mlp, 15 for cnn"},
  count = {6000, "digits to draw"},
  device = {"cpu", "cpu, cuda or sim:0"},
  seed = {0, "of the weights, the digits and their order"},
})

local function model_of(name)
  if name == "mlp" then
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128),
                         nn.ReLU(), nn.Linear(128, 10)), 20
  elseif name == "cnn" then
    return nn.Sequential(nn.Conv2d(1, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(0.3),
                         nn.Linear(128, 10)), 15
  end
  usage(("--model is mlp or cnn, not '%s'"):format(name))
end

flare.manual_seed(o.seed)
local x, y
if o.images ~= "" then
  x, y = data.idx.pairs(o.images, o.labels)
  if not x then usage(y) end
else
  print(("drawing %d digits"):format(o.count))
  x, y = data.digits(o.count, {seed = o.seed})
end

local held = #x // 10
local train, test = data.split(data.Tensors(x, y), {#x - held, held}, {seed = o.seed})
local model, epochs = model_of(o.model)
if o.epochs > 0 then epochs = o.epochs end
local known, problem = pcall(model.to, model, o.device)
if not known then usage((problem:gsub("^%S+:%d+: ", ""))) end
print(model)

-- the fraction of a data set that the model classifies correctly
local function accuracy(set)
  local _ <close> = flare.no_grad()
  model:eval()
  local right = 0
  for images, labels in data.Loader(set, {batch = 500}):epoch() do
    local guess = model(images:to(o.device)):argmax(2)
    right = right + guess:eq(labels:to(o.device)):sum():item()
  end
  model:train()
  return right / set:size()
end

local optimizer = optim.Adam(model:parameters(), {lr = 1e-3})
local loss_of = nn.CrossEntropyLoss()
local loader = data.Loader(train, {batch = 128, shuffle = true, seed = o.seed})
local bar = log.progress{total = epochs * loader:batches(), label = o.model}
local step = 0
for _ = 1, epochs do
  for images, labels in loader:epoch() do
    local loss = loss_of(model(images:to(o.device)), labels:to(o.device))
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    step = step + 1
    bar:update(step, {loss = loss})
  end
end
bar:finish()
print(("accuracy %.4f"):format(accuracy(test)))
