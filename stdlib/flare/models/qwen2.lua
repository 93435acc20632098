--- Qwen 2 and 2.5 (arXiv:2407.10671, arXiv:2412.15115): a Llama with biases of queries, keys and
-- values; layers may see a window only.
local flare = require "flare"
local llama = require "flare.models.llama"
local null = flare.core.json.null

local M = {}

M.defaults = {vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = 32,
  max_position_embeddings = 32768, use_sliding_window = false, sliding_window = 4096,
  max_window_layers = 28, layer_types = null}

-- The window of each layer: layer_types names the layers that have one; older files have the number
-- of layers that have none.
function M.windows(c)
  local windows = {}
  for i = 1, c.num_hidden_layers do
    local has
    if c.layer_types then
      has = c.layer_types[i] == "sliding_attention"
    else
      has = c.use_sliding_window and i > c.max_window_layers
    end
    windows[i] = has and c.sliding_window
  end
  return windows
end

local classes = llama.family{
  name = "Qwen2", type = "qwen2", defaults = M.defaults,
  variant = function(c) return {qkv_bias = true, windows = M.windows(c)} end,
}
for name, class in pairs(classes) do M[name] = class end
return M
