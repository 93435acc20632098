-- A vision transformer reads handwritten digits: patches of an image are its tokens.
--
--     flare examples/vit.lua                           on digits that flare generates
--     flare examples/vit.lua --images t10k-images-idx3-ubyte.gz \
--                            --labels t10k-labels-idx1-ubyte.gz --folder digits
--
-- --help lists the options. A tenth of the digits is held out. --folder keeps the model as
-- transformers and flare.models.load read it.
local flare = require "flare"
local data, optim = flare.data, flare.optim

local function stop(message)
  io.stderr:write("vit: ", message, "\n")
  os.exit(2)
end

local o = flare.args(arg, "Trains a vision transformer to read handwritten digits.", {
  images = {"", "file of images in idx format, gzipped or not; without one digits are drawn"},
  labels = {"", "file of their labels"},
  count = {3000, "digits to draw"}, epochs = {10, "over all digits"}, batch = {64, "digits"},
  width = {64, "numbers of a token"}, layers = {3, "of the model"},
  patch = {7, "pixels of a side, 4 or 7"},
  lr = {2e-3, "the learning rate at first"}, folder = {"", "of the trained model"},
  device = {"cpu", "cpu or cuda"}, seed = {0, "of the weights, the digits and their order"},
})
if o.patch ~= 4 and o.patch ~= 7 then stop "--patch is 4 or 7" end
if o.width % 16 ~= 0 then stop "--width is a multiple of 16" end

flare.manual_seed(o.seed)
local x, y
if o.images ~= "" then
  x, y = data.idx.pairs(o.images, o.labels)
  if not x then stop(y) end
else
  x, y = data.digits(o.count, {seed = o.seed})
end

local held = #x // 10
local train, test = data.split(data.Tensors(x, y), {#x - held, held}, {seed = o.seed})
local names = {} -- config.json has the names of labels, which count from 0
for digit = 0, 9 do names[tostring(digit)] = tostring(digit) end
-- the deviation of published models, 0.02, is that of wider ones
local model = flare.models.ViTForImageClassification {
  image_size = 28, patch_size = o.patch, num_channels = 1, hidden_size = o.width,
  intermediate_size = 2 * o.width, num_hidden_layers = o.layers, num_attention_heads = 4,
  initializer_range = o.width ^ -0.5, id2label = names,
}
local known, problem = pcall(model.to, model, o.device)
if not known then stop((problem:gsub("^%S+:%d+: ", ""))) end
print(("%d parameters, %d tokens of an image"):format(model:count(), (28 // o.patch) ^ 2 // 1))

-- Images as the model takes them, between -1 and 1, and labels, from 0.
local function prepare(images, labels)
  return images:to(o.device) * 2 - 1, labels:to(o.device) - 1
end

local loader = data.Loader(train, {batch = o.batch, shuffle = true, seed = o.seed,
                                   drop_last = true})
local optimizer = optim.AdamW(model, {lr = o.lr, weight_decay = 0.05})
local rate = optim.CosineLR(optimizer, {total = o.epochs * loader:batches(), floor = 0.02})
local step = flare.compile(function(images, labels)
  optimizer:zero_grad()
  local loss = model:loss(images, labels)
  loss:backward()
  flare.optim.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  return loss
end)

local function accuracy()
  local _ <close> = flare.no_grad()
  model:eval()
  local right = 0
  for images, labels in data.Loader(test, {batch = 500}):epoch() do
    images, labels = prepare(images, labels)
    right = right + (model(images):argmax(2) - 1):eq(labels):sum():item()
  end
  model:train()
  return right / held
end

local bar = flare.log.progress{total = o.epochs * loader:batches(), label = "vit"}
local done = 0
for epoch = 1, o.epochs do
  local sum = 0
  for images, labels in loader:epoch() do
    local loss = step(prepare(images, labels))
    rate:step()
    done, sum = done + 1, sum + loss:item()
    bar:update(done, {loss = loss})
  end
  print(("epoch %d: loss %.3f, accuracy %.4f"):format(epoch, sum / loader:batches(), accuracy()))
end
bar:finish()
if o.folder ~= "" then
  assert(model:save(o.folder))
  print("the model is in " .. o.folder)
end
