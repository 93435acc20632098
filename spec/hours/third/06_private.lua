-- Gradients of single samples by vmap: clipped and with noise (DP-SGD); an ensemble in one pass.
local flare = require "flare"
local nn = flare.nn
flare.manual_seed(6)

local x = flare.randn(200, 6)
local y = x:matmul(flare.randn(6, 1)):gt(0):float():squeeze(2)
local w1 = (flare.randn(6, 16) * 0.4):requires_grad_()
local b1 = flare.zeros(16, {requires_grad = true})
local w2 = (flare.randn(16) * 0.3):requires_grad_()
local parameters = {w1, b1, w2}
local function logit(a) return (a:matmul(w1) + b1):tanh():dot(w2) end
local each = flare.vmap(function(a, target)
  return flare.grad(flare.bce_with_logits(logit(a), target), parameters)
end)

local clip, noise, lr = 1, 0.5, 0.5
for step = 1, 60 do
  local at = flare.randperm(200)[{{1, 50}}]
  local grads = {each(x[at], y[at])}
  local norm = flare.zeros(50)
  for _, g in ipairs(grads) do norm:add_(g:square():flatten(2):sum(2)) end
  local scale = (clip / (norm:sqrt() + 1e-6)):clamp{max = 1}
  flare.no_grad(function()
    for k, p in ipairs(parameters) do
      local g = flare.einsum("n,n...->...", scale, grads[k])
      p:sub_(lr / 50 * (g + noise * clip * flare.randn(p.shape)))
    end
  end)
  if step == 1 then print(grads[1].shape, grads[2].shape, norm:sqrt():max():item()) end
end
-- a check against backward
local loss = flare.bce_with_logits(flare.vmap(logit)(x[{{1, 4}}]), y[{{1, 4}}], {reduction = "sum"})
loss:backward()
local g1 = each(x[{{1, 4}}], y[{{1, 4}}])
assert((g1:sum(1) - w1.grad):abs():max():item() < 1e-5)
local right = flare.no_grad(function()
  return flare.vmap(logit)(x):gt(0):eq(y:gt(0)):mean():item()
end)
print("accuracy with privacy", right)
assert(right > 0.85, right)

-- five models at once
local models = {}
for k = 1, 5 do models[k] = nn.Linear(6, 3) end
local weights, biases = {}, {}
for k, m in ipairs(models) do weights[k], biases[k] = m.weight, m.bias end
local run = flare.vmap(function(w, b, a) return a:matmul(w.T) + b end, {in_dims = {1, 1, false}})
local out = run(flare.stack(weights), flare.stack(biases), x)
print(out.shape)
assert((out[3] - models[3](x)):abs():max():item() < 1e-5)

-- how the outputs move with the inputs
local j = flare.jacobian(function(a) return models[1](a) end, x[1])
assert((j - models[1].weight):abs():max():item() < 1e-6)
local per_row = flare.vmap(function(a)
  return flare.jacobian(function(b) return models[1](b):tanh() end, a)
end)
print(per_row(x[{{1, 3}}]).shape)
