-- A Siamese network with triplets: embeddings of digits, retrieval by the nearest ones.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(2)

local x, y = data.digits(800)
local of = {}
for c = 1, 10 do of[c] = y:eq(c):nonzero():flatten() end
local function pick(classes)
  local list = {}
  for k, c in ipairs(classes:totable()) do
    local all = of[c]
    list[k] = all[math.random(#all)]
  end
  return x[flare.stack(list)]
end
local function triplets(n)
  local a = flare.randint(1, 11, {n})
  local b = (a + flare.randint(0, 9, {n})) % 10 + 1
  return pick(a), pick(a), pick(b)
end

local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128, {act = "relu"}), nn.Linear(128, 16))
local function embed(images) return flare.normalize(model(images), {dim = 2}) end
local loss_of = nn.TripletMarginLoss{margin = 0.5}
local optimizer = optim.Adam(model, {lr = 1e-3})
for step = 1, 200 do
  local anchor, same, other = triplets(32)
  local loss = loss_of(embed(anchor), embed(same), embed(other))
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 50 == 0 then print(step, loss:item()) end
end
model:eval()
local held_x, held_y = data.digits(200, {seed = 4})
local library, asked = flare.no_grad(embed, x), flare.no_grad(embed, held_x)
local _, near = asked:matmul(library.T):topk(5)
local right = y[near]:eq(held_y:unsqueeze(2)):float():mean():item()
print("precision at 5", right)
assert(right > 0.7, right)
