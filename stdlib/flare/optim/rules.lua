--- Optimizers that are rules for one parameter at a time, written in operators: Adadelta, Adamax,
-- NAdam, RAdam, Rprop. Those with files of their own update many parameters by one launch.
local class = require "flare.class"
local core = require "flare.core"
local Adam = require "flare.optim.adam"
local Optimizer = require "flare.optim.optimizer"

local classes = {}

-- `rule(group, p, g, a, b, step)` writes into the parameter p and its state a, b, zeros at first.
local function define(name, call, what, defaults, rule)
  local cls = class(name, Optimizer)
  defaults.maximize = false
  cls.about = {("optim.%s(parameters, %s)"):format(name, call), what}
  cls.defaults = defaults
  if defaults.betas then cls.prepare = Adam.prepare end
  function cls:moments() return 2 end
  function cls:update(group, xs, step)
    local n = #xs // 4
    for i = 1, n do
      local p, g = xs[i], xs[n + i]
      local decay = group.weight_decay or 0
      if decay ~= 0 and group.decoupled then
        p:mul_(1 - group.lr * decay)
      elseif decay ~= 0 then
        g = g + decay * p
      end
      rule(group, p, g, xs[2 * n + i], xs[3 * n + i], step)
    end
  end
  classes[name] = cls
end

define("Adadelta", "{lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false}",
  "Steps as large as those before were, over the size of gradients (arXiv:1212.5701).",
  {lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0},
  function(group, p, g, squares, steps)
    squares:mul_(group.rho):add_((1 - group.rho) * g:square())
    local step = ((steps + group.eps) / (squares + group.eps)):sqrt_():mul_(g)
    steps:mul_(group.rho):add_((1 - group.rho) * step:square())
    p:sub_(group.lr * step)
  end)

define("Adamax", "{lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, "
    .. "maximize = false}",
  "Adam by the largest gradient of late in place of its square (arXiv:1412.6980).",
  {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0},
  function(group, p, g, mean, most, step)
    local b1, b2 = group.betas[1], group.betas[2]
    mean:lerp_(g, 1 - b1)
    most:copy_((most * b2):maximum(g:abs() + group.eps))
    p:sub_(group.lr / (1 - b1 ^ step) * (mean / most))
  end)

-- Takes a gradient into the running mean and mean square.
local function average(group, g, mean, square)
  mean:lerp_(g, 1 - group.betas[1])
  square:mul_(group.betas[2]):add_((1 - group.betas[2]) * g:square())
end

-- NAdam's momentum at a step, and the product of those up to it.
local function momentum(group, step)
  return group.betas[1] * (1 - 0.5 * 0.96 ^ (step * group.momentum_decay))
end
local products = setmetatable({}, {__mode = "k"}) -- of groups: the last one
local function product(group, step)
  local last = products[group]
  if not last or last.step > step then last = {step = 0, value = 1} end
  for k = last.step + 1, step do last = {step = k, value = last.value * momentum(group, k)} end
  products[group] = last
  return last.value
end

define("NAdam", "{lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, "
    .. "decoupled = false, momentum_decay = 4e-3, maximize = false}",
  "Adam with Nesterov's momentum.",
  {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, decoupled = false,
   momentum_decay = 4e-3},
  function(group, p, g, mean, square, step)
    average(group, g, mean, square)
    local root = (square / (1 - group.betas[2] ^ step)):sqrt_():add_(group.eps)
    local now, later, all = momentum(group, step), momentum(group, step + 1), product(group, step)
    p:sub_((group.lr * (1 - now) / (1 - all)) * (g / root))
    p:sub_((group.lr * later / (1 - all * later)) * (mean / root))
  end)

define("RAdam", "{lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, "
    .. "decoupled = false, maximize = false}",
  "Adam that divides by the mean square only when enough steps are in it (arXiv:1908.03265).",
  {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, decoupled = false},
  function(group, p, g, mean, square, step)
    average(group, g, mean, square)
    local b2 = group.betas[2]
    local late = 1 - b2 ^ step
    local most = 2 / (1 - b2) - 1
    local seen = most - 2 * step * b2 ^ step / late
    local change = mean * (group.lr / (1 - group.betas[1] ^ step))
    if seen > 5 then
      local share = (seen - 4) * (seen - 2) * most / ((most - 4) * (most - 2) * seen)
      change = change * (share * late) ^ 0.5 / (square:sqrt() + group.eps)
    end
    p:sub_(change)
  end)

define("Rprop", "{lr = 0.01, etas = {0.5, 1.2}, sizes = {1e-6, 50}, maximize = false}",
  "Steps by the sign of the gradient, longer while it stays and shorter when it turns; for "
    .. "gradients of all data.",
  {lr = 0.01, etas = {0.5, 1.2}, sizes = {1e-6, 50}},
  function(group, p, g, before, size, step)
    if step == 1 then size:fill_(group.lr) end
    local turn = (g * before):sign()
    local smaller = core.where(turn:lt(0), size * group.etas[1], size)
    size:copy_(core.where(turn:gt(0), size * group.etas[2], smaller))
    size:clamp_{min = group.sizes[1], max = group.sizes[2]}
    g = g:masked_fill(turn:lt(0), 0)
    p:sub_(g:sign() * size)
    before:copy_(g)
  end)

return classes
