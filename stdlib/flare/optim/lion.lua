--- Lion (arXiv:2302.06675): the update is the sign of a running mean of the gradient, times lr.
local class = require "flare.class"
local core = require "flare.core"
local Optimizer = require "flare.optim.optimizer"
local Adam = require "flare.optim.adam"

--- optim.Lion(parameters, {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, master = true})
local Lion = class("Lion", Optimizer)
Lion.defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0}
Lion.prepare = Adam.prepare

function Lion:moments()
  return 1
end

function Lion:update(group, xs)
  core.lion_step(group.lr, xs, {moments = 1, beta1 = group.betas[1], beta2 = group.betas[2],
                                weight_decay = group.weight_decay})
end

return Lion
