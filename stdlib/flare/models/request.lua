--- What model:generate takes: texts, what ends them, options of sampling.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local sample = require "flare.models.sample"
local Matcher = require "flare.models.matcher"
local Pages = require "flare.models.pages"

local M = {}

local WHERE = "generate"

--- A list of lists of ids, and whether a single text was given.
function M.texts(ids)
  if core.is_tensor(ids) then
    if ids:dim() == 1 then return {ids:totable()}, true end
    if ids:dim() ~= 2 then fail("generate: ids must be (time) or (batch, time)") end
    return ids:totable(), false
  end
  if type(ids) ~= "table" then
    fail("generate: ids must be a list of token ids, a list of such lists or a tensor, got %s",
         options.kind(ids))
  end
  if type(ids[1]) == "table" then return ids, false end
  return {ids}, true
end

--- Raises an error if a text is empty or has ids that are none.
function M.check_texts(texts, vocabulary)
  for b, text in ipairs(texts) do
    if type(text) ~= "table" or #text == 0 then
      fail("generate: text %d has no ids; begin with the model's bos_token_id", b)
    end
    for k, id in ipairs(text) do
      if math.type(id) ~= "integer" or id < 0 or vocabulary and id >= vocabulary then
        fail("generate: id %d of text %d is %s; ids count from 0 to %s", k, b, tostring(id),
             vocabulary and tostring(vocabulary - 1) or "the vocabulary's size")
      end
    end
  end
end

--- What ends a text: tokens, as a set, sequences of tokens, and strings.
function M.stops(model, o)
  local set, sequences, strings = {}, {}, {}
  if not o.ignore_eos then
    local eos = model.generation and model.generation.eos_token_id or model.config.eos_token_id
    for _, id in ipairs(type(eos) == "table" and eos or {eos or nil}) do set[id] = true end
  end
  if type(o.stop) ~= "table" then
    fail("generate: stop is a list of ids, of lists of ids and of strings, got %s",
         options.kind(o.stop))
  end
  for _, stop in ipairs(o.stop) do
    if math.type(stop) == "integer" then
      set[stop] = true
    elseif type(stop) == "table" and #stop > 0 then
      sequences[#sequences + 1] = stop
    elseif type(stop) == "string" and stop ~= "" and o.tokenizer then
      strings[#strings + 1] = stop
    elseif type(stop) == "string" and stop ~= "" then
      fail("generate: stop has the string '%s', which needs the option tokenizer", stop)
    else
      fail("generate: stop has ids, lists of ids and strings, got %s",
           stop == "" and "an empty string" or options.kind(stop))
    end
  end
  return set, sequences, strings
end

--- Options of sampling that the folder's generation_config.json has and the call does not.
function M.defaults(o, published)
  local wants = o.temperature or o.top_k or o.top_p or o.min_p
  if published and published.do_sample and not wants then
    for _, name in ipairs{"temperature", "top_k", "top_p", "min_p"} do
      if type(published[name]) == "number" then o[name] = published[name] end
    end
    if o.top_k == 0 then o.top_k = nil end
    wants = true
  end
  if not o.temperature then o.temperature = wants and 1 or 0 end
end

local function check_draft(model, o)
  local other = o.draft
  if type(other) ~= "table" or not other.features or not other.logits then
    fail("generate: draft is a smaller model of the same vocabulary, got %s", options.kind(other))
  elseif other.config.vocab_size ~= model.config.vocab_size then
    fail("generate: the draft has a vocabulary of %s, the model one of %s",
         tostring(other.config.vocab_size), tostring(model.config.vocab_size))
  end
  options.count(WHERE, "draft_tokens", o.draft_tokens)
  for name, excluded in pairs{logprobs = o.logprobs, beams = o.beams > 1, cache = o.cache,
                              ["a penalty"] = sample.has_penalties(o), ["a grammar"] = o.grammar} do
    if excluded then fail("generate: a draft excludes %s", name) end
  end
end

-- The ids of a prompt, which is a text or a list of texts.
local function take_prompt(o)
  for _, name in ipairs{"prompt", "on_text"} do
    if o[name] ~= nil and not o.tokenizer then
      fail("generate: %s needs the option tokenizer", name)
    end
  end
  if o.prompt == nil then return end
  if o.ids ~= nil then fail "generate: ids and prompt exclude each other" end
  if type(o.prompt) == "string" then
    o.ids = o.tokenizer:encode(o.prompt, {truncate = false, pad = false})
  else
    o.ids = o.tokenizer:encode_batch(o.prompt, {truncate = false, pad = false})
  end
end

--- Whether a list of ids ends with another.
function M.ends_with(ids, sequence)
  if #ids < #sequence then return false end
  for k = 1, #sequence do
    if ids[#ids - #sequence + k] ~= sequence[k] then return false end
  end
  return true
end

--- The options of a call, checked and with defaults.
function M.options(model, given)
  local none = options.none
  local defaults = {ids = none, max_tokens = 128, stop = {}, ignore_eos = false, seed = none,
    logprobs = none, on_token = none, cache = none, compile = none, inputs = none,
    beams = 1, length_penalty = 1, draft = none, draft_tokens = 4, tokenizer = none, prompt = none,
    on_text = none, grammar = none}
  for name, value in pairs(sample.defaults) do defaults[name] = value end
  local o = options.check(WHERE, given, defaults)
  M.defaults(o, model.generation)
  sample.check(WHERE, o)
  options.count(WHERE, "max_tokens", o.max_tokens)
  options.count(WHERE, "beams", o.beams)
  if o.beams > 1 then
    for _, name in ipairs{"temperature", "on_token", "on_text", "logprobs", "grammar"} do
      if given[name] and given[name] ~= 0 then
        fail("generate: beams take the likeliest texts, which excludes %s", name)
      end
    end
    if o.cache and getmetatable(o.cache) ~= Pages then
      fail "generate: beams take a models.Pages as cache"
    end
    o.temperature = 0
  end
  if o.draft then check_draft(model, o) end
  take_prompt(o)
  if o.grammar then Matcher.check(WHERE, o.grammar, o.tokenizer) end
  if o.logprobs == true then o.logprobs = 0 end
  if o.logprobs then options.count(WHERE, "logprobs", o.logprobs, 0) end
  return o
end

return M
