--- Optimizers that update one parameter at a time by operators: Adadelta, Adamax, NAdam, RAdam,
-- Rprop, ASGD, Adafactor, Muon. Optimizers with files of their own update many parameters in one
-- launch.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Adam = require "flare.optim.adam"
local Optimizer = require "flare.optim.optimizer"

local classes = {}

-- `rule(group, p, g, a, b, step)` writes into the parameter p and its state a, b, zeros at first.
-- @return the class, to which methods may be added
local function define(name, call, what, defaults, rule)
  local cls = class(name, Optimizer)
  defaults.maximize = false
  cls.about = {("optim.%s(parameters, %s)"):format(name, call), what}
  cls.defaults = defaults
  if defaults.betas then cls.prepare = Adam.prepare end
  function cls:moments() return 2 end
  function cls:update(group, xs, step, moments)
    local n = #xs // (2 + moments)
    for i = 1, n do
      local p, g = xs[i], xs[n + i]
      if g.dtype ~= p.dtype then g = g:to(p.dtype) end -- p is a master copy
      local decay = not cls.decays and group.weight_decay or 0
      if decay ~= 0 and (group.decoupled or cls.decoupled) then
        p:mul_(1 - group.lr * decay)
      elseif decay ~= 0 then
        g = g + decay * p
      end
      rule(group, p, g, xs[2 * n + i], moments > 1 and xs[3 * n + i] or nil, step)
    end
  end
  classes[name] = cls
  return cls
end

define("Adadelta", "{lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0, "
    .. "maximize = false, master = true}",
  "Adadelta (arXiv:1212.5701): scales the gradient by the ratio of the running root mean squares "
    .. "of past updates and of gradients.",
  {lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0},
  function(group, p, g, squares, steps)
    squares:mul_(group.rho):add_((1 - group.rho) * g:square())
    local step = ((steps + group.eps) / (squares + group.eps)):sqrt_():mul_(g)
    steps:mul_(group.rho):add_((1 - group.rho) * step:square())
    p:sub_(group.lr * step)
  end)

define("Adamax", "{lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, "
    .. "maximize = false, master = true}",
  "Adamax (arXiv:1412.6980): Adam with a decaying maximum of gradients (the infinity norm) in "
    .. "place of their mean square.",
  {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0},
  function(group, p, g, mean, most, step)
    local b1, b2 = group.betas[1], group.betas[2]
    mean:lerp_(g, 1 - b1)
    most:copy_((most * b2):maximum(g:abs() + group.eps))
    p:sub_(group.lr / (1 - b1 ^ step) * (mean / most))
  end)

-- Updates the running mean and mean square with a gradient.
local function average(group, g, mean, square)
  mean:lerp_(g, 1 - group.betas[1])
  square:mul_(group.betas[2]):add_((1 - group.betas[2]) * g:square())
end

-- NAdam's momentum at a step, and the product of the momenta up to it.
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
    .. "decoupled = false, momentum_decay = 4e-3, maximize = false, master = true}",
  "NAdam (Dozat, 2016): Adam with Nesterov momentum.",
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
    .. "decoupled = false, maximize = false, master = true}",
  "RAdam (arXiv:1908.03265): Adam that divides by the root mean square only after enough steps "
    .. "for its variance to be small.",
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

