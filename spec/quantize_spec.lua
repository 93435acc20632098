-- Quantisation of models: the methods beside their definitions in numpy, layers, reports.
local flare = require "flare"
local nn = flare.nn
local expected = require "spec.support.quantize_data"
local fails = require "spec.support.expect".refused
local QuantizedLinear = nn.QuantizedLinear

-- The generator of quantize_data.py.
local function numbers(count, seed)
  local list, x = {}, seed
  for k = 1, count do
    x = (1103515245 * x + 12345) % (1 << 31)
    list[k] = x / (1 << 30) - 1
  end
  return list
end

local ROWS, COLUMNS, INPUTS = 12, 64, 80

local function weight() return flare.tensor(numbers(ROWS * COLUMNS, 3)):view(ROWS, COLUMNS) end

local function inputs()
  local x = flare.tensor(numbers(INPUTS * COLUMNS, 7), {dtype = "f64"}):view(INPUTS, COLUMNS)
  local c = flare.arange(COLUMNS)
  local by = c:remainder(16):eq(3):to "f64" * 3 + c:remainder(5):eq(1):to "f64" + 0.2
  return ((x + x:roll(1, 2) * 0.9 + x:roll(5, 2) * 0.5) * by):to "f32"
end

local function model_of(w)
  local model = nn.Sequential(nn.Linear(COLUMNS, ROWS, {bias = false}))
  model:load_state_dict{["1.weight"] = w}
  return model
end

-- The integers of a layer, as digits.
local function digits(layer)
  local w, rows = layer.weight, {}
  local list = w:tolist()
  for r, row in ipairs(list) do
    local text = {}
    for k, byte in ipairs(row) do text[k] = ("%x%x"):format(byte & 15, byte >> 4) end
    rows[r] = table.concat(text)
  end
  return rows
end

local function differing(rows, want)
  local n = 0
  for r, row in ipairs(rows) do
    for k = 1, #row do if row:sub(k, k) ~= want[r]:sub(k, k) then n = n + 1 end end
  end
  return n
end

describe("quantize", function()
  local errors = {}
  for _, case in ipairs{{"rtn"}, {"gptq"}, {"gptq", true}, {"awq"}} do
    for _, symmetric in ipairs{false, true} do
      local name = case[1] .. (case[2] and "_order" or "") .. (symmetric and "_symmetric" or "")
      it("gives the integers of numpy: " .. name, function()
        local model, report = model_of(weight()):quantize{
          bits = 4, group = 32, method = case[1], data = {inputs()}, symmetric = symmetric,
          scales = "f32", act_order = case[2] or false}
        local layer, want = model[1], expected[name]
        -- sums in f32 round a few to the neighbour
        assert(differing(digits(layer), want) <= 8, differing(digits(layer), want))
        -- without zeros the largest number of a group is halfway between two integers
        assert(math.abs(report[1].output_error / want.error - 1) < (symmetric and 1e-2 or 2e-3),
               report[1].output_error .. " for " .. want.error)
        -- the report's error is that of the outputs
        local y = inputs():matmul(weight():t())
        local off = (model(inputs()) - y):norm():item() / y:norm():item()
        assert(math.abs(off / report[1].output_error - 1) < 1e-3, off)
        errors[name] = off
      end)
    end
  end

  it("has errors in the expected order", function()
    for _, ending in ipairs{"", "_symmetric"} do
      assert(errors["gptq" .. ending] < errors["rtn" .. ending])
      assert(errors["awq" .. ending] <= errors["rtn" .. ending])
    end
  end)

  it("reports the relative error and the ratio of signal to noise", function()
    local model, report = model_of(weight()):quantize{bits = 8}
    local off = (model[1]:dequantize() - weight()):norm():item() / weight():norm():item()
    assert(math.abs(report[1].error / off - 1) < 1e-4)
    assert(math.abs(report[1].snr + 20 * math.log(off, 10)) < 1e-2)
    assert.equal("1", report[1].name)
    assert.truthy(tostring(report):find("1 +8 +64"))
    assert.is_nil(report[1].output_error)
  end)

  it("halves the error with a bit, about, and with finer groups makes it smaller", function()
    local function error_of(o) return select(2, model_of(weight()):quantize(o))[1].error end
    local by4 = error_of{bits = 4, group = 64}
    local by8 = error_of{bits = 8, group = 64, symmetric = false}
    assert(by4 / by8 > 12 and by4 / by8 < 22, by4 / by8)
    assert(error_of{group = 32} < by4)
  end)

  it("replaces shared layers once, and keeps what is skipped or does not fit", function()
    local shared = nn.Linear(64, 64)
    local model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(64, 3), nn.Linear(3, 5))
    local _, report = model:quantize{skip = {"^4$"}}
    assert.equal(1, #report)
    assert.equal(model[1], model[3])
    assert.equal(QuantizedLinear, getmetatable(model[1]))
    assert.equal(nn.Linear, getmetatable(model[4]))
    assert.same({["4"] = "skipped", ["5"] = "3 columns are not groups of 64"}, report.kept)
    assert.same({5, 5}, {table.unpack(model(flare.rand(5, 64)).shape)})
  end)

  it("keeps bias, activation and training, and applies them", function()
    flare.manual_seed(5)
    for _, act in ipairs{"none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"} do
      local plain = nn.Linear(64, 8, {act = act})
      local layer = QuantizedLinear.from(plain, {group = 32})
      local x = flare.rand(3, 64)
      local want = flare.linear(x, layer:dequantize(), plain.bias, act)
      assert((layer(x) - want):abs():amax():item() < 1e-5, act)
    end
  end)

  it("gives gradients to the inputs and the bias alone", function()
    local layer = QuantizedLinear.from(nn.Linear(64, 8))
    local x = flare.rand(3, 64):requires_grad_(true)
    layer(x):sum():backward()
    local want = layer:dequantize():sum{dims = {1}}
    assert((x.grad - want):abs():amax():item() < 1e-5)
    assert.equal(1, #layer:parameters())
    assert.same({3, 3, 3, 3, 3, 3, 3, 3}, layer.bias.grad:tolist())
  end)

  it("is saved and loaded by state_dict", function()
    local a, b = QuantizedLinear(64, 8, {group = 32}), QuantizedLinear(64, 8, {group = 32})
    b:load_state_dict(a:state_dict())
    local x = flare.rand(2, 64)
    assert.is_true(a(x):eq(b(x)):all():item())
  end)

  it("refuses what it cannot do", function()
    local model = model_of(weight())
    fails("bits must be 4 or 8", model.quantize, model, {bits = 3})
    fails("there is no method 'gtpq' (did you mean 'gptq'?)", model.quantize, model,
          {method = "gtpq"})
    fails("the method 'awq' needs data", model.quantize, model, {method = "awq"})
    fails("no nn.Linear inside", nn.ReLU().quantize, nn.ReLU())
    fails("60 columns are not groups of 64", QuantizedLinear, 60, 4)
    local other = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    other.forward = function(self, x) return self[1](x) end
    fails("the data do not reach layer 2", other.quantize, other,
          {method = "gptq", data = {flare.rand(4, 64)}})
  end)
end)
