-- model:generate: batches, options of sampling, ends, caches. Greedy continuations beside those of
-- transformers are in architectures_spec.lua.
local flare = require "flare"
local models = flare.models
local sample = require "flare.models.sample"
local support = require "spec.support.models"

local model = support.load "llama"
local texts = {{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, {20, 21, 22}, {30}}

local function generate(o)
  o.max_tokens = o.max_tokens or 12
  if o.ignore_eos == nil then o.ignore_eos = true end
  return model:generate(o)
end

-- The log-probabilities of the next token after ids, without a cache.
local function scores(ids)
  return model(flare.tensor({ids}, {dtype = "i64"}))[{1, -1}]:log_softmax(-1)
end

local function append(list, more)
  local out = table.move(list, 1, #list, 1, {})
  return table.move(more, 1, #more, #out + 1, out)
end

describe("model:generate", function()
  it("takes the likeliest token at each step, as the model without a cache says", function()
    local out, ids = generate{ids = texts[1], logprobs = 3}, append(texts[1], {})
    for k, id in ipairs(out.ids) do
      local s = scores(ids)
      assert.equal(s:argmax{base = 0}:item(), id)
      assert.near(s[id + 1]:item(), out.logprobs[k], 1e-5)
      assert.equal(id, out.top[k][1].id)
      assert.equal(3, #out.top[k])
      ids[#ids + 1] = id
    end
    assert.equal("length", out.reason)
  end)

  it("gives texts of different lengths what each gives alone", function()
    for _, name in ipairs{"llama", "mistral", "gpt2", "qwen3_moe"} do
      local each = support.load(name)
      for _, compile in ipairs{false, true} do
        local all = each:generate{ids = texts, max_tokens = 20, ignore_eos = true,
                                  compile = compile}
        for b, text in ipairs(texts) do
          assert.same(each:generate{ids = text, max_tokens = 20, ignore_eos = true}.ids,
                      all[b].ids)
        end
      end
    end
  end)

  it("computes the same on another device, compiled and not", function()
    local there = support.load("llama", {device = "sim:0"})
    local want = generate{ids = texts, max_tokens = 70}
    for _, compile in ipairs{false, true} do
      local got = there:generate{ids = texts, max_tokens = 70, ignore_eos = true,
                                 compile = compile}
      for b = 1, #texts do assert.same(want[b].ids, got[b].ids) end
    end
  end)

  it("does not compute again what a cache has", function()
    local cache = models.Cache(1, 100)
    local first = generate{ids = texts[1], cache = cache}
    local longer = append(append(texts[1], first.ids), {50, 51})
    local fed = 0
    local features = model.features
    rawset(model, "features", function(self, ids, c)
      fed = fed + ids:size(2)
      return features(self, ids, c)
    end)
    local second = generate{ids = longer, cache = cache}
    rawset(model, "features", nil)
    assert.same(generate{ids = longer}.ids, second.ids)
    assert.equal(3 + 11, fed) -- the last token of before, two new ones, and those generated
    local other = append({1, 2}, texts[1])
    assert.same(generate{ids = other}.ids, generate{ids = other, cache = cache}.ids)
  end)

  it("ends at ids, at sequences of ids and at the model's end tokens", function()
    local ids = generate{ids = texts[1]}.ids
    local function ended(o)
      o.ids = texts[1]
      local out = generate(o)
      assert.equal("stop", out.reason)
      return #out.ids
    end
    assert.equal(4, ended{stop = {ids[4]}})
    assert.equal(6, ended{stop = {{ids[5], ids[6]}}})
    local other = support.load "llama"
    other.generation = {eos_token_id = {96, ids[5]}}
    assert.equal(5, #other:generate{ids = texts[1], max_tokens = 12}.ids)
    assert.equal(12, #other:generate{ids = texts[1], max_tokens = 12, ignore_eos = true}.ids)
    other.generation = nil
    other.config.eos_token_id = ids[3]
    assert.equal(3, #other:generate{ids = texts[1], max_tokens = 12}.ids)
  end)

  it("calls on_token with each token, and ends a text for which it returns false", function()
    local seen = {{}, {}, {}}
    local out = generate{ids = texts, on_token = function(id, b)
      table.insert(seen[b], id)
      return not (b == 2 and #seen[b] == 3)
    end}
    for b = 1, 3 do assert.same(out[b].ids, seen[b]) end
    assert.same({"length", "cancelled", "length"}, {out[1].reason, out[2].reason, out[3].reason})
    assert.equal(3, #seen[2])
  end)

  it("draws the same with the same seed, and others with another", function()
    local function draw(seed)
      return table.concat(generate{ids = texts[1], temperature = 1, seed = seed}.ids, " ")
    end
    assert.equal(draw(7), draw(7))
    assert.not_equal(draw(7), draw(8))
  end)

  it("draws in proportion to the probabilities", function()
    local many = {}
    for b = 1, 4000 do many[b] = texts[2] end
    local counts = flare.zeros(97)
    for _, out in ipairs(generate{ids = many, max_tokens = 1, temperature = 0.5, seed = 3}) do
      counts[out.ids[1] + 1] = counts[out.ids[1] + 1] + 1
    end
    local p = (scores(texts[2]) * 2):softmax(-1)
    local deviation = (p * (1 - p) * 4000):sqrt() + 1
    assert.truthy(((counts - p * 4000):abs() / deviation):max():item() < 5)
  end)

  it("takes the options of generation_config.json unless the call has some", function()
    local other = support.load "llama"
    other.generation = {do_sample = true, top_k = 1, temperature = 2}
    local function run(o)
      o.ids, o.max_tokens, o.ignore_eos = texts[1], 12, true
      return other:generate(o).ids
    end
    assert.same(generate{ids = texts[1]}.ids, run{})
    assert.same(generate{ids = texts[1]}.ids, run{temperature = 0})
    assert.not_same(generate{ids = texts[1]}.ids, run{temperature = 1, seed = 1})
  end)

  it("leaves the model's mode and the random numbers of others as they were", function()
    model:train()
    flare.manual_seed(5)
    local want = flare.rand(3)
    flare.manual_seed(5)
    generate{ids = texts[1], temperature = 1, seed = 9}
    assert.truthy(flare.rand(3):eq(want):all():item())
    assert.truthy(model.training)
    model:eval()
  end)

  it("refuses wrong options and ids", function()
    local function refused(pattern, o)
      assert.error_matches(function() model:generate(o) end, pattern)
    end
    refused("ids must be a list of token ids", {ids = 3})
    refused("id 2 of text 1 is 97; ids count from 0 to 96", {ids = {1, 97}})
    refused("text 2 has no ids", {ids = {{1}, {}}})
    refused("max_tokens must be an integer of at least 1, got 0", {ids = {1}, max_tokens = 0})
    refused("temperature must be at least 0, got %-1", {ids = {1}, temperature = -1})
    refused("top_p must be between 0 and 1, got 2", {ids = {1}, top_p = 2})
    refused("repetition_penalty must be above 0", {ids = {1}, repetition_penalty = 0})
    refused("unknown option 'temprature' %(did you mean 'temperature'%?%)",
            {ids = {1}, temprature = 1})
    refused("the cache is for 1 texts of 10 tokens, 1 of 14 are needed",
            {ids = {1, 2}, max_tokens = 12, cache = models.Cache(1, 10)})
    assert.error_matches(function()
      support.load "gpt2":generate{ids = {1, 2}, max_tokens = 127}
    end, "above the model's limit of 128 positions")
  end)
end)

-- What transformers 5.24 gives for the models and ids of models_data.py, with
-- generate(x[:, :10], max_new_tokens=20, num_beams=, length_penalty=, eos_token_id=).
local searched = {
  {"mistral", 3, 1, nil, nil, {{63, 32, 34, 38, 34, 47, 32, 47, 58, 77, 35, 68, 35, 77, 35, 77, 35,
    77, 35, 77}, {72, 63, 63, 32, 58, 10, 67, 49, 67, 64, 21, 71, 71, 13, 39, 26, 39, 28, 59, 1}},
    {-2.45995, -2.57615}},
  {"mistral", 4, -0.5, 20, 29, {{63, 32, 63, 34, 46, 47, 66, 77, 83, 89, 28}, {72, 63, 72, 58, 32,
    23}}, {-93.276, -38.42079}},
  {"llama", 5, 2, 40, 59, {{63, 32, 63, 32, 60, 34, 63, 32, 32, 63, 34, 66, 34, 66, 34, 66, 66, 32,
    34, 66}, {32, 63, 64, 1, 77, 74, 63, 61, 66, 1, 32, 35, 1, 32, 77, 33, 63, 72, 77, 33}},
    {-0.12803, -0.12481}},
  {"gpt2", 4, 1, 5, 12, {{96, 96, 96, 96, 21, 96, 26, 75, 75, 21, 96, 75, 75, 75, 75, 75, 50, 64,
    64, 64}, {24, 85, 94, 65, 24, 24, 96, 24, 24, 96, 96, 96, 96, 89, 24, 38, 38, 86, 11}},
    {-2.49722, -2.49181}},
}

describe("Beam search", function()
  for _, case in ipairs(searched) do
    local name, beams, penalty, first, last, want, sums = table.unpack(case, 1, 7)
    it(("finds the texts of transformers with %d beams of %s"):format(beams, name), function()
      local stop = {}
      for id = first or 1, last or 0 do stop[#stop + 1] = id end
      local out = support.load(name):generate{ids = support.ids(97):narrow(2, 1, 10), beams = beams,
        max_tokens = 20, length_penalty = penalty, stop = stop, ignore_eos = true}
      for b = 1, 2 do
        assert.same(want[b], out[b].ids)
        assert.near(sums[b], out[b].score, 1e-4)
        assert.equal(#want[b] < 20 and "stop" or "length", out[b].reason)
      end
    end)
  end

  it("refuses what it excludes", function()
    assert.error_matches(function() generate{ids = {1}, beams = 2, temperature = 1} end,
                         "beams take the likeliest texts, which excludes temperature")
    assert.error_matches(function() generate{ids = {1}, beams = 0} end,
                         "beams must be an integer of at least 1, got 0")
  end)
end)

describe("A draft model", function()
  it("changes no text that takes the likeliest tokens", function()
    for _, name in ipairs{"llama", "llama_linear", "gpt2"} do
      local draft = support.load(name)
      for _, count in ipairs{1, 4, 7} do
        local want = generate{ids = texts, max_tokens = 30, stop = {63, 20}}
        local got = generate{ids = texts, max_tokens = 30, stop = {63, 20}, draft = draft,
                             draft_tokens = count}
        assert.same(want, got)
      end
    end
  end)

  it("spares steps of the model where it drafts what the model takes", function()
    local steps, features = 0, model.features
    rawset(model, "features", function(...)
      steps = steps + 1
      return features(...)
    end)
    generate{ids = texts[1], max_tokens = 31, draft = support.load "llama", draft_tokens = 4}
    rawset(model, "features", nil)
    assert.equal(1 + 6, steps) -- the prompt and a token, then five tokens at a time
  end)

  it("changes no distribution of drawn tokens", function()
    local many, draft, counts = {}, support.load "llama_linear", {}
    for b = 1, 2000 do many[b] = texts[2] end
    for k, o in ipairs{{draft = draft, draft_tokens = 2}, {}} do
      o.ids, o.max_tokens, o.temperature, o.seed = many, 3, 0.5, k
      local seen = {}
      for _, out in ipairs(generate(o)) do
        for place, id in ipairs(out.ids) do seen[#seen + 1] = place * 97 + id end
      end
      counts[k] = flare.tensor(seen, {dtype = "i64"}):bincount{minlength = 4 * 97, base = 0}:float()
    end
    local a, b = counts[1], counts[2]
    assert.truthy(((a - b):abs() / ((a + b):sqrt() + 1)):max():item() < 5)
  end)

  it("has the model's vocabulary, and excludes what needs every step", function()
    local other = models.LlamaForCausalLM{vocab_size = 50, hidden_size = 8, intermediate_size = 8,
      num_hidden_layers = 1, num_attention_heads = 1}
    local function refused(pattern, o)
      o.ids = {1}
      assert.error_matches(function() generate(o) end, pattern)
    end
    refused("the draft has a vocabulary of 50, the model one of 97", {draft = other})
    refused("draft is a smaller model of the same vocabulary, got number", {draft = 3})
    refused("a draft excludes logprobs", {draft = model, logprobs = true})
    refused("a draft excludes a penalty", {draft = model, repetition_penalty = 2})
  end)
end)

describe("Sampling", function()
  local logits = flare.tensor{{0.1, 2, -1, 3, 0.5, 2.5}, {1, 1, 1, 1, 1, 4}}

  -- The ids that the limits leave, of each text, in order.
  local function left(o)
    o.temperature = o.temperature or 1
    local p, ids = sample.candidates(logits, o)
    local out = {}
    for b, row in ipairs(p:totable()) do
      out[b] = {}
      for k, value in ipairs(row) do
        if value > 0 then table.insert(out[b], ids and ids[{b, k}]:item() or k - 1) end
      end
      table.sort(out[b])
    end
    return out
  end

  it("limits by top_k, top_p and min_p, alone and together", function()
    assert.same({{1, 3, 5}, {0, 1, 5}}, left{top_k = 3})
    -- softmax of the first row: 0.030 0.199 0.010 0.540 0.044 0.328 over their sum
    assert.same({{3, 5}, {5}}, left{top_p = 0.7})
    assert.same({{1, 3, 5}, {0, 5}}, left{top_k = 3, top_p = 0.95})
    assert.same({{3}, {5}}, left{top_p = 0})
    assert.same({{1, 3, 5}, {5}}, left{min_p = 0.3})
    assert.same({{3, 5}, {5}}, left{top_k = 4, min_p = 0.5, top_p = 0.99})
    assert.same({{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}, left{top_p = 1, min_p = 0})
  end)

  it("penalises tokens that occurred", function()
    local o = {repetition_penalty = 2, presence_penalty = 0.5, frequency_penalty = 0.25}
    local all = flare.tensor{{1, 0, 1, 0, 0, 2}, {0, 0, 0, 0, 0, 0}}
    local new = flare.tensor{{0, 0, 0, 0, 0, 2}, {0, 0, 0, 0, 0, 0}}
    local got = sample.penalise(logits, o, all, new)
    local want = flare.tensor{{0.05, 2, -2, 3, 0.5, 1.25 - 0.5 - 0.5}, {1, 1, 1, 1, 1, 4}}
    assert.truthy(flare.allclose(got, want))
  end)
end)

describe("models.Cache", function()
  it("drops tokens, takes other orders of texts, and says when it is full", function()
    local cache = models.Cache(2, 8)
    local ids = flare.tensor({{1, 2, 3, 4}, {5, 6, 7, 8}}, {dtype = "i64"})
    flare.no_grad(function()
      model(ids, cache)
      cache:trim{4, 2}
      assert.same({4, 2}, cache.seen)
      local next_ids = flare.tensor({{9}, {10}}, {dtype = "i64"})
      local got = model(next_ids, cache)[{2, 1}]
      local want = model(flare.tensor({{5, 6, 10}}, {dtype = "i64"}))[{1, 3}]
      assert.truthy(support.off(got, want) < 1e-5)
      cache:reorder{2, 2}
      assert.same({3, 3}, cache.seen)
      got = model(next_ids, cache)
      want = model(flare.tensor({{5, 6, 10, 9}}, {dtype = "i64"}))[{1, 4}]
      assert.truthy(support.off(got[{1, 1}], want) < 1e-5)
    end)
    assert.error_matches(function() model(flare.tile(ids, {1, 2}), cache) end,
                         "room for 8 tokens, 4 were seen and 8 are new")
    assert.error_matches(function() model(ids:narrow(1, 1, 1), cache) end,
                         "the cache has 2 texts, the ids 1")
    assert.error_matches(function() cache:trim(9) end, "text 1 has 4 tokens, cannot keep 9")
  end)
end)