define("Rprop", "{lr = 0.01, etas = {0.5, 1.2}, sizes = {1e-6, 50}, "
    .. "maximize = false, master = true}",
  "Rprop (Riedmiller and Braun, 1993): steps by the sign of the gradient, each element with a "
    .. "step size that grows while the sign stays and shrinks when it changes; for gradients of "
    .. "all data.",
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

local ASGD = define("ASGD", "{lr = 0.01, lambda = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0, "
    .. "maximize = false, master = true}",
  "Averaged stochastic gradient descent (Polyak and Juditsky, 1992): from step t0 on, the state "
    .. "holds the average of the parameters.",
  {lr = 0.01, lambda = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0},
  function(group, p, g, mean, _, step)
    local rate = group.lr / (1 + group.lambda * group.lr * (step - 1)) ^ group.alpha
    p:mul_(1 - group.lambda * rate):sub_(rate * g)
    mean:lerp_(p, 1 / math.max(1, step - 1 - group.t0))
  end)
function ASGD:moments() return 1 end

local precision = {f64 = 0x1p-52, f32 = 0x1p-23, f16 = 0x1p-10, bf16 = 0x1p-7}

local Adafactor = define("Adafactor", "{lr = 0.01, beta2_decay = -0.8, eps = that of the dtype, "
    .. "floor = 1e-3, limit = 1, weight_decay = 0, maximize = false, master = true}",
  "Adafactor (arXiv:1804.04235): steps relative to the root mean square of the parameter; the "
    .. "second moments of a matrix are kept as row and column means only.",
  {lr = 0.01, beta2_decay = -0.8, eps = options.none, floor = 1e-3, limit = 1, weight_decay = 0},
  function(group, p, g, rows, columns, step)
    local eps = group.eps or precision[p.dtype]
    local share, squares = step ^ group.beta2_decay, g:square()
    local mean
    if p:dim() > 1 then
      rows:lerp_(squares:mean{dims = {-1}, keepdim = true}, share)
      columns:lerp_(squares:mean{dims = {-2}, keepdim = true}, share)
      mean = rows:matmul(columns) / rows:mean{dims = {-2}, keepdim = true}:clamp(eps)
    else
      mean = rows:lerp_(squares, share)
    end
    local root = p:numel() ^ 0.5
    local change = g * mean:clamp(eps ^ 2):rsqrt()
    local size = (p:norm() / root):clamp(group.floor) * math.min(group.lr, step ^ -0.5)
    local limit = (change:norm() / (root * group.limit)):clamp(1)
    p:mul_(1 - group.lr * group.weight_decay):sub_(change * (size / limit))
  end)

Adafactor.decays = true -- applies weight decay itself, after it has measured the parameter

-- For matrices, row means and column means; for other parameters, one tensor of p's shape and an
-- empty one.
function Adafactor:moment_shape(p, k)
  local shape = {table.unpack(p.shape)}
  if #shape > 1 then shape[k == 1 and #shape or #shape - 1] = 1 elseif k == 2 then shape = {0} end
  return shape
end

-- Approximate orthogonalization by the Newton-Schulz iteration: a matrix with nearly the same
-- singular vectors and singular values near 1. bf16 is precise enough.
local function orthogonal(group, x)
  local tall = x:size(1) > x:size(2)
  local y, c = x:to(group.dtype), group.coefficients
  if tall then y = y:t() end
  y = y / y:norm():clamp(group.eps)
  for _ = 1, group.steps do
    local gram = y:matmul(y:t())
    y = core.addmm(y, core.addmm(gram, gram, gram, {beta = c[2], alpha = c[3]}), y, {beta = c[1]})
  end
  return (tall and y:t() or y):to(x.dtype)
end

local Muon = define("Muon", "{lr = 1e-3, momentum = 0.95, nesterov = true, weight_decay = 0.1, "
    .. "steps = 5, coefficients = {3.4445, -4.775, 2.0315}, eps = 1e-7, dtype = \"bf16\", "
    .. "adjust = \"original\", maximize = false, master = true}",
  "Muon (Jordan and others, 2024), for the weight matrices of hidden layers: the momentum, "
    .. "orthogonalized by the Newton-Schulz iteration. adjust = \"match_rms_adamw\" takes steps "
    .. "of AdamW's size (arXiv:2502.16982). Use AdamW for vectors, embeddings and the last layer.",
  {lr = 1e-3, momentum = 0.95, nesterov = true, weight_decay = 0.1, steps = 5,
   coefficients = {3.4445, -4.775, 2.0315}, eps = 1e-7, dtype = "bf16",
   adjust = "original"},
  function(group, p, g, mean)
    mean:lerp_(g, 1 - group.momentum)
    local change = orthogonal(group, group.nesterov and g:lerp(mean, group.momentum) or mean)
    local rows, columns = p:size(1), p:size(2)
    local rate = group.adjust == "original" and math.max(1, rows / columns) ^ 0.5
      or 0.2 * math.max(rows, columns) ^ 0.5
    p:sub_(change * (group.lr * rate))
  end)
Muon.decoupled = true
function Muon:moments() return 1 end

function Muon:prepare(o)
  local modes = {original = true, match_rms_adamw = true}
  if not modes[o.adjust] then
    fail("optim.Muon: unknown adjust '%s'%s", o.adjust, options.hint(o.adjust, modes))
  end
end

function Muon:add_group(group)
  Optimizer.add_group(self, group)
  for i, p in ipairs(self.groups[#self.groups].params) do
    if p:dim() ~= 2 then
      fail("optim.Muon: parameters must be matrices, parameter %d is %s; AdamW takes the others", i,
           tostring(p.shape))
    end
  end
  return self
end

return classes
