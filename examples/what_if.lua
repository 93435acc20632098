-- What would other hardware make of a training step? The step is recorded here, on the CPU, and
-- replayed on machines that are described by their figures.
--
--     flare examples/what_if.lua --svg roofline.svg
local flare = require "flare"
local nn = flare.nn

local o = flare.args(arg, "Replays a recorded training step on described machines.", {
  width = {128, "of the model"},
  batch = {64, "rows of a step"},
  machine = {"h100", "one of `flare simulate --machine list`"},
  svg = {"", "file for a picture of the roofline"},
})

local model = nn.Sequential(
  nn.Linear(o.width, 4 * o.width), nn.GELU(), nn.LayerNorm(4 * o.width),
  nn.Linear(4 * o.width, o.width))
local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
local x = flare.randn(o.batch, o.width)

local step = flare.record(function()
  optimizer:zero_grad()
  local loss = (model(x) - x):square():mean()
  loss:backward()
  optimizer:step()
end)

local plain = step:replay(o.machine, {dtype = "bf16"})
print(plain)

-- One figure at a time: which would help most?
print(("\n%-38s %7s"):format("what if", "faster"))
for _, change in ipairs {
  {"memory of twice the bandwidth", {bandwidth = 2 * plain.roofs.memory / 1e9}},
  {"matrix units of twice the rate", {matrix = 2}},
  {"launches of half the time", {latency = 1}},
  {"GELU and LayerNorm that stay on the chip", {on_chip = {"gelu", "gelu_backward", "layer_norm",
                                                           "layer_norm_backward"}}},
} do
  change[2].dtype = "bf16"
  local time = step:replay(o.machine, change[2]).time
  print(("%-40s %4.2f x"):format(change[1], plain.time / time))
end

if o.svg ~= "" then assert(plain:svg(o.svg)) end
