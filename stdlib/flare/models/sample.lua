--- Choosing the next token from logits, on the device: penalties, temperature, and the limits
-- top_k, top_p (arXiv:1904.09751) and min_p (arXiv:2407.01082), in this order.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

M.defaults = {temperature = options.none, top_k = options.none, top_p = options.none,
  min_p = options.none, repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0}

-- The range of each option: name, least, largest, what is allowed, in words.
local ranges = {
  {"temperature", 0, math.huge, "at least 0"},
  {"top_p", 0, 1, "between 0 and 1"}, {"min_p", 0, 1, "between 0 and 1"},
  {"presence_penalty", -math.huge, math.huge, "finite"},
  {"frequency_penalty", -math.huge, math.huge, "finite"},
}

--- Checks the options of sampling, in place.
function M.check(where, o)
  for _, range in ipairs(ranges) do
    local name, value = range[1], o[range[1]]
    if value ~= nil and not (type(value) == "number" and value >= range[2] and value <= range[3]
                             and math.abs(value) < math.huge) then
      fail("%s: %s must be %s, got %s", where, name, range[4], tostring(value))
    end
  end
  if o.top_k then options.count(where, "top_k", o.top_k) end
  if type(o.repetition_penalty) ~= "number" or o.repetition_penalty <= 0 then
    fail("%s: repetition_penalty must be above 0, got %s", where, tostring(o.repetition_penalty))
  end
  return o
end

--- Whether the options ask for penalties, which need to know the tokens so far.
function M.has_penalties(o)
  return o.repetition_penalty ~= 1 or o.presence_penalty ~= 0 or o.frequency_penalty ~= 0
end

--- Logits with the penalties of tokens that occurred.
-- @param logits (batch, vocabulary)
-- @param all, new how often each token occurred in the text and in what was generated: tensors of
--   the shape of logits
function M.penalise(logits, o, all, new)
  local p = o.repetition_penalty
  if p ~= 1 then -- arXiv:1909.05858
    local less = core.where(logits:lt(0), logits * p, logits / p)
    logits = core.where(all:gt(0), less, logits)
  end
  if o.presence_penalty ~= 0 then
    logits = logits - new:gt(0):to(logits.dtype) * o.presence_penalty
  end
  if o.frequency_penalty ~= 0 then logits = logits - new * o.frequency_penalty end
  return logits
end

--- The candidates that the limits leave.
-- @param logits (batch, vocabulary)
-- @return probabilities (batch, n), and the ids that they belong to, from 0, or nil if these are
--   all ids in order
function M.candidates(logits, o)
  logits = logits / o.temperature
  local ids
  if o.top_k and o.top_k < logits:size(2) then
    logits, ids = logits:topk{k = o.top_k, dim = 2, base = 0}
  elseif o.top_p and o.top_p < 1 then
    logits, ids = logits:sort{dim = 2, descending = true, base = 0}
  end
  local p = logits:softmax(2)
  if o.top_p and o.top_p < 1 then
    local before = p:cumsum(2) - p -- the sum of the larger ones: 0 for the first, which stays
    before:narrow(2, 1, 1):zero_()
    p = p:masked_fill(before:ge(o.top_p), 0)
    if o.top_p == 0 then p:narrow(2, 1, 1):fill_(1) end
  end
  if o.min_p and o.min_p > 0 then
    p = p:masked_fill(p:lt(p:amax(2, {keepdim = true}) * o.min_p), 0)
  end
  return p, ids
end

--- The distribution of the next token, (batch, vocabulary), that the options make of logits.
function M.distribution(logits, o)
  if o.temperature == 0 then
    return core.one_hot(logits:argmax{dim = 2, base = 0}, logits:size(2), {dtype = "f32", base = 0})
  end
  local p, ids = M.candidates(logits, o)
  if ids then p = core.zeros_like(logits):scatter(2, ids, p, {base = 0}) end
  return p / p:sum(2, true)
end

--- The next token of each text.
-- @param logits (batch, vocabulary), in f32
-- @param generator of random numbers, or nil for the default one
-- @return ids (batch, 1), from 0
function M.pick(logits, o, generator)
  if o.temperature == 0 then return logits:argmax{dim = 2, keepdim = true, base = 0} end
  local p, ids = M.candidates(logits, o)
  local at = p:multinomial{n = 1, base = 0, generator = generator}
  return ids and ids:gather(2, at, {base = 0}) or at
end

return M
