-- A recurrent network learns to continue a text.
local flare = require "flare"
flare.args(arg, "Trains a recurrent network to continue a text.")
local nn, optim, data = flare.nn, flare.optim, flare.data

local text = ("she sells sea shells by the sea shore. "):rep(20)
local vocabulary = data.Vocabulary(text)
local tokens = assert(vocabulary:encode(text))

local Writer = flare.class("Writer", nn.Module)

function Writer:init(characters, width)
  self.table = nn.Embedding(characters, width)
  self.lstm = nn.LSTM(width, width, {batch_first = true})
  self.last = nn.Linear(width, characters)
end

-- x (batch, time) -> logits (batch, time, characters) and the last state
function Writer:forward(x, h, c)
  local y
  y, h, c = self.lstm(self.table(x), h, c)
  return self.last(y), h, c
end

flare.manual_seed(1)
local model = Writer(#vocabulary, 64)
local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
local loader = data.Loader(data.Windows(tokens, 32), {batch = 16, shuffle = true})
local step = 0
for x, y in loader:forever() do
  local loss = flare.cross_entropy(model(x):flatten(1, 2), y:reshape(-1))
  optimizer:zero_grad()
  loss:backward()
  optim.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  step = step + 1
  if step % 50 == 0 then print(("step %d  loss %.3f"):format(step, loss:item())) end
  if step == 150 then break end
end

local _ <close> = flare.no_grad()
local out, h, c = {}, nil, nil
local token = vocabulary:encode("s")
for i = 1, 60 do
  out[i] = vocabulary:decode(token)
  local logits
  logits, h, c = model(token:view(1, 1), h, c)
  token = logits:view(-1):argmax(1):view(1)
end
print(table.concat(out))
