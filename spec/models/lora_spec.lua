-- Adapters: what they compute, merging, PEFT's files.
local flare = require "flare"
local core, models, nn = flare.core, flare.models, flare.nn
local fails = require "spec.support.expect".refused
local safetensors = flare.io.safetensors

local function llama()
  flare.manual_seed(3)
  return models.LlamaForCausalLM {
    vocab_size = 40, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2,
    num_attention_heads = 4, num_key_value_heads = 2}:eval()
end

local ids = flare.tensor({{1, 5, 9, 30, 2}}, {dtype = "i64"})

-- Gives the adapters values other than zeros.
local function fill(adapter)
  core.no_grad(function()
    for _, p in ipairs(adapter:parameters()) do p:add_(flare.randn(p.shape) * 0.05) end
  end)
end

local function off(a, b) return (a - b):abs():amax():item() end

local path
before_each(function()
  path = os.tmpname()
  os.remove(path)
end)
after_each(function()
  for _, file in ipairs(core.file.exists(path) and core.file.list(path) or {}) do
    os.remove(path .. "/" .. file)
  end
  os.remove(path)
end)

describe("models.lora", function()
  for _, how in ipairs{"LoRA", "DoRA"} do
    local dora = how == "DoRA"

    it("changes nothing at first, and trains the adapters alone: " .. how, function()
      local model = llama()
      local before = model(ids)
      local adapter = models.lora(model, {rank = 4, dora = dora})
      assert(off(model(ids), before) < 2e-5)
      assert.equal(dora and 12 or 8, #adapter:parameters())
      assert.equal(4 * ((32 + 32) + (32 + 16)) * 2 + (dora and (32 + 16) * 2 or 0), adapter:count())
      model:loss(ids):backward()
      for name, p in model:named_parameters() do
        assert.equal(name:find "lora_" ~= nil, p.requires_grad, name)
        assert.equal(name:find "lora_" ~= nil, p.grad ~= nil, name)
      end
    end)

    it("computes what its definition says: " .. how, function()
      flare.manual_seed(1)
      local model = nn.Sequential(nn.Linear(6, 5, {act = "silu"})):double()
      local adapter = models.lora(model, {rank = 2, alpha = 6, targets = {"1"}, dora = dora})
      fill(adapter)
      local layer, x = model[1], flare.randn(3, 6, {dtype = "f64"})
      local w = layer.base_layer.weight + layer.lora_B:matmul(layer.lora_A) * 3
      if dora then
        w = w * (layer.lora_magnitude_vector / (w * w):sum{dims = {2}}:sqrt()):unsqueeze(2)
      end
      local want = flare.silu(x:matmul(w:t()) + layer.base_layer.bias)
      assert(off(model(x), want) < (dora and 1e-6 or 1e-12))
    end)

    it("merges and takes itself out again: " .. how, function()
      local model = llama()
      local before = model(ids)
      local adapter = models.lora(model, {rank = 4, dora = dora, targets = "proj$"})
      fill(adapter)
      local with = model(ids)
      assert(off(with, before) > 1e-3)
      adapter:merge()
      assert(off(model(ids), with) < 1e-4)
      assert.is_true(model:save(path)) -- a plain model again
      assert(off(assert(models.load(path))(ids), model(ids)) == 0)
      adapter:unmerge()
      assert.equal(0, off(model(ids), with))
      adapter:remove()
      assert.equal(0, off(model(ids), before))
    end)

    it("is saved under PEFT's names, and loaded: " .. how, function()
      local model = llama()
      local adapter = models.lora(model, {rank = 4, alpha = 8, dora = dora})
      fill(adapter)
      local with = model(ids)
      assert.is_true(adapter:save(path))
      local tensors = assert(safetensors.load(path .. "/adapter_model.safetensors"))
      local at = "base_model.model.model.layers.0.self_attn.v_proj."
      assert.same({4, 32}, {table.unpack(tensors[at .. "lora_A.weight"].shape)})
      assert.same({16, 4}, {table.unpack(tensors[at .. "lora_B.weight"].shape)})
      assert.equal(dora, tensors[at .. "lora_magnitude_vector"] ~= nil)
      local config = core.json.decode(core.file.read(path .. "/adapter_config.json"))
      assert.same({"LORA", 4, 8, {"q_proj", "v_proj"}, dora},
        {config.peft_type, config.r, config.lora_alpha, config.target_modules, config.use_dora})
      local other = llama()
      assert(models.lora.load(other, path))
      assert.equal(0, off(other(ids), with))
    end)
  end

  it("tunes beside quantised weights, and merges into floats", function()
    local model = llama()
    model:quantize{bits = 4, group = 16}
    local before = model(ids)
    local adapter = models.lora(model, {rank = 4, targets = "proj$"})
    assert(off(model(ids), before) < 2e-5)
    local optimizer = flare.optim.AdamW(adapter:parameters(), {lr = 5e-2})
    local first, loss
    for _ = 1, 40 do
      optimizer:zero_grad()
      loss = model:loss(ids)
      loss:backward()
      optimizer:step()
      first = first or loss:item()
    end
    assert(loss:item() < 0.92 * first, loss:item() / first)
    local with = model(ids)
    adapter:merge()
    assert(off(model(ids), with) < 1e-4)
    for _, module in ipairs(model:modules()) do
      assert(getmetatable(module) ~= nn.QuantizedLinear)
    end
  end)

  it("drops inputs of the adapters in training only", function()
    local model = llama()
    local adapter = models.lora(model, {dropout = 0.5})
    fill(adapter)
    assert.equal(0, off(model(ids), model(ids)))
    model:train()
    assert(off(model(ids), model(ids)) > 0)
  end)

  it("refuses what does not fit", function()
    local model = llama()
    fails("no fully connected layer is named q_prj (did you mean 'q_proj'?)", models.lora, model,
          {targets = {"q_prj"}})
    fails("dropout must be a number from 0 to below 1", models.lora, model, {dropout = 1})
    local adapter = models.lora(model)
    fails("the model has adapters", models.lora, model)
    adapter:merge()
    fails("merged already", adapter.merge, adapter)
    local lone, message = models.lora.load(llama(), path)
    assert.is_nil(lone)
    assert.matches("adapter_config.json", message)
    adapter:unmerge()
    assert.is_true(adapter:save(path))
    lone, message = models.lora.load(nn.Sequential(nn.Linear(3, 3)), path)
    assert.is_nil(lone)
    assert.matches("0 of its 4 layers are in the model", message)
  end)
end)
