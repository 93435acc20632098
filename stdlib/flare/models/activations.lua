--- Activations by the names that configurations have.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- Published name: that of nn.Linear's option `act`.
local fused = {silu = "silu", swish = "silu", relu = "relu", gelu = "gelu", tanh = "tanh",
  sigmoid = "sigmoid", gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh",
  gelu_fast = "gelu_tanh", linear = "none"}

local others = {
  quick_gelu = function(x) return x * (x * 1.702):sigmoid() end,
  relu2 = function(x) return core.relu(x):square() end,
  gelu_10 = function(x) return core.gelu(x):clamp(-10, 10) end,
  mish = core.mish, leaky_relu = core.leaky_relu, relu6 = core.relu6, hardswish = core.hardswish,
  elu = core.elu, selu = core.selu,
}

--- The option `act` of nn.Linear for an activation that linear layers have.
function M.fused(name)
  local act = fused[name]
  if not act then
    fail("the activation '%s' is none of those of a linear layer%s", tostring(name),
         options.hint(tostring(name), fused))
  end
  return act
end

--- The option `act` of nn.Linear, and a function for what it does not do, or nil.
function M.find(name)
  if fused[name] then return fused[name] end
  if others[name] then return "none", others[name] end
  local all = {}
  for _, list in ipairs{fused, others} do
    for key in pairs(list) do all[key] = true end
  end
  fail("unknown activation '%s'%s", tostring(name), options.hint(tostring(name), all))
end

return M
