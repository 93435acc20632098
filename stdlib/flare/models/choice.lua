--- Choosing one token for a text of the engine, by the options of its request.
local core = require "flare.core"
local sample = require "flare.models.sample"

local M = {}

-- The logits of one text with its bias, its grammar and its penalties; (1, vocabulary).
local function scored(answer, logits)
  local o = answer.request
  if o.bias then
    local ids, values = {}, {}
    for id, value in pairs(o.bias) do ids[#ids + 1], values[#values + 1] = id, value end
    local at = core.tensor(ids, {dtype = "i64", device = logits.device})
    logits = logits:index_add(2, at, core.tensor({values}, {device = logits.device}), {base = 0})
  end
  if sample.has_penalties(o) then
    if not answer.all then
      answer.all, answer.new = core.zeros_like(logits), core.zeros_like(logits)
      local at = core.tensor({o.ids}, {dtype = "i64", device = logits.device})
      answer.all:scatter_add_(2, at, core.ones({1, #o.ids}, {device = logits.device}), {base = 0})
    end
    logits = sample.penalise(logits, o, answer.all, answer.new)
  end
  return logits
end

--- Whether a text takes the likeliest token, and nothing else is asked.
function M.plain(answer)
  local o = answer.request
  return o.temperature == 0 and not (o.bias or o.grammar or o.logprobs or sample.has_penalties(o))
end

--- The next token of one text that is not plain; nil if its grammar allows none of the vocabulary.
function M.draw(answer, logits)
  local o = answer.request
  local scores = scored(answer, logits)
  if answer.matcher then
    scores = answer.matcher:apply(scores)
    if answer.matcher.stuck then return nil end
  end
  local id = sample.pick(scores, o, answer.generator)
  if answer.all then
    local one = core.ones({1, 1}, {device = id.device})
    answer.all:scatter_add_(2, id, one, {base = 0})
    answer.new:scatter_add_(2, id, one, {base = 0})
  end
  id = id:item()
  if not o.logprobs then return id end
  local logp, top = logits:log_softmax(2), nil
  if o.logprobs > 0 then
    local values, at = logp:topk{k = math.min(o.logprobs, logp:size(2)), dim = 2, base = 0}
    values, at, top = values:totable()[1], at:totable()[1], {}
    for k, value in ipairs(values) do top[k] = {id = at[k], logprob = value} end
  end
  return id, logp[{1, id + 1}]:item(), top
end

--- The log-probability of each id of a list by the row of logits before it, and the likeliest ones.
function M.score(logits, ids, most)
  local logp, tops = logits:log_softmax(2), {}
  local at = core.tensor(ids, {dtype = "i64", device = logits.device}):unsqueeze(2)
  local own = logp:gather(2, at, {base = 0}):squeeze(2):totable()
  if most == 0 then return own end
  local values, places = logp:topk{k = math.min(most, logp:size(2)), dim = 2, base = 0}
  values, places = values:totable(), places:totable()
  for k, row in ipairs(values) do
    tops[k] = {}
    for i, value in ipairs(row) do tops[k][i] = {id = places[k][i], logprob = value} end
  end
  return own, tops
end

return M
