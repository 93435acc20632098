-- Tags for words: a bidirectional LSTM with a conditional random field, Viterbi, F1 of the tags.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(3)
math.randomseed(3)

-- tags: 1 outside, 2 begin, 3 inside; words 1 to 20 are plain, 21 to 30 begin, 31 to 40 go on, and
-- 41 to 45 are inside behind a beginning, plain otherwise
local function sentence()
  local words, tags = {}, {}
  while #words < 12 do
    if math.random() < 0.35 and #words < 10 then
      words[#words + 1], tags[#tags + 1] = math.random(21, 30), 2
      for _ = 1, math.random(1, 2) do
        local shared = math.random() < 0.5
        words[#words + 1] = math.random(shared and 41 or 31, shared and 45 or 40)
        tags[#tags + 1] = 3
      end
    else
      words[#words + 1], tags[#tags + 1] = math.random() < 0.2 and math.random(41, 45)
        or math.random(20), 1
    end
  end
  return {table.unpack(words, 1, 12)}, {table.unpack(tags, 1, 12)}
end
local function batch(n)
  local words, tags = {}, {}
  for k = 1, n do words[k], tags[k] = sentence() end
  return flare.tensor(words, {dtype = "i64"}), flare.tensor(tags, {dtype = "i64"})
end

local Tagger = flare.class("Tagger", nn.Module)
function Tagger:init(vocab, tags)
  self.embedding = nn.Embedding(vocab, 16)
  self.lstm = nn.LSTM(16, 16, {bidirectional = true, batch_first = true})
  self.out = nn.Linear(32, tags)
  self.moves = self:param(flare.zeros(tags, tags))
end
function Tagger:scores(words) return self.out((self.lstm(self.embedding(words)))) end
function Tagger:loss(words, tags)
  local s = self:scores(words)
  local time = words:size(2)
  local path = s:gather(3, tags:unsqueeze(3)):squeeze(3):sum(2)
    + self.moves[{tags[{{}, {1, -2}}], tags[{{}, {2, -1}}]}]:sum(2)
  local a = s[{{}, 1}]
  for t = 2, time do
    a = (a:unsqueeze(3) + self.moves):logsumexp(2) + s[{{}, t}]
  end
  return (a:logsumexp(2) - path):mean()
end
function Tagger:decode(words)
  local s = self:scores(words)
  local time = words:size(2)
  local a, back = s[{{}, 1}], {}
  for t = 2, time do
    local best, from = (a:unsqueeze(3) + self.moves):max(2)
    a, back[t] = best + s[{{}, t}], from
  end
  local tag = a:argmax(2)
  local tags = {tag}
  for t = time, 2, -1 do
    tag = back[t]:gather(2, tag:unsqueeze(2)):squeeze(2)
    table.insert(tags, 1, tag)
  end
  return flare.stack(tags, 2)
end

local model = Tagger(45, 3)
local optimizer = optim.Adam(model, {lr = 1e-2})
for step = 1, 120 do
  local loss = model:loss(batch(32))
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 40 == 0 then print(step, loss:item()) end
end
model:eval()
local words, tags = batch(100)
local found = flare.no_grad(function() return model:decode(words) end)
local f1 = flare.metrics.F1{average = "macro", classes = 3}
f1:update(found, tags)
print("F1", f1:compute(), model.moves)
assert(f1:compute() > 0.95)
