--- RMSprop (Tieleman and Hinton, 2012): divides the gradient by the square root of a running mean
-- of its squares.
local class = require "flare.class"
local core = require "flare.core"
local Optimizer = require "flare.optim.optimizer"

--- optim.RMSprop(parameters, {lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0,
--   momentum = 0, centered = false, maximize = false, master = true})
local RMSprop = class("RMSprop", Optimizer)
RMSprop.defaults = {lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0,
                    centered = false, maximize = false}

-- mean square, then (centered) mean, then (momentum) velocity
function RMSprop:moments(group)
  return 1 + (group.centered and 1 or 0) + (group.momentum > 0 and 1 or 0)
end

function RMSprop:update(group, xs, _, moments)
  core.rmsprop_step(group.lr, xs, {moments = moments, alpha = group.alpha, eps = group.eps,
                                   weight_decay = group.weight_decay,
                                   momentum = group.momentum, centered = group.centered})
end

return RMSprop
