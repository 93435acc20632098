-- Attacks on a classifier: fast gradient signs, projected steps, training against them, a saliency
-- map, and an image that a class likes best.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(8)

local x, y = data.digits(800)
local held_x, held_y = data.digits(200, {seed = 3})
local function make()
  return nn.Sequential(nn.Conv2d(1, 8, 3, {stride = 2, padding = 1}), nn.ReLU(),
    nn.Conv2d(8, 16, 3, {stride = 2, padding = 1}), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10))
end
local function attack(model, images, labels, epsilon, steps)
  local start = images:detach()
  local z = start
  for _ = 1, steps do
    z = z:detach():requires_grad_()
    local g = flare.grad(flare.cross_entropy(model(z), labels), {z})
    z = z + (epsilon / steps * 1.5) * g:sign()
    z = (start + (z - start):clamp(-epsilon, epsilon)):clamp(0, 1)
  end
  return z:detach()
end
local function train(model, epochs, epsilon)
  local optimizer = optim.Adam(model, {lr = 2e-3})
  for _ = 1, epochs do
    for a, b in data.Loader(data.Tensors(x, y), {batch = 50, shuffle = true}):epoch() do
      if epsilon then a = attack(model, a, b, epsilon, 3) end
      local loss = flare.cross_entropy(model(a), b)
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
  end
  return model:eval()
end
local function accuracy(model, images)
  return flare.no_grad(model, images):argmax(2):eq(held_y):mean():item()
end
local plain, robust = train(make(), 4), train(make(), 6, 0.1)
for name, model in pairs{plain = plain, robust = robust} do
  print(name, accuracy(model, held_x), accuracy(model, attack(model, held_x, held_y, 0.1, 1)),
    accuracy(model, attack(model, held_x, held_y, 0.1, 5)))
end
assert(accuracy(plain, held_x) > 0.85)
assert(accuracy(robust, attack(robust, held_x, held_y, 0.1, 5))
  > accuracy(plain, attack(plain, held_x, held_y, 0.1, 5)))

local one = held_x[{{1}}]:clone():requires_grad_()
plain(one):amax():backward()
local map = one.grad:abs()
assert(map:sum():item() > 0)
local dream = flare.full({1, 1, 28, 28}, 0.5):requires_grad_()
local optimizer = optim.Adam({dream}, {lr = 0.05, maximize = true})
for _ = 1, 60 do
  local score = plain(dream)[{1, 4}] - 0.01 * (dream - 0.5):square():sum()
  optimizer:zero_grad()
  score:backward()
  optimizer:step()
  flare.no_grad(function() dream:clamp_(0, 1) end)
end
assert(plain(dream):argmax():item() == 4)
local path = os.tmpname() .. ".png"
assert(flare.cat({map[1] / map:max(), dream:detach()[1]}, 3):image(path))
print(flare.data.images.read(path).shape)
os.remove(path)
