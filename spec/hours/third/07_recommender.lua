-- A recommender: matrix factorization with biases and negative samples (BPR); recall at 5.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(7)

local users, items, width = 60, 80, 16
local taste, kind = flare.randn(users, 4), flare.randn(items, 4)
local score = taste:matmul(kind.T)
local _, liked = score:topk(12, {dim = 2})                           -- (users, 12)
local seen, hidden = liked[{{}, {1, 12, 2}}], liked[{{}, {2, 12, 2}}]  -- every other one
local u = flare.range(1, users):repeat_interleave(6)
local interactions = data.Tensors(u, seen:flatten())

local Model = flare.class("Model", nn.Module)
function Model:init()
  self.user, self.item = nn.Embedding(users, width), nn.Embedding(items, width)
  self.bias = nn.Embedding(items, 1)
  nn.init.normal_(self.user.weight, {std = 0.1})
  nn.init.normal_(self.item.weight, {std = 0.1})
  nn.init.zeros_(self.bias.weight)
end
function Model:forward(a, b)
  return (self.user(a) * self.item(b)):sum(-1) + self.bias(b):squeeze(-1)
end
function Model:all() return self.user.weight:matmul(self.item.weight.T) + self.bias.weight.T end

local model = Model()
local optimizer = optim.Adam(model, {lr = 2e-2, weight_decay = 1e-3})
local known = flare.zeros(users, items, {dtype = "bool"}):scatter(2, seen, true)
for epoch = 1, 40 do
  local sum, n = 0, 0
  for a, b in data.Loader(interactions, {batch = 90, shuffle = true, seed = epoch}):epoch() do
    local other = flare.randint(1, items + 1, {#a})
    local bad = known[{a, other}]                                    -- negatives that are positives
    local loss = -(flare.logsigmoid(model(a, b) - model(a, other)) * (1 - bad:float())):mean()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    sum, n = sum + loss:item(), n + 1
  end
  if epoch % 10 == 0 then print(epoch, sum / n) end
end

local ranked = flare.no_grad(function() return model:all() end):masked_fill(known, -math.huge)
local _, top = ranked:topk(10, {dim = 2})
local hits = top:unsqueeze(3):eq(hidden:unsqueeze(2)):any(3)
local recall = hits:float():sum(2):mean():item() / 6
print("recall at 10", recall, "by chance", 10 / (items - 6))
assert(recall > 0.3, recall)
-- the items that are most like the first
local w = flare.normalize(model.item.weight:detach(), {dim = 2})
local _, near = w:matmul(w[1]):topk(4)
print(near)
assert(near[1]:item() == 1)
