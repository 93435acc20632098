--- Mixtures of experts (arXiv:1701.06538, arXiv:2401.04088): a router sends each token to a few of
-- many feed-forward layers. Tokens are sorted by expert, so no mask of tokens and experts is made.
local flare = require "flare"
local activations = require "flare.models.activations"
local nn = flare.nn

local Experts = flare.class("Experts", nn.Module)

--- Experts(count, width, hidden, act): gated feed-forward layers with their weights in one tensor.
function Experts:init(count, width, hidden, act)
  self.act = activations.fused(act)
  self.gate_proj = self:param(nn.init.normal({count, hidden, width}, {std = 0.02}))
  self.up_proj = self:param(nn.init.normal({count, hidden, width}, {std = 0.02}))
  self.down_proj = self:param(nn.init.normal({count, width, hidden}, {std = 0.02}))
end

--- @param x (tokens, width)
-- @param chosen (tokens, k), the experts of each token, from 1
-- @param share (tokens, k), the factors of their results
-- @return (tokens, width)
function Experts:forward(x, chosen, share)
  local k, flat = chosen:size(2), chosen:reshape(-1)
  local order = flat:argsort()
  local token = (order - 1):floor_div(k) + 1
  local counts = flat:bincount{minlength = self.gate_proj:size(1) + 1}:totable()
  local sorted, parts, at = x:index_select(1, token), {}, 1
  for e = 1, self.gate_proj:size(1) do
    local n = counts[e]
    if n > 0 then
      local part = sorted:narrow(1, at, n)
      local gate = flare.linear(part, self.gate_proj:select(1, e), nil, self.act)
      local up = flare.linear(part, self.up_proj:select(1, e))
      parts[#parts + 1] = flare.linear(gate * up, self.down_proj:select(1, e))
      at = at + n
    end
  end
  local y = flare.cat(parts, 1) * share:reshape(-1):index_select(1, order):unsqueeze(2)
  return flare.zeros_like(x):index_add(1, token, y:to(x.dtype))
end

local Router = flare.class("Router", nn.Module)

--- Router(width, count, k, normalise): the k likeliest experts of each token and their
-- probabilities, which add up to 1 with `normalise`.
function Router:init(width, count, k, normalise)
  self.k, self.normalise = k, normalise
  self.weight = self:param(nn.init.normal({count, width}, {std = 0.02}))
end

function Router:forward(x)
  local p = flare.linear(x, self.weight):to("f32"):softmax(-1)
  local share, chosen = p:topk(self.k)
  if self.normalise then share = share / share:sum{dims = -1, keepdim = true} end
  return chosen, share:to(x.dtype)
end

local SparseMLP = flare.class("SparseMLP", nn.Module)

--- SparseMLP{width, hidden, count, k, act, normalise, shared}: a router and its experts; `shared`,
-- a layer that every token passes through as well, with a gate of its own.
function SparseMLP:init(o)
  self.gate = Router(o.width, o.count, o.k, o.normalise)
  self.experts = Experts(o.count, o.width, o.hidden, o.act)
  if o.shared then
    self.shared_expert = o.shared
    self.shared_expert_gate = nn.Linear(o.width, 1, {bias = false})
  end
end

function SparseMLP:forward(x)
  local flat = x:flatten(1, -2)
  local y = self.experts(flat, self.gate(flat))
  if self.shared_expert then
    y = y + self.shared_expert_gate(flat):sigmoid() * self.shared_expert(flat)
  end
  return y:view(x.shape)
end

return {Experts = Experts, Router = Router, SparseMLP = SparseMLP}
