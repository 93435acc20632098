-- Two tasks with one body: weights by learned uncertainty, gradients of both tasks compared.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(3)

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.body = nn.Sequential(nn.Linear(10, 32, {act = "relu"}), nn.Linear(32, 32, {act = "relu"}))
  self.heads = nn.ModuleDict{price = nn.Linear(32, 1), kind = nn.Linear(32, 3)}
  self.log_variance = self:param(flare.zeros(2))
end
function Net:forward(x)
  local h = self.body(x)
  return self.heads.price(h):squeeze(2), self.heads.kind(h)
end

local w, v = flare.randn(10), flare.randn(10, 3)
local function batch(n)
  local x = flare.randn(n, 10)
  return x, 3 * (x:matmul(w)):tanh() + 0.1 * flare.randn(n), x:matmul(v):argmax(2)
end
local model = Net()
local optimizer = optim.AdamW(model, {lr = 3e-3})
local cosine
for step = 1, 400 do
  local x, price, kind = batch(64)
  local p, k = model(x)
  local a, b = flare.mse_loss(p, price), flare.cross_entropy(k, kind)
  if step % 200 == 0 then
    local parameters = model.body:parameters()
    local function flat(loss)
      local list = {flare.grad(loss, parameters, {retain_graph = true})}
      for j, g in ipairs(list) do list[j] = g:flatten() end
      return flare.cat(list, 1)
    end
    cosine = flare.cosine_similarity(flat(a), flat(b), {dim = 1}):item()
    print(step, a:item(), b:item(), "cosine", cosine)
  end
  local precision = (-model.log_variance):exp()
  local loss = precision[1] * a + precision[2] * b + model.log_variance:sum()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end
assert(cosine >= -1 and cosine <= 1)
local x, price, kind = batch(500)
local r2, accuracy = flare.metrics.R2(), flare.metrics.Accuracy()
model:eval()
flare.no_grad(function()
  local p, k = model(x)
  r2:update(p, price)
  accuracy:update(k, kind)
end)
print("R2", r2:compute(), "accuracy", accuracy:compute(), model.log_variance)
assert(r2:compute() > 0.9 and accuracy:compute() > 0.85)
