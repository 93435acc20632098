--- Adam (arXiv:1412.6980), with weight decay added to the gradient (L2 regularization).
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Optimizer = require "flare.optim.optimizer"

--- optim.Adam(parameters, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0,
--   amsgrad = false, maximize = false, master = true})
local Adam = class("Adam", Optimizer)
Adam.defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, amsgrad = false,
                 maximize = false}
Adam.decoupled, Adam.ascends = false, true

local function is_beta(b)
  return type(b) == "number" and b >= 0 and b < 1
end

function Adam:prepare(o)
  local betas = o.betas
  if type(betas) ~= "table" or #betas ~= 2 or not (is_beta(betas[1]) and is_beta(betas[2])) then
    fail("optim.%s: betas must be two numbers in [0, 1), like {0.9, 0.999}",
         getmetatable(self).__name)
  end
end

function Adam:moments(group)
  return group.amsgrad and 3 or 2
end

function Adam:update(group, xs, step, moments)
  core.adam_step(group.lr, step, xs, {moments = moments, beta1 = group.betas[1],
                                      beta2 = group.betas[2], eps = group.eps,
                                      weight_decay = group.weight_decay,
                                      decoupled = self.decoupled, amsgrad = group.amsgrad,
                                      maximize = group.maximize})
end

return Adam
