-- A transformer that reverses sequences: teacher forcing, masks for padding, greedy decoding.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(3)

local PAD, BOS, EOS, first = 1, 2, 3, 4            -- tokens from 1; digits are 4 to 13
local length = 6

local function batch(n)
  local lengths = flare.randint(3, length + 1, {n})
  local source = flare.full({n, length}, PAD, {dtype = "i64"})
  local target = flare.full({n, length + 2}, PAD, {dtype = "i64"})
  for k = 1, n do
    local m = lengths[k]:item()
    local digits = flare.randint(first, first + 10, {m})
    source[{k, {1, m}}] = digits
    target[{k, 1}] = BOS
    target[{k, {2, m + 1}}] = digits:flip(1)
    target[{k, m + 2}] = EOS
  end
  return source, target
end

local Model = flare.class("Model", nn.Module)
function Model:init(vocab, width)
  self.tokens = nn.Embedding(vocab, width)
  self.places = nn.Embedding(length + 2, width)
  self.transformer = nn.Transformer(width, 4, {encoder = 1, decoder = 1, hidden = 2 * width,
    dropout = 0,
    causal = true, norm_first = true})
  self.out = nn.Linear(width, vocab)
end
function Model:embed(ids) return self.tokens(ids) + self.places(flare.range(1, ids:size(2))) end
function Model:forward(source, target)
  -- (batch, 1, 1, time): true is let through
  local keep = source:ne(PAD):unsqueeze(2):unsqueeze(2)
  local y = self.transformer(self:embed(source), self:embed(target),
    {source_mask = keep, memory_mask = keep})
  return self.out(y)
end

local model = Model(13, 48)
local optimizer = optim.AdamW(model, {lr = 3e-3})
local steps = 500
local schedule = optim.OneCycleLR(optimizer, {total = steps})
local loss
for step = 1, steps do
  local source, target = batch(64)
  local logits = model(source, target[{{}, {1, -2}}])
  loss = flare.cross_entropy(logits:flatten(1, 2),
    target[{{}, {2, -1}}]:flatten(), {ignore_index = PAD})
  optimizer:zero_grad()
  loss:backward()
  optim.clip_grad_norm_(model, 1)
  optimizer:step()
  schedule:step()
  if step % 100 == 0 then print(step, loss:item()) end
end

model:eval()
local function decode(source)
  return flare.no_grad(function()
    local out = flare.full({1, 1}, BOS, {dtype = "i64"})
    for _ = 1, length + 1 do
      local token = model(source, out)[{{}, -1}]:argmax{dim = 2, keepdim = true}
      out = flare.cat({out, token}, 2)
      if token:item() == EOS then break end
    end
    return out
  end)
end
local right = 0
for _ = 1, 30 do
  local source, target = batch(1)
  local out = decode(source)
  local wanted = target[{{}, {1, out:size(2)}}]
  if out:equal(wanted) then right = right + 1 end
end
print("right:", right, "of 30")
assert(right >= 25, right)
