--- Which layers of published models are divided, and how: a table for each kind of model, from the
-- ends of module names (`*` stands for a number) to what becomes of them:
--
--     "enter"       a region of its own begins at the module's input
--     "column"      a linear layer: each rank has some outputs, and a region begins at the input
--                   if the layer is in none; {"column", parts = 3}: the outputs are 3 blocks that
--                   are cut alike; {"column", unit = "size"}: as many outputs as the parent's field
--                   `size` says (a head) stay together
--     "row"         a linear layer: each rank has some inputs; ends the region
--     "vocabulary"  an embedding: each rank has some rows
--     "head"        a linear layer to logits of the vocabulary
--     "experts"     an nn.MoE: each rank has some features of every expert
--     "shared"      the ranks' inputs differ (other heads): gradients of the parameters add up
--     {"enter", divide = {"heads"}}   fields of the module that become the rank's part
--     {"divide", divide = {"heads"}}  the same for a module without a region of its own
--
-- The rest matters with split sequences only:
--
--     "norm"        works on the rank's positions
--     "last"        the same, and its result is joined to whole sequences
--     "dropout"     drops other elements on each rank
--     "positions"   looks up the rank's positions
local M = {}

M.gpt2 = {
  wte = "vocabulary", wpe = "positions", drop = "dropout", lm_head = "head", ln_f = "last",
  ["h.*.ln_1"] = "norm", ["h.*.ln_2"] = "norm", ["h.*.drop"] = "dropout",
  ["h.*.attn"] = {"enter", divide = {"heads"}}, ["h.*.attn.c_attn"] = {"column", parts = 3},
  ["h.*.attn.c_proj"] = "row",
  ["h.*.mlp"] = "enter", ["h.*.mlp.c_fc"] = "column", ["h.*.mlp.c_proj"] = "row",
}

-- Llama and what is made like it.
M.llama = {
  embed_tokens = "vocabulary", norm = "last", lm_head = "head",
  ["layers.*.input_layernorm"] = "norm", ["layers.*.post_attention_layernorm"] = "norm",
  ["layers.*.self_attn"] = "enter", ["layers.*.self_attn.q_proj"] = {"column", unit = "size"},
  ["layers.*.self_attn.k_proj"] = {"column", unit = "size"},
  ["layers.*.self_attn.v_proj"] = {"column", unit = "size"},
  ["layers.*.self_attn.q_norm"] = "shared", ["layers.*.self_attn.k_norm"] = "shared",
  ["layers.*.self_attn.o_proj"] = "row",
  ["layers.*.mlp"] = "enter", ["layers.*.mlp.gate_proj"] = "column",
  ["layers.*.mlp.up_proj"] = "column", ["layers.*.mlp.down_proj"] = "row",
}

-- The same with experts in place of feed-forward layers.
M.mixtral = setmetatable({["layers.*.mlp"] = "experts", ["mlp.shared_expert"] = "enter",
  ["mlp.shared_expert.gate_proj"] = "column", ["mlp.shared_expert.up_proj"] = "column",
  ["mlp.shared_expert.down_proj"] = "row"}, {__index = M.llama})

M.bert = {
  ["attention.self"] = {"enter", divide = {"heads"}}, ["attention.self.query"] = "column",
  ["attention.self.key"] = "column", ["attention.self.value"] = "column",
  ["attention.output.dense"] = "row",
  ["layer.*.intermediate"] = "enter", ["layer.*.intermediate.dense"] = "column",
  ["layer.*.output.dense"] = "row",
}

M.vit = {
  ["attention.attention"] = {"enter", divide = {"heads"}}, ["attention.attention.query"] = "column",
  ["attention.attention.key"] = "column", ["attention.attention.value"] = "column",
  ["attention.output.dense"] = "row",
  ["layer.*.intermediate.dense"] = "column",
  ["layer.*.output.dense"] = "row",
}

M.clip = {
  self_attn = {"enter", divide = {"heads"}}, ["self_attn.q_proj"] = "column",
  ["self_attn.k_proj"] = "column", ["self_attn.v_proj"] = "column", ["self_attn.out_proj"] = "row",
  ["layers.*.mlp"] = "enter", ["mlp.fc1"] = "column", ["mlp.fc2"] = "row",
}

-- Attention to what the encoder gave has two inputs: each projection enters by itself.
M.whisper = {["layers.*.fc1"] = "column", ["layers.*.fc2"] = "row"}
for _, name in ipairs {"self_attn", "encoder_attn"} do
  M.whisper[name] = {"divide", divide = {"heads"}}
  for _, projection in ipairs {"q_proj", "k_proj", "v_proj"} do
    M.whisper[name .. "." .. projection] = "column"
  end
  M.whisper[name .. ".out_proj"] = "row"
end

for name, of in pairs {mistral = "llama", qwen2 = "llama", qwen3 = "llama", qwen3_moe = "mixtral",
                       qwen2_moe = "mixtral"} do
  M[name] = M[of]
end

-- Flare's own layers, in any model, by class: names of what is inside.
M.classes = {
  MultiHeadAttention = {[""] = {"enter", divide = {"heads"}}, q = "column", k = "column",
                        v = "column", out = "row"},
  TransformerEncoderLayer = {linear1 = "column", linear2 = "row"},
  TransformerDecoderLayer = {linear1 = "column", linear2 = "row"},
}

--- A plan as a list of {pattern, entry}, longest name first.
function M.list(plan)
  local all, from = {}, plan
  while from do
    for name, entry in next, from do
      if all[name] == nil then all[name] = entry end
    end
    local meta = getmetatable(from)
    from = meta and meta.__index
  end
  local list = {}
  for name, entry in next, all do
    local pattern = name:gsub("[%-%.%+%[%]%(%)%$%^%%%?]", "%%%0"):gsub("%*", "%%d+")
    list[#list + 1] = {name = name, pattern = "%f[%w_]" .. pattern .. "$",
      entry = type(entry) == "table" and entry or {entry}}
  end
  table.sort(list, function(a, b)
    if #a.name ~= #b.name then return #a.name > #b.name end
    return a.name < b.name
  end)
  return list
end

return M
