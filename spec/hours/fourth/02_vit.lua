-- A published architecture trained from scratch: MixUp, averaged weights, saved and loaded by name.
local flare = require "flare"
local data, models, optim = flare.data, flare.models, flare.optim
local t = data.transforms
flare.manual_seed(2)

local config = {image_size = 28, patch_size = 7, num_channels = 1, hidden_size = 48,
  intermediate_size = 96, num_hidden_layers = 2, num_attention_heads = 4, num_labels = 10}
local model = models.ViTForImageClassification(config)
local x, y = data.digits(1500)
local loader = data.Loader(data.Tensors(x, y), {batch = 50, shuffle = true,
  transform = t.MixUp{classes = 10, alpha = 0.2}})
local optimizer = optim.AdamW(model, {lr = 3e-3})
local schedule = optim.WarmupCosineLR(optimizer, {warmup = 20, total = 12 * loader:batches()})
local ema = optim.EMA(model, {decay = 0.98})
model:train()
for epoch = 1, 12 do
  local mean = flare.metrics.Mean()
  for images, targets in loader:epoch() do
    local loss = flare.cross_entropy(model(images), targets)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    schedule:step()
    ema:update()
    mean:update(loss)
  end
  print(epoch, mean:compute())
end
ema:copy_to()
model:eval()
local held_x, held_y = data.digits(300, {seed = 8})
local function accuracy(m)
  return flare.no_grad(function() return m(held_x):argmax(2):eq(held_y):mean():item() end)
end
print("accuracy", accuracy(model))
assert(accuracy(model) > 0.8)
local folder = os.tmpname() .. ".vit"
assert(model:save(folder))
local again = assert(models.load(folder))
assert(accuracy(again) == accuracy(model))
local half = assert(models.load(folder, {dtype = "bf16"}))
print("in bf16", accuracy(half), half:dtype())
assert(accuracy(half) > accuracy(model) - 0.05)
os.execute("rm -r " .. folder)
