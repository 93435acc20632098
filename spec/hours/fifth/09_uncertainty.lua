-- How sure a classifier is: dropout at test time, an ensemble, temperature, calibration error.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(9)

local x, y = data.digits(500)
local val_x, val_y = data.digits(300, {seed = 2})
local test_x, test_y = data.digits(300, {seed = 3})
local function fit(seed)
  flare.manual_seed(seed)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64, {act = "relu"}), nn.Dropout(0.3),
    nn.Linear(64, 10))
  local optimizer = optim.AdamW(model, {lr = 3e-3})
  for _ = 1, 12 do
    local loader = data.Loader(data.Tensors(x, y), {batch = 50, shuffle = true, seed = seed})
    for a, b in loader:epoch() do
      local loss = flare.cross_entropy(model(a), b)
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
  end
  return model:eval()
end
local function ece(p, labels)                 -- expected calibration error in 10 bins
  local sure, guess = p:max(2)
  local right = guess:eq(labels):float()
  local bin = (sure * 10):floor():clamp(0, 9):to("i64") + 1
  local n = bin:bincount{minlength = 10}:float()
  local a = flare.zeros(10):index_add(1, bin, right)
  local b = flare.zeros(10):index_add(1, bin, sure)
  return ((a - b):abs() / #labels):sum():item(), n
end

local models = {}
for k = 1, 3 do models[k] = fit(k) end
local model = models[1]
local val_logits = flare.no_grad(model, val_x)
local log_t = flare.zeros(1, {requires_grad = true})
local optimizer = optim.LBFGS({log_t}, {max_iter = 30})
optimizer:step(function()
  optimizer:zero_grad()
  local loss = flare.cross_entropy(val_logits / log_t:exp(), val_y)
  loss:backward()
  return loss
end)
local temperature = log_t:exp():item()
local logits = flare.no_grad(model, test_x)
local before, n = ece(logits:softmax(2), test_y)
local after = ece((logits / temperature):softmax(2), test_y)
print("temperature", temperature, "calibration error", before, after, n:sum():item())
assert(n:sum():item() == 300 and after < before + 0.02)

local ensemble = flare.no_grad(function()
  local sum = 0
  for _, m in ipairs(models) do sum = sum + m(test_x):softmax(2) end
  return sum / #models
end)
local function nll(p) return -(p:gather(2, test_y:unsqueeze(2)):log()):mean():item() end
print("nll", nll(logits:softmax(2)), "ensemble", nll(ensemble))
assert(nll(ensemble) < nll(logits:softmax(2)))

-- dropout stays on, the rest is in evaluation
for _, m in ipairs(model:modules()) do
  if flare.class.is(m, nn.Dropout) then m:train() end
end
local draws = flare.no_grad(function()
  local list = {}
  for k = 1, 20 do list[k] = model(test_x):softmax(2) end
  return flare.stack(list, 1)
end)
local entropy = flare.distributions.Categorical{probs = draws:mean(1)}:entropy()
local blend = flare.no_grad(function()
  local p = 0
  for _ = 1, 20 do p = p + model((test_x + test_x:flip(1)) / 2):softmax(2) end
  return flare.distributions.Categorical{probs = p / 20}:entropy():mean():item()
end)
print("entropy of digits", entropy:mean():item(), "of two in one", blend)
assert(blend > 1.2 * entropy:mean():item())
