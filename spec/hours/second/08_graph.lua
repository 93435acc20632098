-- A graph network with attention classifies the nodes of two communities; its step is compiled.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(2)

local nodes = 200
local class = (flare.rand(nodes):gt(0.5)):to("i64") + 1
local same = class:unsqueeze(2):eq(class:unsqueeze(1))
local edge = flare.rand(nodes, nodes):lt(flare.where(same, 0.08, 0.01))
edge = edge | flare.eye(nodes):gt(0)
local pairs_of = edge:nonzero()
local source, target = pairs_of:select(2, 1):contiguous(), pairs_of:select(2, 2):contiguous()
print(pairs_of.shape, source:min():item(), source:max():item())
local features = flare.randn(nodes, 8) + 0.3 * class:unsqueeze(2)

local GAT = flare.class("GAT", nn.Module)
function GAT:init(inputs, outputs)
  self.linear = nn.Linear(inputs, outputs, {bias = false})
  self.from, self.to_node = self:param(flare.randn(outputs) * 0.1),
    self:param(flare.randn(outputs) * 0.1)
end
function GAT:forward(x)
  local h = self.linear(x)
  local score = flare.leaky_relu((h * self.from):sum(2)[source]
    + (h * self.to_node):sum(2)[target], 0.2)
  local e = (score - score:max()):exp()
  local sum = flare.zeros(nodes):index_add(1, target, e)
  local alpha = e / sum[target]
  return flare.zeros(nodes, h:size(2)):index_add(1, target, h[source] * alpha:unsqueeze(2))
end

local model = nn.Sequential(GAT(8, 16), nn.ELU(), GAT(16, 2))
local known = flare.randperm(nodes)[{{1, 40}}]
local optimizer = optim.Adam(model, {lr = 1e-2, weight_decay = 5e-4})
local step = flare.compile(function()
  optimizer:zero_grad()
  local loss = flare.cross_entropy(model(features)[known], class[known])
  loss:backward()
  optimizer:step()
  return loss
end)
for k = 1, 100 do
  local loss = step()
  if k % 25 == 0 then print(k, loss:item()) end
end
model:eval()
local right = model(features):argmax(2):eq(class):mean():item()
print("accuracy", right, "launches", flare.compile_stats(step).launches,
  flare.compile_stats(step).kernels)
assert(right > 0.8, right)
