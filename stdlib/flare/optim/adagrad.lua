--- Adagrad (Duchi and others, 2011): divides the gradient by the square root of the sum of all its
-- squares so far.
local class = require "flare.class"
local core = require "flare.core"
local Optimizer = require "flare.optim.optimizer"

--- optim.Adagrad(parameters, {lr = 0.01, lr_decay = 0, eps = 1e-10, weight_decay = 0,
--   maximize = false, master = true})
local Adagrad = class("Adagrad", Optimizer)
Adagrad.defaults = {lr = 0.01, lr_decay = 0, eps = 1e-10, weight_decay = 0, maximize = false}

function Adagrad:moments()
  return 1
end

function Adagrad:update(group, xs, step)
  local lr = group.lr / (1 + (step - 1) * group.lr_decay)
  core.adagrad_step(lr, xs, {moments = 1, eps = group.eps,
                             weight_decay = group.weight_decay})
end

return Adagrad
