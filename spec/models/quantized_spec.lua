-- Folders with quantised weights: GPTQ's and AWQ's layouts, made here number by number.
local flare = require "flare"
local core, models = flare.core, flare.models
local safetensors = flare.io.safetensors

local ids = flare.tensor({{1, 5, 9, 30, 2}}, {dtype = "i64"})

local function llama()
  flare.manual_seed(3)
  return models.LlamaForCausalLM {
    vocab_size = 40, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 1,
    num_attention_heads = 4, num_key_value_heads = 2}:eval()
end

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

-- A word of `bits` bits each of f(0), f(1), ..., lowest first, as a signed number of 32 bits.
local function word(bits, f)
  local w = 0
  for k = 0, 32 // bits - 1 do w = w | f(k) << (bits * k) end
  return w >= 1 << 31 and w - (1 << 32) or w
end

-- rows x cols of f(row, col), which count from 0.
local function matrix(rows, cols, f, dtype)
  local list = {}
  for r = 0, rows - 1 do
    for c = 0, cols - 1 do list[#list + 1] = f(r, c) end
  end
  return flare.tensor(list, {dtype = dtype}):view(rows, cols)
end

local AWQ = {[0] = 0, 2, 4, 6, 1, 3, 5, 7}

-- Tensors of a layer by a layout, and the weight that they mean. `group_of(input)` may be in any
-- order.
local function layer(how, outputs, inputs, group, seed)
  local bits, groups = how.bits, inputs // group
  local most = (1 << bits) - 1
  local function q(o, i) return (o * 7 + i * 13 + seed * 5 + o * i) & most end
  local function z(o, g) return (o * 3 + g * 11 + seed) & most end
  local function s(o, g) return (1 + (o + 2 * g + seed) % 7) / 64 / (bits == 8 and 16 or 1) end
  local function group_of(i) return how.shuffled and (i * 5 + 3) % inputs // group or i // group end
  local less = how.format == "gptq" and 1 or 0
  local per, out = 32 // bits, {}
  if how.awq then
    out.qweight = matrix(inputs, outputs // per, function(i, c)
      return word(bits, function(k) return q(c * per + AWQ[k], i) end)
    end, "i32")
    out.qzeros = matrix(groups, outputs // per, function(g, c)
      return word(bits, function(k) return z(c * per + AWQ[k], g) end)
    end, "i32")
  else
    out.qweight = matrix(inputs // per, outputs, function(r, o)
      return word(bits, function(k) return q(o, r * per + k) end)
    end, "i32")
    out.qzeros = matrix(groups, outputs // per, function(g, c)
      return word(bits, function(k) return (z(c * per + k, g) - less) & most end)
    end, "i32")
    out.g_idx = matrix(1, inputs, function(_, i) return group_of(i) end, "i32"):view(-1)
  end
  out.scales = matrix(groups, outputs, function(g, o) return s(o, g) end, "f16")
  return out, matrix(outputs, inputs, function(o, i)
    return (q(o, i) - z(o, group_of(i))) * s(o, group_of(i))
  end, "f32")
end

-- Writes a model with such layers; the same model with floats.
local function write(how)
  local model = llama()
  assert(model:save(path))
  local tensors = assert(safetensors.load(path .. "/model.safetensors"))
  local n = 0
  for name, module in model:named_modules() do
    if name:find "_proj$" then
      n = n + 1
      local there = name:gsub("layers%.1", "layers.0")
      local made, weight = layer(how, module.outputs, module.inputs, 16, n)
      tensors[there .. ".weight"] = nil
      for part, x in pairs(made) do tensors[there .. "." .. part] = x end
      core.no_grad(function() module.weight:copy_(weight) end)
    end
  end
  assert.equal(7, n)
  assert(safetensors.save(path .. "/model.safetensors", tensors, {format = "pt"}))
  local config = core.json.decode(core.file.read(path .. "/config.json"))
  config.quantization_config = {quant_method = how.awq and "awq" or "gptq", bits = how.bits,
    group_size = 16, desc_act = how.shuffled or false, checkpoint_format = how.format,
    version = how.awq and "gemm" or nil}
  assert(core.file.write_atomic(path .. "/config.json", core.json.encode(config)))
  return model
end

local function near(a, b, limit)
  local worst = (a - b):abs():amax():item() / b:abs():amax():item()
  assert(worst <= limit, worst)
end

describe("models.load of quantised weights", function()
  local cases = {
    ["GPTQ"] = {bits = 4, format = "gptq"}, ["GPTQ v2"] = {bits = 4, format = "gptq_v2"},
    ["GPTQ with shuffled groups"] = {bits = 4, format = "gptq", shuffled = true},
    ["GPTQ of 8 bits"] = {bits = 8, format = "gptq"}, ["AWQ"] = {bits = 4, awq = true},
  }
  for name, how in pairs(cases) do
    it("reads " .. name .. ", and writes what it reads again", function()
      local want = write(how)(ids)
      local model = assert(models.load(path))
      local q = model.model.layers[1].mlp.up_proj
      assert.equal(flare.nn.QuantizedLinear, getmetatable(q))
      assert.equal(how.bits == 4 and "u8" or "i8", q.weight.dtype)
      near(model(ids), want, 1e-5)
      assert.is_true(model:save(path))
      assert.equal(0, (assert(models.load(path))(ids) - model(ids)):abs():amax():item())
    end)
  end

  it("saves a model that it has quantised, as GPTQ", function()
    for _, o in ipairs{{bits = 4, group = 16}, {bits = 8, group = 32},
                       {bits = 4, group = 32, symmetric = true}} do
      local model = llama()
      model:quantize(o)
      assert.is_true(model:save(path))
      local tensors = assert(safetensors.load(path .. "/model.safetensors"))
      local at = "model.layers.0.mlp.down_proj."
      assert.same({64 * o.bits // 32, 32}, {table.unpack(tensors[at .. "qweight"].shape)})
      assert.is_nil(tensors[at .. "weight"])
      near(assert(models.load(path))(ids), model(ids), 1e-6)
    end
  end)

  it("refuses what it does not know, with the reason", function()
    local function refused(pattern, change)
      write{bits = 4, format = "gptq"}
      local config = core.json.decode(core.file.read(path .. "/config.json"))
      local tensors = assert(safetensors.load(path .. "/model.safetensors"))
      change(config.quantization_config, tensors)
      assert(safetensors.save(path .. "/model.safetensors", tensors, {format = "pt"}))
      assert(core.file.write_atomic(path .. "/config.json", core.json.encode(config)))
      local model, message = models.load(path)
      assert.is_nil(model)
      assert.matches(pattern, message)
    end
    local at = "model.layers.0.mlp.down_proj."
    refused("quantised by 'hqq' are not read", function(q) q.quant_method = "hqq" end)
    refused("gptq with 3 bits", function(q) q.bits = 3 end)
    refused("down_proj: it has qweight but no scales", function(_, t) t[at .. "scales"] = nil end)
    refused("down_proj: its tensors do not fit a layer of 64 inputs and 32 outputs",
            function(_, t) t[at .. "qweight"] = t[at .. "qweight"]:narrow(1, 1, 4):clone() end)
  end)

  it("does not save factors of inputs", function()
    local model = llama()
    model:quantize{method = "awq", group = 16, data = {ids}}
    local ok, message = model:save(path)
    assert.is_nil(ok)
    assert.matches("has factors of its inputs", message)
  end)
end)
