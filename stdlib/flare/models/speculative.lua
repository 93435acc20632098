--- Speculative decoding (arXiv:2211.17192): a small model drafts some tokens, the large one
-- computes all of them at once and keeps those that it would have drawn itself. Texts are
-- distributed as if the large model alone had drawn them.
local core = require "flare.core"
local sample = require "flare.models.sample"

local M = {}

-- Draws `count` tokens of the draft model after `last` (batch, 1).
-- @return tokens (batch, count) and their distributions (batch, count, vocabulary)
local function draft(s, last, count)
  local tokens, distributions, ids = {}, {}, last
  for k = 1, count do
    local logits = s.draft:logits(s.draft:features(ids, s.draft_cache):squeeze(2)):to "f32"
    distributions[k] = sample.distribution(logits, s.o)
    ids = distributions[k]:multinomial{n = 1, base = 0, generator = s.generator}
    tokens[k] = ids
  end
  s.draft:features(ids, s.draft_cache) -- so that both caches hold the same tokens
  return core.cat(tokens, 2), core.stack(distributions, 2)
end

--- One round: the tokens of each text that are kept, and one more.
-- @param s {model =, cache =, draft =, draft_cache =, o = options of sampling, count = of drafts,
--   generator =, ended = whether each text has ended: its caches stay as they are}
-- @param last (batch, 1), tokens that no cache has yet
-- @return a list of lists of ids; the last of each are in no cache
function M.round(s, last)
  local seen, count = table.move(s.cache.seen, 1, s.cache.batch, 1, {}), s.count
  local batch = #seen
  local tokens, q = draft(s, last, count)
  local logits = s.model:logits(s.model:features(core.cat({last, tokens}, 2), s.cache)):to "f32"
  local p = sample.distribution(logits:flatten(1, 2), s.o):view(batch, count + 1, -1)
  local at = tokens:unsqueeze(3)
  local share = p:narrow(2, 1, count):gather(3, at, {base = 0}) / q:gather(3, at, {base = 0})
  local draws = core.rand({batch, count}, {device = last.device, generator = s.generator})
  local kept = draws:lt(share:squeeze(3)):to("i64"):cumprod(2):sum(2) -- of each text
  -- after the kept tokens: what the large model has above the small one, of which there is nothing
  -- behind the last draft
  local rest = (p - q:pad{0, 0, 0, 1}):clamp(0)
  local place = kept:view(batch, 1, 1):expand(batch, 1, p:size(3))
  local one = rest:gather(2, place, {base = 0}):squeeze(2)
  -- equal distributions leave rounding errors only; they are not reached but for these
  one = core.where(one:sum(2, true):gt(0), one, p:gather(2, place, {base = 0}):squeeze(2))
  local next_ids = one:multinomial{n = 1, base = 0, generator = s.generator}:totable()
  local drafted, numbers, out = tokens:totable(), kept:totable(), {}
  for b = 1, batch do
    out[b] = table.move(drafted[b], 1, numbers[b], 1, {})
    table.insert(out[b], next_ids[b][1])
    if not s.ended[b] then seen[b] = seen[b] + numbers[b] + 1 end
  end
  s.cache:trim(seen)
  s.draft_cache:trim(seen)
  return out
end

return M
