-- A physics-informed network solves the heat equation; a neural ODE fits a spiral by the adjoint of
-- its own solver.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(5)

-- u_t = 0.1 u_xx on [0, pi], u(x, 0) = sin x, u = 0 at both ends: u = exp(-0.1 t) sin x
local net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(),
  nn.Linear(24, 1))
local function u(x, t) return net(flare.cat({x, t}, 2)) end
local function residual(x, t)
  x, t = x:requires_grad_(), t:requires_grad_()
  local value = u(x, t)
  local u_x, u_t = flare.grad(value:sum(), {x, t}, {create_graph = true})
  local u_xx = flare.grad(u_x:sum(), {x}, {create_graph = true})
  return u_t - 0.1 * u_xx
end
local optimizer = optim.Adam(net, {lr = 5e-3})
for step = 1, 800 do
  local x, t = flare.rand(64, 1) * math.pi, flare.rand(64, 1)
  local start = u(x, flare.zeros(64, 1)) - x:sin()
  local ends = flare.cat({u(flare.zeros(64, 1), t), u(flare.full({64, 1}, math.pi), t)}, 1)
  local loss = residual(x, t):square():mean() + 5 * start:square():mean() + 5 * ends:square():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 200 == 0 then print(step, loss:item()) end
end
local x = flare.linspace(0, math.pi, 50):view(-1, 1)
local t = flare.full({50, 1}, 0.7)
local err = flare.no_grad(function()
  return (u(x, t) - math.exp(-0.07) * x:sin()):abs():max():item()
end)
print("largest error", err)
assert(err < 0.1, err)

-- the neural ODE
local a = flare.tensor{{-0.1, 2}, {-2, -0.1}}
local times, dt = 30, 0.05
local function solve(f, y)
  local path = {y}
  for k = 1, times do
    local k1 = f(y)
    local k2 = f(y + dt / 2 * k1)
    local k3 = f(y + dt / 2 * k2)
    local k4 = f(y + dt * k3)
    y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    path[k + 1] = y
  end
  return flare.stack(path, 1)
end
local start = flare.randn(16, 2)
local truth = solve(function(y) return y:matmul(a.T) end, start)
local field = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
local opt = optim.Adam(field, {lr = 1e-2})
local step = flare.compile(function()
  local loss = (solve(field, start) - truth):square():mean()
  opt:zero_grad()
  loss:backward()
  opt:step()
  return loss
end)
local first, last
for _ = 1, 200 do
  last = step():item()
  first = first or last
end
print("ODE", first, last)
assert(last < first / 50)
