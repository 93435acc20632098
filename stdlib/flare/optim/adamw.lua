--- AdamW (arXiv:1711.05101): Adam with decoupled weight decay, applied to the weights themselves.
local class = require "flare.class"
local Adam = require "flare.optim.adam"

--- optim.AdamW(parameters, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8,
--   weight_decay = 0.01, amsgrad = false, maximize = false, master = true})
local AdamW = class("AdamW", Adam)
AdamW.defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01,
                  amsgrad = false, maximize = false}
AdamW.decoupled = true

return AdamW
