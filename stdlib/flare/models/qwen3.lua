--- Qwen 3 (arXiv:2505.09388): a Llama whose queries and keys are normalised, head by head.
local llama = require "flare.models.llama"
local qwen2 = require "flare.models.qwen2"

local defaults = {head_dim = 128}
for name, value in pairs(qwen2.defaults) do defaults[name] = value end

return llama.family{
  name = "Qwen3", type = "qwen3", defaults = defaults,
  variant = function(c)
    return {qkv_bias = c.attention_bias, out_bias = c.attention_bias, qk_norm = true,
            windows = qwen2.windows(c)}
  end,
}
