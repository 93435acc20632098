--- Stochastic gradient descent with momentum.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Optimizer = require "flare.optim.optimizer"

--- optim.SGD(parameters, {lr = 1e-3, momentum = 0, dampening = 0, nesterov = false,
--   weight_decay = 0, maximize = false, master = true})
local SGD = class("SGD", Optimizer)
SGD.defaults = {lr = 1e-3, momentum = 0, dampening = 0, nesterov = false, weight_decay = 0,
                maximize = false}
SGD.ascends = true

function SGD:prepare(o)
  if o.nesterov and (o.momentum <= 0 or o.dampening ~= 0) then
    fail("optim.SGD: nesterov needs a momentum above 0 and no dampening")
  end
end

function SGD:moments(group)
  return group.momentum > 0 and 1 or 0
end

function SGD:update(group, xs, step, moments)
  core.sgd_step(group.lr, xs, {moments = moments, momentum = group.momentum,
                               dampening = group.dampening, nesterov = group.nesterov,
                               weight_decay = group.weight_decay, first = step == 1,
                               maximize = group.maximize})
end

return SGD
