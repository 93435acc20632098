-- Layers and functions of one's own: squeeze and excitation, a straight-through estimator with a
-- gradient of its own, hooks, gradcheck, second derivatives.
local flare = require "flare"
local nn = flare.nn
flare.manual_seed(4)

local SqueezeExcite = flare.class("SqueezeExcite", nn.Module)
function SqueezeExcite:init(channels, reduction)
  self.down = nn.Linear(channels, channels // reduction)
  self.up = nn.Linear(channels // reduction, channels)
  self.scale = self:param(flare.ones(1))
  self.calls = self:buffer(flare.zeros(1))
end
function SqueezeExcite:forward(x)
  if self.training then self.calls:add_(1) end
  local s = x:mean{dim = {3, 4}}
  s = self.up(self.down(s):relu()):sigmoid()
  return x * s[{"...", "new", "new"}] * self.scale
end

local layer = SqueezeExcite(8, 2)
print(layer)
local y = layer(flare.randn(2, 8, 5, 5))
assert(y.shape == flare.zeros(2, 8, 5, 5).shape)
layer:eval()
layer(flare.randn(2, 8, 5, 5))
assert(layer.calls:item() == 1)
assert(layer:state_dict().calls and layer:state_dict()["down.weight"])

-- rounds forward, passes the gradient backward
local round = flare.func{
  name = "round_ste",
  forward = function(_, x) return x:round() end,
  backward = function(_, dy) return dy end,
}
local w = flare.tensor({0.2, 0.7, 1.6}, {requires_grad = true})
local weighted = round(w) * flare.tensor{1, 2, 3}
weighted:sum():backward()
print(w.grad)
assert(w.grad:eq(flare.tensor{1, 2, 3}):all():item())

-- log(1 + exp(x)) with a stable gradient
local softplus = flare.func{
  name = "my_softplus",
  forward = function(ctx, x, beta)
    ctx:save(x)
    ctx.beta = beta
    return (1 + (x * beta):exp()):log() / beta
  end,
  backward = function(ctx, dy)
    local x = ctx.saved[1]
    return dy * (x * ctx.beta):sigmoid(), nil
  end,
}
assert(flare.gradcheck(function(x) return softplus(x, 2) end, {flare.randn(5)}))
local x = flare.randn(5)
assert((softplus(x, 2) - flare.softplus(x, 2)):abs():max():item() < 1e-5)

-- a gradient penalty: the second derivative goes through the layer
local net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
local input = flare.randn(10, 3):requires_grad_()
local g = flare.grad(net(input):sum(), {input}, {create_graph = true})
local penalty = ((g:norm{dim = 2} - 1) ^ 2):mean()
penalty:backward()
assert(net[1].weight.grad)

-- hooks
local seen
local h = net[1]:register_forward_hook(function(_, _, out) seen = out.shape end)
net(flare.ones(2, 3))
h:remove()
print(seen)
assert(tostring(seen) == "(2, 16)")
print "ok"
