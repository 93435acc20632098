-- A normalizing flow, RealNVP (arXiv:1605.08803), that fits a density to vectors, in f32.
local flare = require "flare"
local common = ...
local nn = flare.nn

local Coupling = flare.class("Coupling", nn.Module)

function Coupling:init(o, parity)
  self.scale = nn.Sequential(nn.Linear(o.size, o.width), nn.LeakyReLU(),
    nn.Linear(o.width, o.width), nn.LeakyReLU(), nn.Linear(o.width, o.size), nn.Tanh())
  self.shift = nn.Sequential(nn.Linear(o.size, o.width), nn.LeakyReLU(),
    nn.Linear(o.width, o.width), nn.LeakyReLU(), nn.Linear(o.width, o.size))
  self.mask = self:buffer((flare.arange(0, o.size) % 2):eq(parity):to "f32")
end

-- x -> z and the logarithm of the determinant
function Coupling:forward(x)
  local kept, free = x * self.mask, 1 - self.mask
  local s, t = self.scale(kept) * free, self.shift(kept) * free
  return kept + free * ((x - t) * (-s):exp()), -s:sum(2)
end

local Flow = flare.class("Flow", nn.Module)

function Flow:init(o)
  self.layers = nn.ModuleList()
  for k = 1, o.layers do self.layers:append(Coupling(o, k % 2)) end
end

function Flow:forward(x)
  local total = flare.zeros({x:size(1)}, {device = x.device})
  for _, layer in ipairs(self.layers) do
    local change
    x, change = layer(x)
    total = total + change
  end
  local density = -0.5 * (x * x + math.log(2 * math.pi))
  return -(density:sum(2) + total):mean()
end

local function build(o)
  local model = common.prepare(o, Flow(o), 0.5)
  local optimizer = flare.optim.Adam(model:parameters(), {lr = 1e-4})
  local x = common.numbers(o, {o.batch, o.size})
  local function forward() return model(x) end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward, 5.0)}
end

return {
  unit = "samples", build = build,
  sizes = {
    small = {batch = 8, size = 6, width = 16, layers = 4, amp = "none"},
    full = {batch = 8192, size = 64, width = 512, layers = 12, amp = "none"},
  },
}
