-- Trains a small transformer with mixtures of experts on letters and sums, and shows which expert
-- reads which sign.
--
--   flare examples/moe.lua
--   flare examples/moe.lua --experts 8 --top-k 1 --steps 300
local flare = require "flare"
local nn = flare.nn

local o = flare.args(arg, "Trains a transformer with mixtures of experts.", {
  experts = {4, "of a layer"}, top_k = {2, "experts of a token"}, layers = {2, "of the model"},
  d_model = {48, "numbers of a token"}, steps = {120, "of training"},
  balance = {0.02, "factor of the loss that evens out the load"}, seed = {1, "of random numbers"},
})

local Block = flare.class("Block", nn.Module)

function Block:init(width)
  self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
  self.attention = nn.MultiHeadAttention(width, 4, {causal = true})
  self.experts = nn.MoE(width, {experts = o.experts, top_k = o.top_k, hidden = 2 * width,
                                balance = o.balance, z_loss = 1e-3})
end

function Block:forward(x)
  x = x + self.attention(self.first(x))
  return x + self.experts(self.second(x))
end

flare.manual_seed(o.seed)
math.randomseed(o.seed)
local parts = {}
for k = 1, 400 do
  local a, b = math.random(9), math.random(9)
  parts[k] = k % 2 == 0 and ("%d+%d=%d. "):format(a, b, a + b) or "the cat sat on the mat. "
end
local text = table.concat(parts)
local signs = flare.data.Vocabulary(text)
local ids, length = signs:encode(text), 48

local model = nn.Sequential(nn.Embedding(signs:size(), o.d_model))
for _ = 1, o.layers do model:append(Block(o.d_model)) end
model:append(nn.Linear(o.d_model, signs:size()))
local optimizer = flare.optim.AdamW(model:parameters(), {lr = 3e-3})

for k = 1, o.steps do
  local rows = {}
  for b, start in ipairs(flare.randint(1, #ids - length, {8}):totable()) do
    rows[b] = ids:narrow(1, start, length + 1)
  end
  local batch = flare.stack(rows)
  optimizer:zero_grad()
  local logits = model(batch:narrow(2, 1, length))
  local loss = flare.cross_entropy(logits:flatten(1, 2), batch:narrow(2, 2, length):flatten())
  ;(loss + nn.moe_loss(model)):backward()
  optimizer:step()
  if k % 40 == 0 or k == o.steps then
    print(("step %d: loss %.3f, experts %.4f"):format(k, loss:item(), nn.moe_loss(model):item()))
  end
end

-- The first choice of each sign, by the layer that reads the embeddings.
model:eval()
local block = model[2]
local x = model[1](ids:narrow(1, 1, 400):unsqueeze(1))
local chosen = block.experts:route(block.second(x + block.attention(block.first(x)))[1])
local taken = {}
for at, expert in ipairs(chosen:select(2, 1):totable()) do
  local sign = signs:decode(ids:narrow(1, at, 1))
  taken[expert] = taken[expert] or {}
  taken[expert][sign] = (taken[expert][sign] or 0) + 1
end
for expert = 1, o.experts do
  local list = {}
  for sign in pairs(taken[expert] or {}) do list[#list + 1] = sign end
  table.sort(list, function(a, b)
    local m, n = taken[expert][a], taken[expert][b]
    return m > n or m == n and a < b
  end)
  print(("expert %d reads '%s'"):format(expert, table.concat(list, "", 1, math.min(#list, 10))))
end
