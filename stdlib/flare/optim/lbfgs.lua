--- L-BFGS (Liu and Nocedal, 1989): a quasi-Newton method that estimates the curvature from the last
-- few gradients and finds the step length by a line search. For smooth, deterministic losses over
-- all data.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local line_search = require "flare.optim.line_search"
local master = require "flare.optim.master"
local options = require "flare.options"
local Optimizer = require "flare.optim.optimizer"

--- optim.LBFGS(parameters, {lr = 1, max_iter = 20, max_eval = max_iter * 1.25,
--   history = 10, tolerance_grad = 1e-7, tolerance_change = 1e-9, line_search = "wolfe",
--   master = true})
-- `line_search`: "wolfe" (strong Wolfe conditions) or "none" (steps of lr).
local LBFGS = class("LBFGS", Optimizer)
LBFGS.defaults = {lr = 1, max_iter = 20, max_eval = 0, history = 10, tolerance_grad = 1e-7,
                  tolerance_change = 1e-9, line_search = "wolfe"}

function LBFGS:prepare(o)
  if o.line_search ~= "wolfe" and o.line_search ~= "none" then
    fail("optim.LBFGS: line_search is 'wolfe' or 'none', got '%s'", o.line_search)
  end
end

function LBFGS:add_group(group)
  if #self.groups > 0 then fail("optim.LBFGS: only one group of parameters is possible") end
  Optimizer.add_group(self, group)
  self.memory = {s = {}, y = {}, rho = {}, scale = 1, iterations = 0}
  return self
end

-- All gradients, in the dtypes of `copies`; missing gradients are zeros.
local function gather(params, copies)
  local list = {}
  for i, p in ipairs(params) do
    local dtype = copies[i].dtype
    list[i] = p.grad and p.grad:reshape(-1):to(dtype)
      or core.zeros({p:numel()}, {dtype = dtype, device = p.device})
  end
  return core.cat(list, {dim = 1})
end

-- p = start + t * direction, piece by piece; `copies` are the parameters or their master copies.
local function move(group, copies, start, direction, t)
  local at = 1
  for i, p in ipairs(copies) do
    local n = p:numel()
    p:copy_(start[i] + direction:narrow(1, at, n):view(p.shape) * t)
    at = at + n
  end
  master.write(group.params, copies, group.state)
end

-- The two-loop recursion: -H * gradient from the last pairs (s, y).
local function newton(memory, gradient)
  local q, alpha = -gradient, {}
  for i = #memory.s, 1, -1 do
    alpha[i] = (memory.s[i] * q):sum():item() * memory.rho[i]
    q = q - memory.y[i] * alpha[i]
  end
  q = q * memory.scale
  for i = 1, #memory.s do
    local beta = (memory.y[i] * q):sum():item() * memory.rho[i]
    q = q + memory.s[i] * (alpha[i] - beta)
  end
  return q
end

local function remember(memory, s, y, most)
  local ys = (y * s):sum():item()
  if ys <= 1e-10 then return end -- not a positive curvature: the pair would spoil H
  if #memory.s >= most then
    for _, list in ipairs{memory.s, memory.y, memory.rho} do table.remove(list, 1) end
  end
  table.insert(memory.s, s)
  table.insert(memory.y, y)
  table.insert(memory.rho, 1 / ys)
  memory.scale = ys / (y * y):sum():item()
end

--- Runs up to max_iter iterations.
-- @param closure computes the loss after zero_grad, calls backward, returns the loss
-- @return the first loss as a number
function LBFGS:step(closure)
  if type(closure) ~= "function" then
    fail("LBFGS:step needs a function that computes the loss and its gradients")
  end
  local group, memory = self.groups[1], self.memory
  local params = group.params
  local evaluations = 0
  local limit = group.max_eval > 0 and group.max_eval or group.max_iter * 5 // 4
  local function evaluate()
    evaluations = evaluations + 1
    local _ <close> = core.enable_grad()
    local loss = closure()
    if type(loss) == "number" then return loss end
    return options.tensor("LBFGS:step", "the loss", loss):item()
  end
  local first = evaluate()
  local loss = first
  local _ <close> = core.no_grad()
  local copies = {}
  for i, p in ipairs(params) do copies[i] = master.of(group, p, group.state[i]) end
  local gradient = gather(params, copies)
  if gradient:abs():amax():item() <= group.tolerance_grad then return first end

  for _ = 1, group.max_iter do
    memory.iterations = memory.iterations + 1
    local direction = newton(memory, gradient)
    local slope = (gradient * direction):sum():item()
    if slope > -group.tolerance_change then break end
    local t = group.lr
    if memory.iterations == 1 then
      t = math.min(1, 1 / gradient:abs():sum():item()) * group.lr
    end
    local start = {}
    for i, p in ipairs(copies) do start[i] = p:detach():clone() end
    local old_loss, old_gradient = loss, gradient
    local function try(step)
      move(group, copies, start, direction, step)
      local value = evaluate()
      local g = gather(params, copies)
      return value, (g * direction):sum():item(), g
    end
    if group.line_search == "wolfe" then
      t, loss, gradient = line_search(try, t, loss, slope, gradient, group.tolerance_change)
      move(group, copies, start, direction, t)
    else
      loss, _, gradient = try(t)
    end
    remember(memory, direction * t, gradient - old_gradient, group.history)
    if evaluations >= limit or gradient:abs():amax():item() <= group.tolerance_grad
       or (direction * t):abs():amax():item() <= group.tolerance_change
       or math.abs(loss - old_loss) < group.tolerance_change then
      break
    end
  end
  return first
end

--- The options and the pairs (s, y) of the history.
function LBFGS:state_dict()
  local saved = Optimizer.state_dict(self)
  local memory = self.memory
  saved.memory = {s = memory.s, y = memory.y, rho = memory.rho, scale = memory.scale,
                  iterations = memory.iterations}
  return saved
end

function LBFGS:load_state_dict(saved, message)
  Optimizer.load_state_dict(self, saved, message)
  local memory = saved.memory or {s = {}, y = {}, rho = {}, scale = 1, iterations = 0}
  self.memory = {s = table.move(memory.s, 1, #memory.s, 1, {}),
                 y = table.move(memory.y, 1, #memory.y, 1, {}),
                 rho = table.move(memory.rho, 1, #memory.rho, 1, {}),
                 scale = memory.scale, iterations = memory.iterations}
  return self
end

return LBFGS
