-- Continuous batching: each text is what model:generate gives it alone, whatever runs beside it.
local flare = require "flare"
local models = flare.models
local support = require "spec.support.models"

local model = support.load "llama"

-- Prompts of different lengths, of which some begin alike.
local function prompts(count)
  local out = {}
  for k = 1, count do
    out[k] = {}
    for i = 1, 3 + (k * 7) % 30 do out[k][i] = (i * 5 + (i > 8 and k or k % 2) * 11) % 90 + 3 end
  end
  return out
end

local function alone(ids, o)
  local all = {ids = ids, max_tokens = 12, ignore_eos = true, temperature = 0}
  for name, value in pairs(o or {}) do all[name] = value end
  return model:generate(all)
end

-- Submits requests and runs them to their end; the answers of each.
local function run(engine, list)
  local requests = {}
  for k, o in ipairs(list) do
    o.ignore_eos, o.max_tokens = true, o.max_tokens or 12
    o.temperature = o.temperature or 0
    requests[k] = assert(engine:submit(o))
  end
  local steps = 0
  while engine:step() do
    steps = steps + 1
    assert(steps < 5000, "it does not end")
  end
  return requests
end

describe("models.Engine", function()
  it("gives many requests what each gets alone", function()
    for _, o in ipairs{{}, {batch = 3, chunk = 8}, {block = 4, tokens = 160, batch = 20}} do
      local engine, list = models.Engine(model, o), {}
      for k, ids in ipairs(prompts(20)) do list[k] = {ids = ids} end
      for k, r in ipairs(run(engine, list)) do
        assert.same(alone(list[k].ids).ids, r.answers[1].ids)
        assert.equal("length", r.answers[1].reason)
      end
      assert.equal(engine.pages.count, engine.pages:room())
      assert.equal(20 * 12, engine.totals.generated)
      if o.tokens then assert.truthy(engine.totals.preempted > 0) end
    end
  end)

  it("takes requests while others run, and lets them go", function()
    local engine, all = models.Engine(model, {block = 4}), prompts(6)
    local requests = {}
    for k, ids in ipairs(all) do
      requests[k] = engine:submit{ids = ids, max_tokens = 12, ignore_eos = true, temperature = 0}
      engine:step()
      engine:step()
      if k == 4 then engine:cancel(requests[3]) end
    end
    while engine:step() do end
    for k, ids in ipairs(all) do
      local answer, want = requests[k].answers[1], alone(ids).ids
      if k == 3 then
        assert.equal("cancelled", answer.reason)
        assert.same(table.move(want, 1, #answer.ids, 1, {}), answer.ids)
        assert.truthy(#answer.ids < 12)
      else
        assert.same(want, answer.ids)
      end
    end
    assert.equal(engine.pages.count, engine.pages:room())
  end)

  it("draws by each request's own options and seed, whatever runs beside it", function()
    local ways = {{temperature = 1, seed = 5}, {temperature = 0.7, top_k = 5, seed = 6},
      {temperature = 1.5, top_p = 0.8, seed = 7}, {repetition_penalty = 1.5},
      {presence_penalty = 2, frequency_penalty = 0.5}, {logprobs = 3}}
    local list, ids = {}, prompts(6)
    for k, way in ipairs(ways) do
      list[k] = {ids = ids[k]}
      for name, value in pairs(way) do list[k][name] = value end
    end
    for k, r in ipairs(run(models.Engine(model), list)) do
      local want, got = alone(ids[k], ways[k]), r.answers[1]
      assert.same(want.ids, got.ids)
      for i, logp in ipairs(want.logprobs or {}) do
        assert.near(logp, got.logprobs[i], 1e-4)
        for place, one in ipairs(want.top[i]) do
          assert.equal(one.id, got.top[i][place].id)
        end
      end
    end
  end)

  it("computes a prompt once for several texts, which differ by their seeds", function()
    local engine, ids, fed = models.Engine(model, {block = 4}), prompts(9)[9], 0
    local features = model.features
    rawset(model, "features", function(self, x, cache)
      fed = fed + x:numel()
      return features(self, x, cache)
    end)
    local r = run(engine, {{ids = ids, n = 3, seed = 4, temperature = 1}})[1]
    rawset(model, "features", nil)
    assert.equal(#ids + 3 * 11, fed)
    for k = 1, 3 do
      assert.same(alone(ids, {temperature = 1, seed = 3 + k}).ids, r.answers[k].ids)
    end
    assert.equal(engine.pages.count, engine.pages:room())
    -- where fewer texts may run at a time, some wait
    local few = run(models.Engine(model, {batch = 2}), {{ids = ids, n = 5, seed = 4,
                                                         temperature = 1}})[1]
    for k = 1, 3 do assert.same(r.answers[k].ids, few.answers[k].ids) end
    assert.equal(12, #few.answers[5].ids)
  end)

  it("does not compute again what earlier requests began with", function()
    local engine = models.Engine(model, {block = 4})
    local ids = prompts(9)[9]
    run(engine, {{ids = ids}})
    local again = run(engine, {{ids = ids}})[1].answers[1]
    assert.equal((#ids - 1) // 4 * 4, again.cached)
    assert.same(alone(ids).ids, again.ids)
  end)

  it("scores prompts, whatever the cache has of them and in parts", function()
    local ids = prompts(9)[9]
    for _, chunk in ipairs{512, 5} do
      local engine = models.Engine(model, {block = 4, chunk = chunk})
      run(engine, {{ids = ids}})
      local r = engine:submit{ids = ids, echo = true, logprobs = 2, max_tokens = 0,
                              temperature = 0}
      local other = engine:submit{ids = {9, 8, 7}, echo = true, max_tokens = 2, temperature = 0,
                                  ignore_eos = true}
      while engine:step() do end
      local logp = model(flare.tensor({ids}, {dtype = "i64"}))[1]:log_softmax(-1)
      assert.is_nil(r.prompt_logprobs[1])
      for k = 2, #ids do
        assert.near(logp[{k - 1, ids[k] + 1}]:item(), r.prompt_logprobs[k], 1e-4)
        assert.equal(logp[k - 1]:argmax{base = 0}:item(), r.prompt_top[k][1].id)
        assert.equal(2, #r.prompt_top[k])
      end
      assert.equal("length", r.answers[1].reason)
      assert.equal(0, #r.answers[1].ids)
      assert.same(alone({9, 8, 7}, {max_tokens = 2}).ids, other.answers[1].ids)
      assert.truthy(other.prompt_logprobs[3])
      assert.equal(engine.pages.count, engine.pages:room())
    end
  end)

  it("adds a bias to logits", function()
    local out = run(models.Engine(model), {{ids = {5, 6}, bias = {[40] = 100}}})[1].answers[1]
    for _, id in ipairs(out.ids) do assert.equal(40, id) end
  end)

  it("says what can never run, and how large a cache of so many bytes is", function()
    local engine = models.Engine(model, {tokens = 32})
    assert.truthy(engine:submit{ids = prompts(9)[9], max_tokens = 5})
    local long = {}
    for k = 1, 32 do long[k] = k end
    local request, message = engine:submit{ids = long}
    assert.is_nil(request)
    assert.equal("the prompt has 32 tokens, the limit is 32 with the answer", message)
    assert.error_matches(function() engine:submit{ids = {97}} end, "ids count from 0 to 96")
    assert.error_matches(function() models.Engine(3) end, "a model that predicts the next token")
    -- llama has 2 layers of 2 groups of 8: 2 * 2 * 2 * 8 * 4 bytes a token
    local c = model.config
    local bytes = 2 * c.num_hidden_layers * c.num_key_value_heads
      * (c.hidden_size // c.num_attention_heads) * 4
    engine = models.Engine(model, {memory = 101 * 16 * bytes})
    assert.equal(100, engine.pages.count)
    run(engine, {{ids = {5}}})
    assert.equal(101 * 16 * bytes, engine.pages:bytes())
  end)
end)
