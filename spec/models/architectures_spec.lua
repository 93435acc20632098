-- Each architecture beside transformers, on the same weights: spec/support/models_data.py.
local flare = require "flare"
local support = require "spec.support.models"
local names_of = require "flare.models.names"

local LIMIT = 2e-5 -- of the largest number

-- Gradients by the names of transformers, which holds experts in one tensor.
local function gradients(model)
  local found, halves = require "flare.models.weights".gradients(model), {}
  for name, p in model:named_parameters() do
    local _, _, other, half = names_of.there(getmetatable(model), name)
    if half then
      halves[other] = halves[other] or {}
      halves[other][half] = p.grad
    elseif other then
      found[other] = p.grad
    end
  end
  for name, pair in pairs(halves) do found[name] = flare.cat(pair, 2) end
  return found
end

-- Compares the gradients of a loss. Those of tensors that transformers calls otherwise in memory
-- than in files, ViT's but no model's of experts, are left out.
local function check_gradients(name, model, loss, about)
  loss:backward()
  local found, kept, rows = gradients(model), {}, {}
  for k, grad in ipairs(about.grads) do
    if found[grad] then
      kept[#kept + 1], rows[#rows + 1] = grad, k
    else
      assert.match("^vit%.", grad)
    end
  end
  assert.truthy(#kept > 0)
  local want = support.expected(name, "grads"):index_select(1, flare.tensor(rows, {dtype = "i64"}))
  local squares, products = support.sums(found, kept)
  local norm = want:select(2, 1):max():sqrt():item() -- of the largest gradient
  assert.truthy((squares:sqrt() - want:select(2, 1):sqrt()):abs():max():item() <= LIMIT * norm)
  assert.truthy((products - want:select(2, 2)):abs():max():item() <= LIMIT * norm * 10)
end

local function check_loss(name, model, loss, about)
  assert.near(support.expected(name, "loss")[1]:item(), loss:item(), 1e-5)
  check_gradients(name, model, loss, about)
end

local checks = {}

function checks.causal(name, model, about)
  local ids = support.ids(model.config.vocab_size)
  local logits = model(ids)
  assert.truthy(support.off(logits:narrow(2, 39, 2), support.expected(name, "logits")) <= LIMIT)
  check_loss(name, model, model:loss(ids), about)
  local out = model:generate{ids = ids:narrow(2, 1, 10), max_tokens = 64, ignore_eos = true}
  for b, row in ipairs(support.expected(name, "greedy"):totable()) do
    assert.same(row, out[b].ids)
  end
end

local function close(name, what, got)
  assert.truthy(support.off(got, support.expected(name, what)) <= LIMIT, what)
end

local function pixels(size) return support.numbers("pixel_values", {2, 3, size, size}) * 4 end

-- Images to classes.
function checks.classes(name, model, about)
  local images = pixels(name:find "resnet" and 32 or model.config.image_size)
  close(name, "classes", model(images))
  local labels = flare.tensor({1, 3}, {dtype = "i64"})
  check_loss(name, model, model:loss(images, labels), about)
end

-- Tokens from both sides, one text shorter than the other.
function checks.fills(name, model, about)
  local ids, mask = support.ids(model.config.vocab_size), flare.ones(2, 40)
  mask:select(1, 2):narrow(1, 26, 15):zero_()
  local labels = flare.full({2, 40}, -100, {dtype = "i64"})
  labels:narrow(2, 4, 5):copy_(ids:narrow(2, 4, 5))
  local o = {mask = mask, segments = flare.arange(80):view(2, 40):floor_div(10):remainder(2)}
  close(name, "fills", model(ids, o):narrow(2, 24, 2))
  check_loss(name, model, model:loss(ids, labels, o), about)
end

-- Images and texts.
function checks.alike(name, model, about)
  local ids, images = support.ids(97):narrow(2, 1, 12):clone(), pixels(32)
  ids[{1, 10}], ids[{2, 12}] = 96, 96
  close(name, "images", model:images(images))
  close(name, "texts", model:texts(ids))
  close(name, "alike", model(images, ids))
  check_loss(name, model, model:loss(images, ids), about)
end

-- Spectra to texts.
function checks.tokens(name, model, about)
  local c = model.config
  local spectra = support.numbers("input_features",
                                  {2, c.num_mel_bins, 2 * c.max_source_positions}) * 4
  local labels = support.ids(c.vocab_size):narrow(2, 1, 12)
  local start = flare.full({2, 1}, c.decoder_start_token_id, {dtype = "i64"})
  local ids = flare.cat({start, labels:narrow(2, 1, 11)}, 2)
  close(name, "tokens", model(spectra, ids):narrow(2, 11, 2))
  check_loss(name, model, model:loss(spectra, labels), about)
  local out = model:generate{inputs = spectra, max_tokens = 30, ignore_eos = true}
  for b, row in ipairs(support.expected(name, "heard"):totable()) do
    assert.same(row, out[b].ids)
  end
end

-- Which check a model needs, by the results that it has.
local function kind_of(name)
  for _, kind in ipairs{"classes", "fills", "alike", "tokens"} do
    if support.expected(name, kind) then return kind end
  end
  return "causal"
end

describe("The architecture of", function()
  for _, name in ipairs(support.names()) do
    it(name .. " computes what transformers does", function()
      local model, about = support.load(name), support.about(name)
      checks[kind_of(name)](name, model, about)
    end)

    it(name .. " is saved under the names and shapes of transformers", function()
      local about = support.about(name)
      local model, path = support.load(name), os.tmpname()
      os.remove(path)
      assert(model:save(path))
      local reader <close> = assert(flare.io.safetensors.open(path .. "/model.safetensors"))
      local want, got = {}, {}
      for _, e in ipairs(about.tensors) do
        if not names_of.is_ignored(getmetatable(model), e[1]) then
          want[e[1]] = table.concat(e[2], " ")
        end
      end
      local weights = support.weights(about)
      for _, e in ipairs(reader:entries()) do
        got[e.name] = table.concat(e.shape, " ")
        local same = reader:tensor(e.name):eq(weights[e.name]):all():item()
        assert.truthy(same, e.name .. " has other values")
      end
      assert.same(want, got)
      assert.equal("pt", reader.metadata.format)
      local config = flare.core.json.decode(assert(flare.core.file.read(path .. "/config.json")))
      for key, value in pairs(about.config) do
        if key ~= "transformers_version" and key ~= "dtype" then
          assert.same(value, config[key], key)
        end
      end
      support.remove(path)
    end)
  end
end)
