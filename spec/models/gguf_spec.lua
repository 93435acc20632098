-- Models in GGUF files, whose names and order of rows are those of llama.cpp's converter.
local flare = require "flare"
local models, gguf = flare.models, flare.io.gguf
local support = require "spec.support.models"

local path
before_each(function() path = os.tmpname() .. ".gguf" end)
after_each(function() os.remove(path) end)

local names = {["model.embed_tokens"] = "token_embd", ["model.norm"] = "output_norm",
  lm_head = "output", input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm",
  ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k", ["self_attn.v_proj"] = "attn_v",
  ["self_attn.o_proj"] = "attn_output", ["self_attn.q_norm"] = "attn_q_norm",
  ["self_attn.k_norm"] = "attn_k_norm", ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up",
  ["mlp.down_proj"] = "ffn_down"}

-- Rows of each head in two halves become rows in pairs, as the converter does for llama.
local function in_pairs(x, heads)
  local size = x:size(1) // heads
  local order = {}
  for h = 0, heads - 1 do
    for k = 0, size // 2 - 1 do
      order[#order + 1] = h * size + k + 1
      order[#order + 1] = h * size + size // 2 + k + 1
    end
  end
  return x:index_select(1, flare.tensor(order, {dtype = "i64"}))
end

-- Writes a model of spec/data as GGUF; `more` are further tensors and metadata.
local function write(name, architecture, types, more)
  local about = support.about(name)
  local c, tensors = about.config, {}
  for there, x in pairs(support.weights(about)) do
    local layer, rest = there:match "^model%.layers%.(%d+)%.(.*)$"
    local stem, ending = (rest or there):match "^(.*)%.(%a+)$"
    if architecture == "llama" and stem == "self_attn.q_proj" then
      x = in_pairs(x, c.num_attention_heads)
    elseif architecture == "llama" and stem == "self_attn.k_proj" then
      x = in_pairs(x, c.num_key_value_heads)
    end
    tensors[(layer and "blk." .. layer .. "." or "") .. names[stem] .. "." .. ending] = x
  end
  local metadata = {["general.architecture"] = architecture}
  for key, value in pairs{embedding_length = c.hidden_size, block_count = c.num_hidden_layers,
      feed_forward_length = c.intermediate_size, context_length = c.max_position_embeddings,
      ["attention.head_count"] = c.num_attention_heads, ["rope.freq_base"] = 10000.0,
      ["attention.head_count_kv"] = c.num_key_value_heads,
      ["attention.key_length"] = math.type(c.head_dim) and c.head_dim or nil,
      ["attention.layer_norm_rms_epsilon"] = c.rms_norm_eps} do
    metadata[architecture .. "." .. key] = value
  end
  for key, x in pairs(more or {}) do
    if flare.is_tensor(x) then tensors[key] = x else metadata[key] = x end
  end
  assert(gguf.save(path, tensors, metadata, {types = types}))
end

local ids = support.ids(97)

describe("models.load of a GGUF file", function()
  it("computes what the published folder does", function()
    for name, architecture in pairs{llama = "llama", qwen3 = "qwen3"} do
      write(name, architecture)
      local model = assert(models.load(path))
      assert.equal(support.about(name).config.architectures[1], getmetatable(model).__name)
      local want = support.expected(name, "logits")
      assert.truthy(support.off(model(ids):narrow(2, 39, 2), want) <= 2e-5)
    end
    local about = support.about "qwen2" -- whose layers see all tokens in GGUF
    about.config.use_sliding_window, about.config.layer_types = false, nil
    local folder = support.folder(about)
    local want = assert(models.load(folder))(ids)
    support.remove(folder)
    write("qwen2", "qwen2")
    assert.truthy(support.off(assert(models.load(path))(ids), want) <= 2e-5)
  end)

  it("reads blocks, in f32 or the dtype that is asked for", function()
    write("llama", "llama", "q8_0")
    local model = assert(models.load(path))
    assert.equal("f32", model:dtype())
    local want = support.load "llama"(ids)
    assert.truthy(support.off(model(ids), want) < 0.1)
    assert.equal("bf16", models.load(path, {dtype = "bf16"}):dtype())
    local again = os.tmpname()
    os.remove(again)
    assert(model:save(again))
    assert.truthy(assert(models.load(again))(ids):eq(model(ids)):all():item())
    support.remove(again)
  end)

  it("reads tied weights, scaled positions and factors of frequencies", function()
    local folder = support.folder(support.about "llama_yarn")
    local want = assert(models.load(folder))(ids)
    support.remove(folder)
    write("llama_yarn", "llama", nil, {["llama.rope.scaling.type"] = "yarn",
      ["llama.rope.scaling.factor"] = 4.0, ["llama.rope.scaling.original_context_length"] = 32})
    assert.truthy(support.off(assert(models.load(path))(ids), want) <= 2e-5)
    -- a factor of 4 for each frequency is the same as positions divided by 4
    write("llama_linear", "llama", nil, {["rope_freqs.weight"] = flare.full({4}, 4)})
    want = support.expected("llama_linear", "logits")
    assert.truthy(support.off(assert(models.load(path))(ids):narrow(2, 39, 2), want) <= 2e-5)
  end)

  it("names what it cannot read", function()
    assert.matches("architecture 'test' are not read from GGUF files",
                   select(2, models.load "spec/data/files/tree.gguf"))
    assert(gguf.save(path, {x = flare.ones(2)}, {["general.architecture"] = "llama"}))
    assert.matches("its metadata do not give vocab_size", select(2, models.load(path)))
    write("llama", "llama", nil, {["more.weight"] = flare.ones(2)})
    assert.matches("unknown:\n    more.weight", select(2, models.load(path)))
  end)
end)

describe("models.load of PyTorch's files", function()
  it("reads pytorch_model.bin, and refuses one that holds code", function()
    local folder = support.folder(support.about "llama", true)
    local function put(name)
      local text = assert(flare.core.file.read("spec/data/files/" .. name))
      assert(flare.core.file.write_atomic(folder .. "/pytorch_model.bin", text))
      return select(2, models.load(folder))
    end
    assert.matches("pytorch_model.bin: data.pkl: the pickle names posix.system", put "code.pt")
    assert.matches("missing:\n    lm_head.weight", put "tree.pt")
    support.remove(folder)
  end)
end)
