-- flare.fits: predictions from small batches against steps of large ones under a limit of memory.
local flare = require "flare"
local nn, core = flare.nn, flare.core

local Block = flare.class("Block", nn.Module)
function Block:init()
  self.a, self.b = nn.Conv2d(16, 16, 3, {padding = 1}), nn.Conv2d(16, 16, 3, {padding = 1})
  self.norm = nn.BatchNorm2d(16)
end
function Block:forward(x) return (x + self.b(self.norm(self.a(x)):relu())):relu() end

local Language = flare.class("Language", nn.Module)
function Language:init()
  self.embedding, self.blocks = nn.Embedding(500, 64), nn.ModuleList {}
  for _ = 1, 2 do
    self.blocks:append(nn.TransformerEncoderLayer(64, 4, {hidden = 256, causal = true,
                                                          dropout = 0}))
  end
  self.head = nn.Linear(64, 500)
end
function Language:forward(ids)
  local x = self.embedding(ids)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(x)
end

local function square(y) return (type(y) == "table" and y[1] or y):square():mean() end

local models = {
  {"a perceptron", function()
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
  end, {64}, 4096},
  {"a convolutional network", function()
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
      nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 5 * 5, 10))
  end, {3, 16, 16}, 512},
  {"a residual network", function()
    return nn.Sequential(nn.Conv2d(3, 16, 3), Block(), Block(), nn.Flatten(),
      nn.Linear(16 * 14 * 14, 10))
  end, {3, 16, 16}, 256},
  {"an encoder layer", function() return nn.TransformerEncoderLayer(64, 4, {hidden = 256}) end,
   {24, 64}, 256},
  {"an LSTM", function() return nn.LSTM(32, 48, {layers = 2}) end, {20, 32}, 512},
  {"a language model", Language, function(batch)
    return core.ones(batch, 32, {dtype = "i64"})
  end, 128, function(y, ids)
    return core.cross_entropy(y:reshape {-1, 500}, ids:reshape {-1})
  end},
}

local function clean(model)
  for _, p in ipairs(model:parameters()) do p.grad = nil end
  collectgarbage()
  collectgarbage()
  core.memory.flush()
end

-- Whether a step with that batch runs within `bytes`, all of the model included.
local function runs(model, f, input, batch, loss, bytes)
  local optimizer = flare.optim.AdamW(model, {lr = 0})
  local function step(n)
    local x = type(input) == "function" and input(n) or core.zeros(n, table.unpack(input))
    loss(model(x), x):backward()
    optimizer:step()
  end
  step(2)
  clean(model)
  local others = core.memory.stats().live - f.parameters - f.buffers - f.states
  flare.memory.limit(others + bytes)
  local ok, message = pcall(step, batch)
  flare.memory.limit(0)
  clean(model)
  return ok, message
end

