--- Mixtral (arXiv:2401.04088): Mistral with two of eight experts in place of each feed-forward
-- layer.
local flare = require "flare"
local llama = require "flare.models.llama"
local moe = require "flare.models.moe"
local null = flare.core.json.null

local function mlp(c)
  return moe.SparseMLP{width = c.hidden_size, hidden = c.intermediate_size,
    experts = c.num_local_experts, top_k = c.num_experts_per_tok, act = c.hidden_act,
    normalise = true, balance = c.router_aux_loss_coef}
end

return llama.family{
  name = "Mixtral", type = "mixtral", mlp = mlp,
  defaults = {intermediate_size = 14336, num_key_value_heads = 8, sliding_window = null,
    max_position_embeddings = 131072, rms_norm_eps = 1e-5, num_local_experts = 8,
    num_experts_per_tok = 2, router_aux_loss_coef = 0.001, router_jitter_noise = 0,
    rope_parameters = {rope_theta = 1e6, rope_type = "default"}},
  variant = function(c)
    local windows = {}
    for i = 1, c.num_hidden_layers do windows[i] = c.sliding_window end
    return {windows = windows}
  end,
  tensors = {
    {"mlp%.gate_proj$", "block_sparse_moe.experts.#.w1.weight", "stack",
     {"mlp.experts.gate_up_proj", 1}},
    {"mlp%.up_proj$", "block_sparse_moe.experts.#.w3.weight", "stack",
     {"mlp.experts.gate_up_proj", 2}},
    {"mlp%.down_proj$", "block_sparse_moe.experts.#.w2.weight", "stack",
     {"mlp.experts.down_proj"}},
    {"mlp%.router$", "block_sparse_moe.gate.weight", nil, {"mlp.gate.weight"}},
  },
}
