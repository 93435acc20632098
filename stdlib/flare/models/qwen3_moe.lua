--- Qwen 3 with experts (arXiv:2505.09388).
local llama = require "flare.models.llama"
local qwen2 = require "flare.models.qwen2"
local qwen2_moe = require "flare.models.qwen2_moe"

local defaults = {head_dim = 128, num_experts = 128, num_experts_per_tok = 8,
                  moe_intermediate_size = 768, num_key_value_heads = 4}
for name, value in pairs(qwen2_moe.defaults) do
  if defaults[name] == nil then defaults[name] = value end
end

return llama.family{
  name = "Qwen3Moe", type = "qwen3_moe", defaults = defaults, mlp = qwen2_moe.mlp,
  tensors = qwen2_moe.tensors, names = {num_experts = "num_local_experts"},
  variant = function(c)
    return {qkv_bias = c.attention_bias, out_bias = c.attention_bias, qk_norm = true,
            windows = qwen2.windows(c)}
  end,
}
