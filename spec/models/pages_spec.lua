-- The paged cache: what it gives is what the model computes of whole texts without a cache.
local flare = require "flare"
local models = flare.models
local support = require "spec.support.models"

local model = support.load "llama"
local long = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}

local function ids_of(rows) return flare.tensor(rows, {dtype = "i64"}) end

local function joined(...)
  local out = {}
  for _, list in ipairs{...} do table.move(list, 1, #list, #out + 1, out) end
  return out
end

-- The logits behind a text, without a cache.
local function want(of, ...) return of(ids_of{joined(...)})[{1, -1}] end

-- Feeds new tokens of texts and compares the logits behind each.
local function feed(of, pages, texts, before, new)
  local time, rows, fresh = 0, {}, {}
  for b, list in ipairs(new) do time, fresh[b] = math.max(time, #list), #list end
  for b, list in ipairs(new) do
    rows[b] = joined(list)
    for k = #list + 1, time do rows[b][k] = 0 end
  end
  local out = of(ids_of(rows), pages:batch(texts, fresh))
  for b, list in ipairs(new) do
    assert.truthy(support.off(out[{b, #list}], want(of, before[b], list)) < 2e-6)
    assert.equal(#before[b] + #list, texts[b].seen)
  end
end

describe("models.Pages", function()
  it("holds texts of different lengths, which others may continue", function()
    flare.no_grad(function()
      for _, name in ipairs{"llama", "mistral", "gpt2", "qwen3_moe"} do
        local each, pages = support.load(name), models.Pages{tokens = 200, block = 4}
        local a, b = pages:open(long), pages:open{20, 21, 22}
        feed(each, pages, {a, b}, {{}, {}}, {long, {20, 21, 22}})
        feed(each, pages, {b, a}, {{20, 21, 22}, long}, {{23, 24, 25, 26, 27}, {30}})
        feed(each, pages, {a}, {joined(long, {30})}, {{31, 32}})
        a:close()
        feed(each, pages, {b}, {{20, 21, 22, 23, 24, 25, 26, 27}}, {{28}})
      end
    end)
  end)

  it("shares blocks of forks and copies the one that both write", function()
    flare.no_grad(function()
      local pages = models.Pages{tokens = 64, block = 4}
      local a = pages:open(long)
      feed(model, pages, {a}, {{}}, {long})
      local b, room = a:fork(), pages:room()
      feed(model, pages, {a, b}, {long, long}, {{40}, {50}})
      assert.equal(room - 1, pages:room()) -- 13 tokens are three blocks and a shared one
      assert.same({a.blocks[1], a.blocks[2], a.blocks[3]}, {b.blocks[1], b.blocks[2], b.blocks[3]})
      feed(model, pages, {a, b}, {joined(long, {40}), joined(long, {50})}, {{41, 42}, {51}})
      a:close()
      b:close()
      assert.equal(16, pages:room())
    end)
  end)

  it("finds the blocks that a text begins with, and never those of other contents", function()
    flare.no_grad(function()
      local pages = models.Pages{tokens = 24, block = 4}
      local a = pages:open(long)
      feed(model, pages, {a}, {{}}, {long})
      a:commit(long)
      local b = pages:open{5, 6, 7, 8, 9, 10, 11, 12, 60}
      assert.equal(8, b.seen)
      feed(model, pages, {b}, {{5, 6, 7, 8, 9, 10, 11, 12}}, {{60}})
      b:close()
      a:close()
      assert.equal(6, pages:room()) -- all could be taken
      assert.equal(12, pages:open(long).seen) -- the last token is computed for its logits
      local c = pages:open{1, 6, 7, 8, 9, 10, 11, 12, 60} -- its second block alone is alike
      assert.equal(0, c.seen)
    end)
  end)

  it("reuses known blocks when others are used up, those not used for longest first", function()
    flare.no_grad(function()
      local pages = models.Pages{tokens = 16, block = 4}
      for _, first in ipairs{10, 20} do
        local text = pages:open{first, 1, 2, 3, 4, 5, 6, 7}
        feed(model, pages, {text}, {{}}, {{first, 1, 2, 3, 4, 5, 6, 7}})
        text:commit{first, 1, 2, 3, 4, 5, 6, 7}
        text:close()
      end
      local other = pages:open{30, 31, 32}
      feed(model, pages, {other}, {{}}, {{30, 31, 32}})
      assert.equal(4, pages:open({10, 1, 2, 3, 4, 5, 6, 7, 8}).seen) -- its second block is gone
      assert.equal(8, pages:open({20, 1, 2, 3, 4, 5, 6, 7, 8}).seen)
    end)
  end)

  it("takes a block that is known for one that was computed again", function()
    flare.no_grad(function()
      local pages = models.Pages{tokens = 64, block = 4}
      local a, b = pages:open(long), pages:open(long)
      feed(model, pages, {a, b}, {{}, {}}, {long, long})
      assert.equal(16 - 8, pages:room())
      a:commit(long)
      b:commit(long)
      assert.equal(16 - 5, pages:room()) -- three blocks in common, a last one each
      feed(model, pages, {b}, {long}, {{33}})
    end)
  end)

  it("says when all blocks are in use", function()
    local pages = models.Pages{tokens = 8, block = 4}
    assert.error_matches(function()
      flare.no_grad(model, ids_of{long}, pages:batch{pages:open(long)})
    end, "models.Pages: all 2 blocks of 4 tokens are in use")
    assert.error_matches(function() models.Pages{tokens = 0} end, "tokens must be an integer")
    assert.error_matches(function() models.Pages{size = 3} end, "unknown option 'size'")
  end)

  it("serves model:generate, with batches, beams and what earlier texts began with", function()
    local function run(o)
      o.max_tokens, o.ignore_eos = 12, true
      return model:generate(o)
    end
    local pages, texts = models.Pages{tokens = 400, block = 4}, {long, {20, 21, 22}, {30}}
    local fed, features = 0, model.features
    assert.same(run{ids = texts}, run{ids = texts, cache = pages})
    rawset(model, "features", function(self, ids, cache)
      fed = fed + ids:numel()
      return features(self, ids, cache)
    end)
    local again = run{ids = long, cache = pages}
    rawset(model, "features", nil)
    assert.same(run{ids = long}, again)
    assert.equal(1 + 11, fed) -- 12 of 13 tokens were known
    assert.same(run{ids = texts, beams = 3}, run{ids = texts, beams = 3, cache = pages})
    assert.equal(100, pages:room())
    assert.error_matches(function() run{ids = long, cache = models.Pages{tokens = 16}} end,
                         "the cache is for 1 texts of 16 tokens, 1 of 25 are needed")
  end)
end)
