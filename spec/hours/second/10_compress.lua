-- A trained network made small: distilled, pruned and quantized, and what that costs.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(1)

local function mlp(width)
  return nn.Sequential(nn.Flatten(), nn.Linear(784, width, {act = "relu"}),
    nn.Linear(width, width, {act = "relu"}),
    nn.Linear(width, 10))
end
local x, y = data.digits(1500)
local held_x, held_y = data.digits(500, {seed = 5})
local function accuracy(model)
  model:eval()
  return flare.no_grad(function() return model(held_x):argmax(2):eq(held_y):mean():item() end)
end
local function train(model, epochs, loss_of, after)
  model:train()
  local optimizer = optim.AdamW(model, {lr = 2e-3})
  for _ = 1, epochs do
    for a, b in data.Loader(data.Tensors(x, y), {batch = 50, shuffle = true}):epoch() do
      local loss = loss_of(model, a, b)
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      if after then after() end
    end
  end
end
local function plain(model, a, b) return flare.cross_entropy(model(a), b) end

local teacher = mlp(256)
train(teacher, 4, plain)
print("teacher", accuracy(teacher))

local student, temperature = mlp(32), 2
train(student, 4, function(model, a, b)
  local wanted = flare.no_grad(function() return flare.softmax(teacher(a) / temperature, 2) end)
  local got = flare.log_softmax(model(a) / temperature, 2)
  return flare.kl_div(got, wanted, {reduction = "batchmean"}) * temperature ^ 2
    + 0.5 * flare.cross_entropy(model(a), b)
end)
print("student", accuracy(student))
assert(accuracy(student) > 0.85)

local pruned = teacher:clone()
nn.prune({pruned[2], pruned[3]}, 0.8)
print("pruned", accuracy(pruned))
train(pruned, 1, plain)
local after = accuracy(pruned)
nn.remove_parametrization(pruned[2])
nn.remove_parametrization(pruned[3])
local zeros = pruned[2].weight:eq(0):mean():item()
print("pruned and tuned", after, "zeros", zeros)
assert(after > 0.85 and zeros > 0.5 and math.abs(accuracy(pruned) - after) < 1e-6)

local quantized = teacher:clone()
local _, report = quantized:quantize{bits = 4, group = 16, method = "gptq", data = {x[{{1, 200}}]}}
print(quantized)
for _, r in ipairs(report) do print(r.name, r.error, r.output_error) end
print("4 bits", accuracy(quantized))
assert(accuracy(quantized) > accuracy(teacher) - 0.03)

local path = os.tmpname()
assert(flare.save(path, teacher:state_dict()))
local large = flare.core.file.stat(path).size
assert(flare.save(path, quantized:state_dict()))
local little = flare.core.file.stat(path).size
print("bytes", large, little)
assert(little < large / 4)
os.remove(path)
