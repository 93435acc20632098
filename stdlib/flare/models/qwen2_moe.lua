--- Qwen 1.5 and 2 with experts (arXiv:2407.10671): many small experts, and one that all tokens
-- share.
local flare = require "flare"
local llama = require "flare.models.llama"
local moe = require "flare.models.moe"
local qwen2 = require "flare.models.qwen2"
local null = flare.core.json.null

local M = {}

M.defaults = {num_experts = 60, num_experts_per_tok = 4, moe_intermediate_size = 1408,
  decoder_sparse_step = 1, norm_topk_prob = false, mlp_only_layers = null, qkv_bias = true,
  router_aux_loss_coef = 0.001}
for name, value in pairs(qwen2.defaults) do M.defaults[name] = value end

M.tensors = {
  {"mlp%.gate_proj$", "mlp.experts.#.gate_proj.weight", "stack", {"mlp.experts.gate_up_proj", 1}},
  {"mlp%.up_proj$", "mlp.experts.#.up_proj.weight", "stack", {"mlp.experts.gate_up_proj", 2}},
  {"mlp%.down_proj$", "mlp.experts.#.down_proj.weight", "stack", {"mlp.experts.down_proj"}},
  {"mlp%.router$", "mlp.gate.weight"},
}

-- Whether a layer has experts; layers count from 1.
function M.is_sparse(c, layer)
  for _, dense in ipairs(c.mlp_only_layers or {}) do
    if dense == layer - 1 then return false end
  end
  return c.num_experts > 0 and layer % c.decoder_sparse_step == 0
end

--- A feed-forward layer: of experts, with the shared one if the configuration has it, or dense.
function M.mlp(c, layer)
  if not M.is_sparse(c, layer) then return llama.MLP(c) end
  local hidden = c.shared_expert_intermediate_size
  return moe.SparseMLP{width = c.hidden_size, hidden = c.moe_intermediate_size,
    experts = c.num_experts, top_k = c.num_experts_per_tok, act = c.hidden_act,
    normalise = c.norm_topk_prob, balance = c.router_aux_loss_coef,
    shared = hidden and llama.MLP(setmetatable({intermediate_size = hidden}, {__index = c}))}
end

local defaults = {shared_expert_intermediate_size = 5632}
for name, value in pairs(M.defaults) do defaults[name] = value end

local classes = llama.family{
  name = "Qwen2Moe", type = "qwen2_moe", mlp = M.mlp, tensors = M.tensors,
  defaults = defaults,
  variant = function(c) return {qkv_bias = c.qkv_bias, windows = qwen2.windows(c)} end,
}
for name, class in pairs(classes) do M[name] = class end
return M
