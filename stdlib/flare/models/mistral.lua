--- Mistral (arXiv:2310.06825): a Llama whose tokens see the last `sliding_window` tokens.
local llama = require "flare.models.llama"

return llama.family{
  name = "Mistral", type = "mistral",
  defaults = {intermediate_size = 14336, num_key_value_heads = 8, sliding_window = 4096,
              max_position_embeddings = 131072},
  variant = function(c)
    local windows = {}
    for i = 1, c.num_hidden_layers do windows[i] = c.sliding_window end
    return {windows = windows}
  end,
}
