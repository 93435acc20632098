-- Folders of published models: what is read, what is refused and how the message says it.
local flare = require "flare"
local core, models = flare.core, flare.models
local support = require "spec.support.models"
local safetensors = flare.io.safetensors

local path
before_each(function() path = nil end)
after_each(function() if path then support.remove(path) end end)

-- A folder of the model "llama" whose tensors `change` may change before they are written.
local function folder(change, config)
  local about = support.about "llama"
  for key, value in pairs(config or {}) do about.config[key] = value end
  path = support.folder(about, true)
  local weights = support.weights(about)
  if change then change(weights) end
  assert(safetensors.save(path .. "/model.safetensors", weights))
  return path
end

local function refused(pattern, ...)
  local model, message = models.load(...)
  assert.is_nil(model)
  assert.matches(pattern, message)
end

local function peak() -- of resident memory in bytes, without pages of files
  local status = assert(io.open "/proc/self/status"):read "a"
  return tonumber(status:match "RssAnon:%s+(%d+)") * 1024
end

describe("models.load", function()
  it("names what is missing, unknown and of another shape, with the nearest names", function()
    folder(function(w)
      w["model.norm.weihgt"], w["model.norm.weight"] = w["model.norm.weight"], nil
      w["model.embed_tokens.weight"] = flare.zeros(97, 31)
    end)
    refused("does not have the weights of LlamaForCausalLM:\n  missing:\n    model.norm.weight\n"
      .. "  unknown:\n    model.norm.weihgt %(did it become 'model.norm.weight'%?%)\n"
      .. "  of another shape or type:\n    model.embed_tokens.weight is %(97, 31%), config.json "
      .. "needs %(97, 32%)", path)
  end)

  it("ignores unknown tensors with strict = false, but never missing ones", function()
    folder(function(w) w.extra = flare.ones(2) end)
    refused("unknown:\n    extra$", path)
    assert.truthy(models.load(path, {strict = false}))
    support.remove(path)
    folder(function(w) w["lm_head.weight"] = nil end)
    refused("missing:\n    lm_head.weight$", path, {strict = false})
  end)

  it("reads the body of a model from files with and without its prefix", function()
    local ids = support.ids(97)
    local whole = support.load "llama"
    folder(function(w)
      w["lm_head.weight"] = nil
      for name, tensor in pairs(support.weights(support.about "llama")) do
        w[name] = nil
        if name ~= "lm_head.weight" then w[name:gsub("^model%.", "")] = tensor end
      end
    end, {architectures = {"LlamaModel"}})
    local body = assert(models.load(path))
    assert.truthy(body(ids):eq(whole.model(ids)):all():item())
  end)

  it("reads experts one by one and in one tensor", function()
    for _, name in ipairs{"mixtral", "qwen2_moe", "qwen3_moe"} do
      local about = support.about(name)
      local single = support.load(name)
      local fused, parts = {}, {}
      for key, tensor in pairs(support.weights(about)) do
        local layer, e, which = key:match "^(.*)%.experts%.(%d+)%.(%w+)"
        local router = key:match "^(.*)%.block_sparse_moe%.gate%.weight$"
        if layer then
          layer = layer:gsub("block_sparse_moe", "mlp")
          parts[layer] = parts[layer] or {w1 = {}, w2 = {}, w3 = {}}
          which = ({gate_proj = "w1", down_proj = "w2", up_proj = "w3", gate = "w1", down = "w2",
                    up = "w3"})[which] or which
          parts[layer][which][e + 1] = tensor
        elseif router then
          fused[router .. ".mlp.gate.weight"] = tensor
        else
          fused[key] = tensor
        end
      end
      for layer, list in pairs(parts) do
        fused[layer .. ".experts.gate_up_proj"] =
          flare.cat({flare.stack(list.w1), flare.stack(list.w3)}, 2)
        fused[layer .. ".experts.down_proj"] = flare.stack(list.w2)
      end
      path = support.folder(about, true)
      assert(safetensors.save(path .. "/model.safetensors", fused))
      local ids = support.ids(97)
      assert.truthy(assert(models.load(path))(ids):eq(single(ids)):all():item(), name)
      assert.truthy(models.load(path, {dtype = "bf16"}):dtype() == "bf16")
      fused[next(parts) .. ".experts.gate_up_proj"] = flare.zeros(4, 3, 32)
      assert(safetensors.save(path .. "/model.safetensors", fused))
      refused("gate_up_proj is %(4, 3, 32%), config.json needs %(4, %d+, 32%)", path)
      support.remove(path)
    end
  end)

  it("gives a model with the stored dtype, or the one that is asked for", function()
    folder(function(w) for name, t in pairs(w) do w[name] = t:to "bf16" end end)
    assert.equal("bf16", models.load(path):dtype())
    local wide = assert(models.load(path, {dtype = "f64"}))
    for _, p in ipairs(wide:parameters()) do assert.equal("f64", p.dtype) end
    local narrow = models.load(path)
    local a, b = wide:state_dict(), narrow:state_dict()
    for name, t in pairs(a) do assert.truthy(t:eq(b[name]:to "f64"):all():item(), name) end
    assert.equal("sim:0", models.load(path, {device = "sim:0"}):parameters()[1].device)
  end)

  it("gives trainable parameters in evaluation mode, and tied ones as one", function()
    local model = support.load "llama_tied"
    assert.is_false(model.training)
    assert.equal(model.lm_head.weight.id, model.model.embed_tokens.weight.id)
    for _, p in ipairs(model:parameters()) do assert.truthy(p.requires_grad) end
    local optimizer = flare.optim.SGD(model:parameters(), {lr = 0.1})
    local ids = support.ids(97)
    local first = model:loss(ids)
    first:backward()
    optimizer:step()
    assert.truthy(model:loss(ids):item() < first:item())
  end)

  it("holds the weights in memory once", function()
    local c = {vocab_size = 8000, hidden_size = 512, intermediate_size = 1024,
               num_hidden_layers = 4, num_attention_heads = 8}
    path = os.tmpname()
    os.remove(path)
    assert(models.LlamaForCausalLM(c):save(path, {shard = "8MB"}))
    local bytes = 0
    for _, e in ipairs(core.file.list(path)) do
      bytes = bytes + core.file.stat(path .. "/" .. e).size
    end
    collectgarbage()
    flare.memory.flush()
    local before = peak()
    local mapped = assert(models.load(path))
    assert.equal("f32", mapped:dtype())
    assert.truthy(peak() - before < bytes / 4, "mapped files were copied")
    local wide = assert(models.load(path, {dtype = "f64"})) -- twice the bytes
    assert.equal("f64", wide:dtype())
    assert.truthy(peak() - before < 2 * bytes + (48 << 20), "a second copy was held")
  end)

  it("reads many files by their index, and refuses an index that is wrong", function()
    local model = support.load "llama"
    path = os.tmpname()
    os.remove(path)
    assert(model:save(path, {shard = "20kB"}))
    assert.truthy(#core.file.list(path) > 4)
    local again = assert(models.load(path)):state_dict()
    for name, t in pairs(model:state_dict()) do
      assert.truthy(again[name]:eq(t):all():item(), name)
    end
    local index = path .. "/model.safetensors.index.json"
    local text = assert(core.file.read(index))
    local function with(change)
      local json = core.json.decode(text)
      change(json.weight_map)
      core.file.write_atomic(index, core.json.encode(json))
    end
    with(function(map) map["model.norm.weight"] = "../model.safetensors" end)
    refused("the file of \"model.norm.weight\" is not a name in the folder", path)
    with(function(map) map["model.norm.weight"] = "model-00009-of-00010.safetensors" end)
    refused("model%-00009%-of%-00010.safetensors", path)
    with(function(map) map.more = map["model.norm.weight"] end)
    refused("\"more\" should be in model%-.* and is not", path)
    core.file.write_atomic(index, "[1]")
    refused("not a JSON object", path)
    core.file.write_atomic(index, "{}")
    refused("it has no weight_map", path)
  end)

  it("says what a folder lacks", function()
    refused("config.json: No such file", "/no/such/folder")
    path = support.folder(support.about "llama", true)
    refused("there is no model.safetensors; it has config.json$", path)
    core.file.write_atomic(path .. "/config.json", "{\"architectures\": [\"LlamaForCausalML\"]}")
    refused("the architecture LlamaForCausalML is not known %(did you mean 'LlamaForCausalLM'%?%)",
            path)
    core.file.write_atomic(path .. "/config.json", "{\"model_type\": \"llama\"}")
    refused("it has no architectures", path)
    core.file.write_atomic(path .. "/config.json", "{")
    refused("config.json: ", path)
  end)

  it("refuses configurations that make no model, quickly and without memory", function()
    for pattern, fields in pairs{
      ["num_hidden_layers is 1000000000, the files have 21 tensors"] =
        {num_hidden_layers = 1000000000},
      ["makes no model: nn.Embedding: width must be an integer of at least 1"] =
        {hidden_size = -32},
      ["unknown rope_type 'spiral'"] = {rope_parameters = {rope_type = "spiral"}},
      ["the activation 'x' is none of"] = {hidden_act = "x"},
      ["makes no model"] = {num_attention_heads = "four"},
      ["of another shape or type"] = {vocab_size = 2 ^ 40 // 1 | 0},
    } do
      folder(nil, fields)
      refused(pattern, path)
      support.remove(path)
    end
    local values = {-1, 3.7, "x", {1, 2}}
    for _, name in ipairs{"clip", "convnext"} do
      local about = support.about(name)
      for key, was in pairs(about.config) do
        for _, value in ipairs(values) do
          about.config[key] = value
          path = support.folder(about, true)
          assert(safetensors.save(path .. "/model.safetensors", {x = flare.ones(1)}))
          local model, message = models.load(path)
          assert.is_nil(model)
          assert.equal("string", type(message))
          support.remove(path)
        end
        about.config[key] = was
      end
    end
    path = nil
  end)

  it("keeps generation_config.json, and fields of the configuration that it does not know",
    function()
      folder(nil, {future_field = {1, 2}})
      local text = "{\"eos_token_id\": [5, 6], \"do_sample\": false}"
      assert(core.file.write_atomic(path .. "/generation_config.json", text))
      local model = assert(models.load(path))
      local copy = os.tmpname()
      os.remove(copy)
      assert(model:save(copy))
      local config = core.json.decode(core.file.read(copy .. "/config.json"))
      local generation = core.json.decode(core.file.read(copy .. "/generation_config.json"))
      support.remove(copy)
      assert.same({1, 2}, config.future_field)
      assert.same({5, 6}, generation.eos_token_id)
    end)

  it("raises for wrong arguments at the caller's line", function()
    assert.error_matches(function() models.load(3) end, "the folder is a string, got number")
    assert.error_matches(function() models.load("x", {dtyp = "f32"}) end, "did you mean 'dtype'")
  end)
end)

describe("A class of models", function()
  it("is made of a configuration, whose unknown names are errors", function()
    local model = models.Qwen3ForCausalLM{hidden_size = 32, num_hidden_layers = 1, vocab_size = 50,
      num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 16, head_dim = 8}
    assert.equal(8, model.model.layers[1].self_attn.q_norm.weight:size(1))
    assert.error_matches(function() models.LlamaForCausalLM{hiden_size = 32} end,
                         "unknown option 'hiden_size' %(did you mean 'hidden_size'%?%)")
  end)

  it("writes what it was given, null for false, and no fields that were left out", function()
    local model = models.MistralForCausalLM{hidden_size = 32, num_hidden_layers = 1,
      vocab_size = 50, num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 16,
      sliding_window = false}
    for _, each in ipairs{model, model.model, model:clone()} do
      path = os.tmpname()
      os.remove(path)
      assert(each:save(path))
      local config = core.json.decode(core.file.read(path .. "/config.json"))
      support.remove(path)
      assert.equal(core.json.null, config.sliding_window)
      assert.same({32, false, getmetatable(each).__name},
                  {config.hidden_size, config.tie_word_embeddings, config.architectures[1]})
      for _, name in ipairs{"head_dim", "rope_scaling", "pad_token_id", "id2label"} do
        assert.is_nil(config[name])
      end
    end
    path = nil
  end)

  it("refuses kinds of rotary positions and activations that it does not have", function()
    local small = {hidden_size = 32, num_hidden_layers = 1, vocab_size = 50,
                   num_attention_heads = 4, intermediate_size = 16}
    local function with(more)
      for key, value in pairs(small) do more[key] = value end
      return function() models.LlamaForCausalLM(more) end
    end
    assert.error_matches(with{rope_scaling = {type = "yran", factor = 2}},
                         "unknown rope_type 'yran' %(did you mean 'yarn'%?%)")
    assert.error_matches(with{rope_scaling = {rope_type = "linear"}}, "needs factor")
    assert.error_matches(with{hidden_act = "sillu"}, "did you mean 'silu'")
  end)

  it("reads the older rope_theta and rope_scaling as rope_parameters", function()
    local c = {head_dim = 16, max_position_embeddings = 64}
    local function angles(more)
      for key, value in pairs(c) do more[key] = value end
      return (models.Rope(more):angles(flare.arange(0, 64):unsqueeze(1), 64))
    end
    local old = angles{rope_theta = 5e5, rope_scaling = {type = "linear", factor = 4}}
    local new = angles{rope_parameters = {rope_theta = 5e5, rope_type = "linear", factor = 4}}
    assert.truthy(old:eq(new):all():item())
    assert.falsy(old:eq(angles{rope_theta = 1e4}):all():item())
  end)
end)
