--- The overhead of profiling: a training step of a transformer block, with and without, in turns;
-- the lower quartiles of many steps and their ratio.
--   flare bench profile [--device cuda] [--width N] [--batch N] [--steps N]
local flare = require "flare"
local nn, clock = flare.nn, flare.core.clock

local o = flare.args(arg, "Measures what profiling adds to a training step of a transformer.", {
  device = "cpu", width = 128, batch = 4, time = 64, layers = 2, steps = 400})
flare.manual_seed(1)
local model = nn.Sequential()
for _ = 1, o.layers do
  model:append(nn.TransformerBlock(o.width, 4, {causal = true}))
end
model:to(o.device)
local optimizer = flare.optim.AdamW(model:parameters())
local x = flare.randn(o.batch, o.time, o.width, {device = o.device})

local function step()
  local loss = model(x):square():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end

local function seconds(count)
  flare.synchronize()
  local start = clock()
  for _ = 1, count do step() end
  flare.synchronize()
  return (clock() - start) / count
end

seconds(20)
local run = 20
local plain, profiled, launches = {}, {}, 0
for k = 1, o.steps // run do
  plain[k] = seconds(run)
  local stop = flare.profile.start()
  profiled[k] = seconds(run)
  launches = stop().count / run
end
table.sort(plain)
table.sort(profiled)
local q = #plain // 4 + 1
print(("%s, width %d, %d launches a step: plain %.3f ms, profiled %.3f ms, ratio %.3f"):format(
  o.device, o.width, launches, plain[q] * 1e3, profiled[q] * 1e3, profiled[q] / plain[q]))
