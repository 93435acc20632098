-- A custom layer: a class with init and forward. Parameters and layers in its fields
-- are registered automatically.
local flare = require "flare"
flare.args(arg, "Trains a network with a layer of its own, a class.")
local nn, optim = flare.nn, flare.optim

local Residual = flare.class("Residual", nn.Module)

function Residual:init(width)
  self.up = nn.Linear(width, 4 * width, {act = "gelu"})
  self.down = nn.Linear(4 * width, width)
  self.scale = self:param(flare.zeros(1))     -- a parameter without a layer
end

function Residual:forward(x)
  return x + self.scale * self.down(self.up(x))
end

flare.manual_seed(1)
local model = nn.Sequential(nn.Linear(1, 16), Residual(16), Residual(16), nn.Linear(16, 1))
for name, p in model:named_parameters() do print(name, p.shape) end

local x = flare.linspace(-3, 3, 128):view(-1, 1)
local y = x:sin()
local optimizer = optim.AdamW(model:parameters(), {lr = 0.01})
for _ = 1, 300 do
  local loss = (model(x) - y):square():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end
print(("loss %.5f"):format((model(x) - y):square():mean():item()))
print(model:summary({128, 1}))
