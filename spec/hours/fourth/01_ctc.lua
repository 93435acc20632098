-- Speech without alignments: a bidirectional GRU and CTC read digits from spectra; error rate.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(1)
math.randomseed(1)

local classes, width, most = 6, 12, 4               -- class 1 is the blank
local tones = flare.randn(classes, width)
local function batch(n)
  local spectra, lengths, labels, counts = {}, {}, flare.ones(n, most, {dtype = "i64"}), {}
  for k = 1, n do
    local frames = {}
    counts[k] = math.random(2, most)
    for j = 1, counts[k] do
      local c = math.random(2, classes)
      labels[{k, j}] = c
      for _ = 1, math.random(2, 4) do frames[#frames + 1] = tones[c] end
      frames[#frames + 1] = tones[1]
    end
    spectra[k] = flare.stack(frames) + 0.3 * flare.randn(#frames, width)
    lengths[k] = #frames
  end
  return (flare.pad_sequence(spectra)), lengths, labels, counts   -- (time, n, width)
end

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.rnn = nn.GRU(width, 32, {bidirectional = true})
  self.out = nn.Linear(64, classes)
end
function Net:forward(x, lengths)
  return flare.log_softmax(self.out((self.rnn(x, nil, {lengths = lengths}))), 3)
end

local model = Net()
local optimizer = optim.Adam(model, {lr = 5e-3})
for step = 1, 150 do
  local x, lengths, labels, counts = batch(16)
  local loss = nn.functional.ctc_loss(model(x, lengths), labels, lengths, counts)
  optimizer:zero_grad()
  loss:backward()
  optim.clip_grad_norm_(model, 5)
  optimizer:step()
  if step % 50 == 0 then print(step, loss:item()) end
end

model:eval()
local x, lengths, labels, counts = batch(40)
local best = flare.no_grad(function() return model(x, lengths):argmax(3) end)
local rate = flare.metrics.CharacterErrorRate()
for k = 1, 40 do
  local text, last = {}, 1
  for t = 1, lengths[k] do
    local c = best[{t, k}]:item()
    if c ~= 1 and c ~= last then text[#text + 1] = tostring(c) end
    last = c
  end
  local wanted = table.concat(labels[{k, {1, counts[k]}}]:totable())
  rate:update({table.concat(text)}, {wanted})
end
print("character error rate", rate:compute())
assert(rate:compute() < 0.15)
