-- The last layer of a language model: a linear layer and cross-entropy over its classes, forward
-- and backward; both inputs have gradients.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local function build(o)
  local model = common.prepare(o, nn.Linear(o.width, o.classes, {bias = false}))
  local x, y = common.numbers(o, {o.rows, o.width}), common.ids(o, o.classes, {o.rows})
  x.requires_grad = true
  local function step()
    model:zero_grad()
    x.grad = nil
    local loss = flare.autocast(o.amp, function() return F.cross_entropy(model(x), y) end)
    loss:backward()
    return loss
  end
  return {model = model, items = o.rows, step = common.captured(o, step)}
end

return {
  unit = "rows", build = build,
  sizes = {small = {rows = 16, width = 8, classes = 50},
           full = {rows = 16384, width = 768, classes = 50304}},
}
