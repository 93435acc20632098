--- Layers of experts in published models: nn.MoE, and a layer that every token passes through as
-- well, with a gate of its own.
local flare = require "flare"
local activations = require "flare.models.activations"
local nn = flare.nn

local SparseMLP = flare.class("SparseMLP", nn.MoE)

--- SparseMLP{width, hidden, experts, top_k, act, normalise, balance, shared}: the options of
-- nn.MoE, `act` by its name in config.json, and the shared layer.
function SparseMLP:init(o)
  nn.MoE.init(self, o.width, {experts = o.experts, top_k = o.top_k, hidden = o.hidden,
    act = activations.fused(o.act), normalise = o.normalise, balance = o.balance})
  if o.shared then
    self.shared_expert = o.shared
    self.shared_expert_gate = nn.Linear(o.width, 1, {bias = false})
  end
end

function SparseMLP:forward(x)
  local y = nn.MoE.forward(self, x)
  if not self.shared_expert then return y end
  return y + self.shared_expert_gate(x):sigmoid() * self.shared_expert(x)
end

return {SparseMLP = SparseMLP}
