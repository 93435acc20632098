-- A language model of two LSTM layers, trained by truncated backpropagation: the states of a step
-- are those of the step before. SGD with clipping, as in arXiv:1409.2329.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Model = flare.class("Model", nn.Module)

function Model:init(o)
  self.embed = nn.Embedding(o.vocabulary, o.width)
  self.drop = nn.Dropout(o.dropout)
  self.lstm = nn.LSTM(o.width, o.width, {layers = o.layers, dropout = o.dropout})
  self.head = nn.Linear(o.width, o.vocabulary)
end

function Model:forward(x, y, h, c)
  local z
  z, h, c = self.lstm(self.drop(self.embed(x)), h, c)
  local logits = self.head(self.drop(z))
  return F.cross_entropy(logits:flatten(1, 2), y:flatten(1, 2)), h, c
end

local function build(o)
  local model = common.prepare(o, Model(o))
  local optimizer = flare.optim.SGD(model:parameters(), {lr = 1.0})
  local text = common.ids(o, o.vocabulary, {o.time + 1, o.batch})
  local x, y = text:narrow(1, 1, o.time), text:narrow(1, 2, o.time)
  local h = flare.zeros({o.layers, o.batch, o.width}, {device = o.device})
  local c = h:clone()
  local function forward()
    local loss, h2, c2 = model(x, y, h:clone(), c:clone())
    h:copy_(h2:detach())
    c:copy_(c2:detach())
    return loss
  end
  return {model = model, items = o.batch * o.time,
          step = common.training(o, model, optimizer, forward, 0.25)}
end

return {
  unit = "tokens", build = build,
  sizes = {
    small = {batch = 3, time = 7, layers = 2, width = 16, vocabulary = 40, dropout = 0.2},
    full = {batch = 128, time = 128, layers = 2, width = 1024, vocabulary = 32768, dropout = 0.2},
  },
}
