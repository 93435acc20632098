-- The plan of a compiled training step, as text and as a picture:
--
--     flare examples/16_explain.lua --svg plan.svg
--
-- The model is written with plain operators; explain tells which of them became one kernel, what
-- each kernel costs, and why there are not fewer.
local flare = require "flare"
local nn = flare.nn

local o = flare.args(arg, "Explains the plan of a compiled training step.", {
  svg = {"", "file of the picture"},
})

flare.manual_seed(1)

-- A gated feed-forward layer behind a norm, added to its input, as in Llama.
local Gated = flare.class("Gated", nn.Module)

function Gated:init(width, inner)
  self.scale = self:param(flare.ones(width))
  self.gate = nn.Linear(width, inner, {bias = false})
  self.up = nn.Linear(width, inner, {bias = false})
  self.down = nn.Linear(inner, width, {bias = false})
end

function Gated:forward(x)
  local size = (x * x):mean(-1, true) + 1e-5
  local y = x * size:rsqrt() * self.scale
  local gate = self.gate(y)
  gate = gate * gate:sigmoid()
  return x + self.down(gate * self.up(y))
end

local model = nn.Sequential(Gated(128, 256), Gated(128, 256))
local optimizer = flare.optim.AdamW(model:parameters(), {lr = 1e-3})

local step = flare.compile(function(x, y)
  optimizer:zero_grad()
  local loss = (model(x) - y):square():mean()
  loss:backward()
  optimizer:step()
  return loss
end)

local x, y = flare.randn(512, 128), flare.randn(512, 128)
local plan = flare.explain(step, x, y)
print(plan)
if o.svg ~= "" then assert(plan:svg(o.svg)) end
