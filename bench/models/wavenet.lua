-- WaveNet (arXiv:1609.03499): causal convolutions with growing dilation over samples of sound,
-- gates of tanh and sigmoid, sums over all layers.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Layer = flare.class("Layer", nn.Module)

function Layer:init(o, dilation)
  self.dilation = dilation
  self.filter = nn.Conv1d(o.width, o.width, 2, {dilation = dilation})
  self.gate = nn.Conv1d(o.width, o.width, 2, {dilation = dilation})
  self.residual = nn.Conv1d(o.width, o.width, 1)
  self.skip = nn.Conv1d(o.width, o.skip, 1)
end

function Layer:forward(x)
  local padded = flare.pad(x, {self.dilation, 0})
  local z = self.filter(padded):tanh() * self.gate(padded):sigmoid()
  return x + self.residual(z), self.skip(z)
end

local WaveNet = flare.class("WaveNet", nn.Module)

function WaveNet:init(o)
  self.embed = nn.Embedding(o.classes, o.width)
  self.layers = nn.ModuleList()
  for _ = 1, o.cycles do
    for k = 0, o.depth - 1 do self.layers:append(Layer(o, 1 << k)) end
  end
  self.last1, self.last2 = nn.Conv1d(o.skip, o.skip, 1), nn.Conv1d(o.skip, o.classes, 1)
end

function WaveNet:forward(x)
  local h, sum = self.embed(x):transpose(2, 3), nil
  for _, layer in ipairs(self.layers) do
    local skip
    h, skip = layer(h)
    sum = sum and sum + skip or skip
  end
  return self.last2(self.last1(sum:relu()):relu())
end

local function build(o)
  local model = common.prepare(o, WaveNet(o))
  local optimizer = flare.optim.Adam(model:parameters(), {lr = 3e-4})
  local sound = common.ids(o, o.classes, {o.batch, o.time + 1})
  local x, y = sound:narrow(2, 1, o.time):contiguous(), sound:narrow(2, 2, o.time):contiguous()
  local function forward() return F.cross_entropy(model(x), y) end
  return {model = model, items = o.batch * o.time,
          step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "samples", build = build,
  sizes = {
    small = {batch = 2, time = 40, width = 8, skip = 16, classes = 16, cycles = 1, depth = 3},
    full = {batch = 8, time = 16000, width = 128, skip = 256, classes = 256, cycles = 3,
            depth = 10},
  },
}
