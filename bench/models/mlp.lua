-- A small network on MNIST's shapes, bound by the host: f32, Adam, the loss read every 100th step.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local function build(o)
  local model = common.prepare(o, nn.Sequential(nn.Linear(784, o.width), nn.ReLU(),
    nn.Linear(o.width, o.width // 2), nn.ReLU(), nn.Linear(o.width // 2, 10)))
  local optimizer = flare.optim.Adam(model:parameters(), {lr = 1e-3})
  local x, y = common.numbers(o, {o.batch, 784}), common.ids(o, 10, {o.batch})
  local function forward() return F.cross_entropy(model(x), y) end
  return {model = model, items = 1, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "steps", build = build, steps = 2000, read = 100,
  sizes = {small = {batch = 8, width = 32, amp = "none"},
           full = {batch = 128, width = 256, amp = "none"}},
}
