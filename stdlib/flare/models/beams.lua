--- Beam search: the likeliest continuations of each text, several at a time, scored by the sum of
-- their log-probabilities divided by a power of their length.
local core = require "flare.core"

local M = {}

-- The continuations of one text: `running`, {ids =, sum =} for each beam; `finished`, {ids =,
-- score =}, at most `count`, the best first.
local function fresh(count)
  local text = {running = {}, finished = {}, done = false}
  for k = 1, count do text.running[k] = {ids = {}, sum = k == 1 and 0 or -math.huge} end
  return text
end

local function extended(ids, id)
  local out = table.move(ids, 1, #ids, 1, {})
  out[#out + 1] = id
  return out
end

local function finish(text, ids, sum, o, reason)
  local entry = {ids = ids, score = sum / (#ids) ^ o.length_penalty, reason = reason}
  table.insert(text.finished, entry)
  table.sort(text.finished, function(a, b) return a.score > b.score end)
  text.finished[o.beams + 1] = nil
end

-- Takes the candidates of a text, the likeliest first: those that end it are finished if they are
-- among the first `beams`, the others run on.
-- @return for each beam the one that it continues, and its token
local function advance(text, candidates, o, ends)
  local from, tokens, running = {}, {}, {}
  for rank, c in ipairs(candidates) do
    local ids = extended(text.running[c.beam].ids, c.id)
    local reason = ends(ids) and "stop" or #ids == o.max_tokens and "length"
    if reason then
      if rank <= o.beams then finish(text, ids, c.sum, o, reason) end
    elseif #running < o.beams then
      running[#running + 1] = {ids = ids, sum = c.sum}
      from[#running], tokens[#running] = c.beam, c.id
    end
  end
  text.running = running
  local worst, best = text.finished[o.beams], running[1]
  if not best then
    text.done = true
  elseif worst then -- as likely as the best running one is now, none would be kept
    text.done = worst.score >= best.sum / (#best.ids) ^ o.length_penalty
  end
  return from, tokens
end

-- The likeliest continuations of each text: so many that `beams` of them run on, even if all ways
-- to end a text are among them.
local function candidates_of(logits, texts, o)
  local sums = {}
  for _, text in ipairs(texts) do
    for k = 1, o.beams do
      sums[#sums + 1] = text.running[k] and text.running[k].sum or -math.huge
    end
  end
  local words = logits:size(2)
  local all = logits:log_softmax(2)
    + core.tensor(sums, {dtype = "f32", device = logits.device}):unsqueeze(2)
  local most = math.min(o.width, o.beams * words)
  local values, at = all:view(#texts, o.beams * words):topk{k = most, dim = 2, base = 0}
  values, at = values:totable(), at:totable()
  local out = {}
  for t = 1, #texts do
    out[t] = {}
    for k, value in ipairs(values[t]) do
      out[t][k] = {sum = value, beam = at[t][k] // words + 1, id = at[t][k] % words}
    end
  end
  return out
end

--- Searches for the likeliest continuation of each text.
-- @param o {beams =, length_penalty =, max_tokens =, width = candidates of a step}
-- @param count of texts; the cache has `beams` rows for each
-- @param logits of the first token, (count * beams, vocabulary)
-- @param step a function of ids (count * beams, 1) that gives the next logits
-- @param cache of the model, whose rows are put into the order of the beams
-- @param ends a function of a list of generated ids: whether it ends the text
-- @return a list of {ids =, score =, reason =}, one for each text
function M.search(o, count, logits, step, cache, ends)
  local texts, running, best = {}, true, {}
  for t = 1, count do texts[t] = fresh(o.beams) end
  while running do
    local all, order, ids = candidates_of(logits, texts, o), {}, {}
    running = false
    for t, text in ipairs(texts) do
      local first, from, tokens = (t - 1) * o.beams, {}, {}
      if not text.done then from, tokens = advance(text, all[t], o, ends) end
      running = running or not text.done
      for k = 1, o.beams do
        order[first + k], ids[first + k] = first + (from[k] or k), {tokens[k] or 0}
      end
    end
    if running then
      cache:reorder(order)
      logits = step(core.tensor(ids, {dtype = "i64", device = logits.device}))
    end
  end
  for t, text in ipairs(texts) do best[t] = text.finished[1] end
  return best
end

return M