describe("flare.fits", function()
  for _, c in ipairs(models) do
    it("says what a step of " .. c[1] .. " needs", function()
      finally(function() flare.memory.limit(0) end)
      local model, input, batch, loss = c[2](), c[3], c[4], c[5] or square
      local f = flare.fits(model, {input = input, batch = batch, loss = loss})
      assert.truthy(f.alike)
      -- the reserve is what blocks that fit nothing need at most
      assert(runs(model, f, input, batch, loss, f.need))
      local ok, message = runs(model, f, input, batch, loss, math.floor(0.95 * f.peak))
      assert.is_false(ok)
      assert.match("out of memory on cpu", message)
      assert.truthy(f.need < 1.2 * f.peak + (21 << 20))
    end)
  end

  it("counts parameters, gradients and states, by the optimizer", function()
    local model = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.Linear(20, 5))
    local n = 10 * 20 + 20 + 20 + 20 + 20 * 5 + 5
    local f = flare.fits(model, {input = {10}})
    assert.same({4 * n, 4 * n, 8 * n}, {f.parameters, f.gradients, f.states})
    assert.equal(4 * 40, f.buffers) -- mean and variance
    f = flare.fits(model, {input = {10}, optimizer = function(p)
      return flare.optim.SGD(p, {lr = 1})
    end})
    assert.equal(0, f.states)
    f = flare.fits(model, {input = {10}, optimizer = false})
    assert.equal(0, f.states)
    for _, p in ipairs(model[1]:parameters()) do p.requires_grad = false end
    f = flare.fits(model, {input = {10}})
    assert.equal(4 * (n - 220), f.gradients)
    f = flare.fits(model, {input = {10}, train = false, batch = 100})
    assert.equal(0, f.gradients + f.states)
    assert.truthy(f.peak >= f.parameters + 4 * 100 * 20)
  end)

  it("leaves the model and the generator as they were", function()
    local model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    flare.manual_seed(7)
    local before = {}
    for name, t in pairs(model:state_dict()) do before[name] = t:clone() end
    local seed, offset = flare.default_generator():state()
    flare.fits(model, {input = {8}})
    for name, t in pairs(model:state_dict()) do assert.truthy(flare.equal(before[name], t)) end
    assert.same({seed, offset}, {flare.default_generator():state()})
    for _, p in ipairs(model:parameters()) do assert.is_nil(p.grad) end
  end)

  it("takes models on other devices, with another default device", function()
    local model = nn.Sequential(nn.Linear(30, 40), nn.Dropout(0.1), nn.Linear(40, 5))
    local expected = flare.fits(model, {input = {30}, batch = 77})
    model:to "sim:0"
    local f = flare.device("sim:0", function()
      return flare.fits(model, {input = {30}, batch = 77})
    end)
    assert.equal(expected.peak, f.peak)
    for _, p in ipairs(model:parameters()) do assert.equal("sim:0", p.device) end
  end)

  it("answers for a device, with the largest batch", function()
    local model = nn.Linear(1000, 1000)
    local f = flare.fits(model, {input = {1000}, batch = 1000, device = "100 MiB"})
    assert.is_true(f.fits)
    local room = (100 - 20) * 2 ^ 20 / 1.15
    assert.truthy(f:at(f.most) <= room and f:at(f.most + 1) > room)
    assert.match("^Linear, batch 1000: .* in tensors, .*\nthe device has 100 MiB: it fits\n"
      .. "  parameters +3.82 MiB\n.*\nthe largest batch that fits: " .. f.most .. "$", tostring(f))
    f = flare.fits(model, {input = {1000}, batch = 2 * f.most, device = 100 << 20})
    assert.is_false(f.fits)
    assert.match("it does not fit, by ", tostring(f))
    assert.equal("NVIDIA GeForce RTX 4090", flare.fits(model, {input = {1000},
      device = "rtx4090"}).device)
  end)

  it("counts what a model without values has, whatever its size", function()
    local model = flare.meta(function() return nn.Linear(80000, 80000) end)
    local f = flare.fits(model, {input = {80000}, device = "h100"})
    local n = 80000 * 80000 + 80000
    assert.same({4 * n, 4 * n, 8 * n}, {f.parameters, f.gradients, f.states})
    assert.is_false(f.fits)
    assert.is_nil(f.peak)
    assert.match("^Linear: at least 95.4 GiB\nNVIDIA H100 SXM has 74.5 GiB: it does not fit, by "
      .. "20.9 GiB\n.*activations are not counted: the model has no values", tostring(f))
    f = flare.fits(model, {input = {80000}, device = "b200"})
    assert.is_nil(f.fits)
  end)

  it("says what is missing", function()
    local model = nn.Linear(2, 2)
    for message, f in pairs {
      ["fits: a module is expected, got a tensor"] = function() flare.fits(flare.ones(2)) end,
      ["fits: input is missing"] = function() flare.fits(model, {}) end,
      ["fits: unknown option 'inputs' %(did you mean 'input'%?%)"] = function()
        flare.fits(model, {inputs = {2}})
      end,
      ["fits: probes must rise, got 4 and 2"] = function()
        flare.fits(model, {input = {2}, probes = {4, 2}})
      end,
      ["there is no machine 'h10'"] = function()
        flare.fits(model, {input = {2}, device = "h10"})
      end,
    } do
      assert.error_matches(f, message)
    end
  end)
end)

-- The peak of the allocator in a step of models of the zoo, when garbage is collected as often as
-- `fits` does: what remains of the difference is garbage that Lua has not collected yet.
describe("flare.fits of the zoo's models", function()
  local zoo = flare.models
  local function tokens(batch) return core.ones(batch, 32, {dtype = "i64"}) end
  local function predicting(out, ids)
    return core.cross_entropy((type(out) == "table" and out.logits or out):reshape {-1, 500},
      ids:reshape {-1})
  end
  local cases = {
    {"GPT-2", function()
      return zoo.GPT2LMHeadModel {vocab_size = 500, n_positions = 32, n_embd = 64, n_layer = 2,
        n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
    end, tokens, predicting},
    {"Llama", function()
      return zoo.LlamaForCausalLM {vocab_size = 500, hidden_size = 64, intermediate_size = 176,
        num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2}
    end, tokens, predicting},
    {"ViT", function()
      return zoo.ViTForImageClassification {hidden_size = 64, intermediate_size = 256,
        num_hidden_layers = 2, num_attention_heads = 4, image_size = 32, patch_size = 8}
    end, function(batch) return core.zeros(batch, 3, 32, 32) end, square},
  }

  -- The most live bytes of a step on a device, above what was there without the model.
  local function peak_of(make, input, loss, batch, device)
    collectgarbage()
    collectgarbage()
    local before = core.memory.stats(device).live
    local model = make():to(device)
    local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
    local x = input(batch):to(device)
    local function step()
      local value = loss(model(x), x)
      collectgarbage()
      value:backward()
      optimizer:step()
      optimizer:zero_grad()
    end
    step()
    collectgarbage()
    collectgarbage()
    core.memory.reset_peak(device)
    require("flare.nn.module").watch(function(module, run, ...)
      local results = table.pack(run(module, ...))
      collectgarbage()
      return table.unpack(results, 1, results.n)
    end)
    step()
    require("flare.nn.module").watch(nil)
    return core.memory.stats(device).peak - before
  end

  for _, c in ipairs(cases) do
    it("agrees with the allocator for " .. c[1], function()
      finally(function() require("flare.nn.module").watch(nil) end)
      local f = flare.fits(c[2](), {input = c[3], loss = c[4]})
      for device, batches in pairs {cpu = {8, 24, 64}, sim = {24}} do
        for _, batch in ipairs(batches) do
          assert.near(1, f:at(batch) / peak_of(c[2], c[3], c[4], batch, device), 0.03)
        end
      end
    end)
  end
end)
