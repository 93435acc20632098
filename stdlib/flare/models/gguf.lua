--- Models in GGUF files: their metadata as a configuration, and their tensors under the names of
-- the published folders.
local class = require "flare.class"
local core = require "flare.core"

local M = {}

-- Architecture in GGUF: the published one, its model_type, and whether rows of queries and keys are
-- in pairs of neighbours (llama.cpp rotates those for models that it calls llama).
local kinds = {
  llama = {"LlamaForCausalLM", "llama", true},
  mistral = {"MistralForCausalLM", "mistral", true},
  qwen2 = {"Qwen2ForCausalLM", "qwen2", false},
  qwen3 = {"Qwen3ForCausalLM", "qwen3", false},
}

-- Parts of names: in GGUF, and published.
local parts = {
  {"^token_embd%.", "model.embed_tokens."}, {"^output_norm%.", "model.norm."},
  {"^output%.", "lm_head."}, {"^blk%.(%d+)%.", "model.layers.%1."},
  {"attn_norm%.", "input_layernorm."}, {"ffn_norm%.", "post_attention_layernorm."},
  {"attn_q_norm%.", "self_attn.q_norm."}, {"attn_k_norm%.", "self_attn.k_norm."},
  {"attn_([qkv])%.", "self_attn.%1_proj."}, {"attn_output%.", "self_attn.o_proj."},
  {"ffn_(%a+)%.", "mlp.%1_proj."},
}

local function published(name)
  for _, rule in ipairs(parts) do name = name:gsub(rule[1], rule[2]) end
  return name
end

local scalings = {linear = "linear", yarn = "yarn", none = "default"}

-- The configuration in the file's metadata, or nil and a message.
local function config_of(reader)
  local m = reader.metadata
  local architecture = m["general.architecture"]
  local kind = kinds[architecture]
  if not kind then
    return nil, ("%s: models of the architecture '%s' are not read from GGUF files%s"):format(
      reader.path, tostring(architecture),
      require("flare.options").hint(tostring(architecture), kinds))
  end
  local function get(name) return m[architecture .. "." .. name] end
  local words
  for _, e in ipairs(reader:entries()) do
    if e.name == "token_embd.weight" then words = e.shape[1] end
  end
  local c = {
    architectures = {kind[1]}, model_type = kind[2], vocab_size = words,
    hidden_size = get "embedding_length", intermediate_size = get "feed_forward_length",
    num_hidden_layers = get "block_count", num_attention_heads = get "attention.head_count",
    num_key_value_heads = get "attention.head_count_kv" or get "attention.head_count",
    head_dim = get "attention.key_length", max_position_embeddings = get "context_length",
    rms_norm_eps = get "attention.layer_norm_rms_epsilon",
    sliding_window = get "attention.sliding_window" or core.json.null,
    rope_theta = get "rope.freq_base", tie_word_embeddings = true,
    bos_token_id = m["tokenizer.ggml.bos_token_id"],
    eos_token_id = m["tokenizer.ggml.eos_token_id"],
  }
  local scaling = get "rope.scaling.type"
  if scaling and scaling ~= "none" then
    c.rope_scaling = {rope_type = scalings[scaling] or scaling, factor = get "rope.scaling.factor",
      original_max_position_embeddings = get "rope.scaling.original_context_length"}
  end
  for _, name in ipairs{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                        "num_attention_heads"} do
    if math.type(c[name]) ~= "integer" then
      return nil, ("%s: its metadata do not give %s"):format(reader.path, name)
    end
  end
  return c, kind[3]
end

local Weights = class("GGUFWeights")

function Weights:entry(name) return self.entries[name] end

-- A view of `to`, in which rows of a head are two halves, in the order of the file, in which they
-- are pairs of neighbours.
local function paired(to, heads)
  local shape = to.shape
  local view = to:view(heads, 2, shape[1] // heads // 2, -1)
  return view:transpose(2, 3)
end

function Weights:copy(name, to)
  local e = self.entries[name]
  local heads = e.heads
  if not heads then return self.reader:copy(e.there, to) end
  local x, message = self.reader:tensor(e.there)
  if not x then return nil, message end
  local view = paired(to, heads)
  view:copy_(x:view(view.shape))
  return true
end

-- Tensors that need no change map the file.
function Weights:map(name)
  local e = self.entries[name]
  if not e.heads then return self.reader:tensor(e.there, {map = true}) end
  local x = core.empty(e.shape, {dtype = e.dtype})
  local ok, message = self:copy(name, x)
  if not ok then return nil, message end
  return x
end

function Weights:close() self.reader:close() end
Weights.__close = Weights.close

--- Opens a GGUF file as a model.
-- @return the configuration and the weights, with the methods of files.lua; or nil and a message
function M.open(path)
  local reader, message = require("flare.io.gguf").open(path)
  if not reader then return nil, message end
  local config, in_pairs = config_of(reader)
  if not config then
    reader:close()
    return nil, in_pairs
  end
  local weights = Weights()
  weights.folder, weights.reader, weights.entries = path, reader, {}
  for _, e in ipairs(reader:entries()) do
    local name = published(e.name)
    local which = in_pairs and name:match "self_attn%.([qk])_proj%."
    weights.entries[name] = {name = name, there = e.name, dtype = e.dtype, shape = e.shape,
      stored = e.dtype == e.stored and e.stored:upper() or e.stored,
      heads = which == "q" and config.num_attention_heads
        or which == "k" and config.num_key_value_heads or nil}
    if name == "lm_head.weight" then config.tie_word_embeddings = false end
  end
  if weights.entries["rope_freqs.weight"] then
    local factors
    factors, message = reader:tensor "rope_freqs.weight"
    if not factors then
      reader:close()
      return nil, message
    end
    weights.entries["rope_freqs.weight"], factors = nil, factors:totable()
    config.rope_scaling = {rope_type = "longrope", attention_factor = 1, short_factor = factors,
                           long_factor = factors}
  end
  return config, weights
end

return M
