-- Transfer: a network learns classes of pictures in folders, then its frozen body learns others.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local t = data.transforms
flare.manual_seed(1)

-- pictures: coloured shapes on noise
local root = os.tmpname()
os.remove(root)
local file = flare.core.file
assert(file.mkdir(root))
local function draw(shape)
  local x = flare.rand(3, 32, 32) * 0.3
  local row, column = math.random(4, 16), math.random(4, 16)
  if shape == "square" then
    x[{{}, {row, row + 11}, {column, column + 11}}] = 1
  elseif shape == "bar" then
    x[{{}, {row, row + 3}, {}}] = 1
  elseif shape == "column" then
    x[{{}, {}, {column, column + 3}}] = 1
  else
    x[{{}, {row, row + 3}, {}}] = 1
    x[{{}, {}, {column, column + 3}}] = 1
  end
  return x
end
for _, part in ipairs{{"first", {"square", "bar"}}, {"second", {"column", "cross"}}} do
  assert(file.mkdir(root .. "/" .. part[1]))
  for _, shape in ipairs(part[2]) do
    local folder = ("%s/%s/%s"):format(root, part[1], shape)
    assert(file.mkdir(folder))
    for k = 1, 60 do assert(data.images.write(("%s/%d.png"):format(folder, k), draw(shape))) end
  end
end

local change = t.Compose{t.RandomCrop(32, {padding = 2}), t.ColorJitter{brightness = {0.8, 1.2}},
  t.ToFloat(), t.Normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25})}
local plain = t.Compose{t.ToFloat(), t.Normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25})}

local function body()
  return nn.Sequential(nn.Conv2d(3, 8, 3, {padding = 1, stride = 2}), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 16, 3, {padding = 1, stride = 2}), nn.BatchNorm2d(16), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten())
end

local function fit(model, set, epochs)
  local parameters = {}
  for _, p in ipairs(model:parameters()) do
    if p.requires_grad then parameters[#parameters + 1] = p end
  end
  local optimizer = optim.Adam(parameters, {lr = 5e-3})
  local loader = data.Loader(set, {batch = 20, shuffle = true, transform = change, workers = 2})
  for _ = 1, epochs do
    for x, y in loader:epoch() do
      local loss = flare.cross_entropy(model(x), y)
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
  end
  loader:close()
end

local function accuracy(model, set)
  model:eval()
  local metric = flare.metrics.Accuracy()
  for x, y in data.Loader(set, {batch = 60, transform = plain}):epoch() do
    metric:update(flare.no_grad(function() return model(x) end), y)
  end
  model:train()
  return metric:compute()
end

local first = assert(data.image_folder.open(root .. "/first"))
local second = assert(data.image_folder.open(root .. "/second"))
print(first, table.concat(second.classes, " "))
local model = nn.Sequential(body(), nn.Linear(256, 2))
fit(model, first, 4)
print("first task", accuracy(model, first))
assert(accuracy(model, first) > 0.9)

local path = root .. "/body.safetensors"
assert(flare.io.safetensors.save(path, model[1]:state_dict()))
local other = nn.Sequential(body(), nn.Linear(256, 2))
other[1]:load_state_dict((assert(flare.io.safetensors.load(path))))
other[1]:freeze()
local before = other[1][1].weight:clone()
fit(other, second, 6)
print("second task", accuracy(other, second))
assert(accuracy(other, second) > 0.85)
assert(before:eq(other[1][1].weight):all():item())
print(other)
os.execute("rm -r " .. root)
