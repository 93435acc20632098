--- Generation of text: prompts go through the model at once, then one token after the other, with
-- the keys and values of all tokens before in a cache.
local compile = require "flare.compile"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local sample = require "flare.models.sample"
local Cache = require "flare.models.cache"

local M = {}

local WHERE = "generate"

-- A list of lists of ids, and whether a single text was given.
local function texts_of(ids)
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

local function check_texts(texts, vocabulary)
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

-- The tokens that end a text, as a set, and the sequences of tokens that do.
local function stops_of(model, o)
  local set, sequences = {}, {}
  if not o.ignore_eos then
    local eos = model.generation and model.generation.eos_token_id or model.config.eos_token_id
    for _, id in ipairs(type(eos) == "table" and eos or {eos or nil}) do set[id] = true end
  end
  if type(o.stop) ~= "table" then
    fail("generate: stop is a list of ids and of lists of ids, got %s", options.kind(o.stop))
  end
  for _, stop in ipairs(o.stop) do
    if math.type(stop) == "integer" then
      set[stop] = true
    elseif type(stop) == "table" and #stop > 0 then
      sequences[#sequences + 1] = stop
    else
      fail("generate: stop has ids and lists of ids, got %s", options.kind(stop))
    end
  end
  return set, sequences
end

local function ends_with(ids, sequence)
  if #ids < #sequence then return false end
  for k = 1, #sequence do
    if ids[#ids - #sequence + k] ~= sequence[k] then return false end
  end
  return true
end

-- Options of sampling that the folder's generation_config.json has and the call does not.
local function take_defaults(o, published)
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
                              ["a penalty"] = sample.has_penalties(o)} do
    if excluded then fail("generate: a draft excludes %s", name) end
  end
end

local function options_of(model, given)
  local none = options.none
  local defaults = {ids = none, max_tokens = 128, stop = {}, ignore_eos = false, seed = none,
    logprobs = none, on_token = none, cache = none, compile = none, inputs = none,
    beams = 1, length_penalty = 1, draft = none, draft_tokens = 4}
  for name, value in pairs(sample.defaults) do defaults[name] = value end
  local o = options.check(WHERE, given, defaults)
  take_defaults(o, model.generation)
  sample.check(WHERE, o)
  options.count(WHERE, "max_tokens", o.max_tokens)
  options.count(WHERE, "beams", o.beams)
  if o.beams > 1 then
    for _, name in ipairs{"temperature", "on_token", "logprobs", "cache"} do
      if given[name] and given[name] ~= 0 then
        fail("generate: beams take the likeliest texts, which excludes %s", name)
      end
    end
    o.temperature = 0
  end
  if o.draft then check_draft(model, o) end
  if o.logprobs == true then o.logprobs = 0 end
  if o.logprobs then options.count(WHERE, "logprobs", o.logprobs, 0) end
  return o
end

-- What the texts continue: the model's encoder reads the inputs, and texts that were not given
-- begin with the start token.
local function encode(model, o)
  if not model.encode then
    if o.inputs ~= nil then fail "generate: the model has no encoder, so it takes no inputs" end
    return
  end
  local inputs = options.tensor(WHERE, "inputs", o.inputs)
  local n, start = inputs:size(1), model.config.decoder_start_token_id
  if o.ids == nil then
    o.ids = {}
    for b = 1, n do o.ids[b] = {start} end
  end
  return inputs
end

local Run = {}
Run.__index = Run

-- Tokens of each text that the cache has already and that the new texts begin with.
local function reuse(cache, texts)
  local keep = {}
  for b, text in ipairs(texts) do
    local old, n = cache.tokens and cache.tokens[b] or {}, 0
    -- the last token is computed again: its logits are needed
    while n < #text - 1 and n < cache.seen[b] and old[n + 1] == text[n + 1] do n = n + 1 end
    keep[b] = n
  end
  cache:trim(keep)
  return keep
end

-- A tensor (batch, time) of the new ids of each text, padded behind them, and their numbers.
local function padded(texts, keep, device)
  local time, rows, counts = 0, {}, {}
  for b, text in ipairs(texts) do
    counts[b] = #text - keep[b]
    time = math.max(time, counts[b])
  end
  for b, text in ipairs(texts) do
    local row = table.move(text, keep[b] + 1, #text, 1, {})
    for k = counts[b] + 1, time do row[k] = 0 end
    rows[b] = row
  end
  return core.tensor(rows, {dtype = "i64", device = device}), counts
end

-- The logits of the last token of each text, in f32; the cache takes the texts.
function Run:prefill(texts)
  local cache = self.cache
  local keep = reuse(cache, texts)
  local ids, counts = padded(texts, keep, self.device)
  local x = self.model:features(ids, cache)
  local last, time, seen = {}, ids:size(2), {}
  for b, n in ipairs(counts) do
    last[b], seen[b] = (b - 1) * time + n, keep[b] + n
  end
  cache:trim(seen)
  last = core.tensor(last, {dtype = "i64", device = self.device})
  return self.model:logits(x:flatten(1, 2):index_select(1, last)):to "f32"
end

-- How often each token occurred, (batch, vocabulary).
local function tally(texts, logits)
  local counts = core.zeros_like(logits)
  for b, text in ipairs(texts) do
    local at = core.tensor(text, {dtype = "i64", device = logits.device})
    counts:select(1, b):index_add_(1, at, core.ones(#text, {device = logits.device}), {base = 0})
  end
  return counts
end

-- The next ids (batch, 1) from logits, with log-probabilities if they are wanted.
function Run:choose(logits)
  local o, scores = self.o, logits
  if self.all then scores = sample.penalise(logits, o, self.all, self.new) end
  local ids = sample.pick(scores, o, self.generator)
  if self.all then
    local one = core.ones(ids.shape, {device = ids.device})
    self.all:scatter_add_(2, ids, one, {base = 0})
    self.new:scatter_add_(2, ids, one, {base = 0})
  end
  if not o.logprobs then return ids end
  local logp = logits:log_softmax(2)
  if o.logprobs == 0 then return ids, logp:gather(2, ids, {base = 0}) end
  local values, places = logp:topk{k = math.min(o.logprobs, logp:size(2)), dim = 2, base = 0}
  return ids, logp:gather(2, ids, {base = 0}), values, places
end

-- Notes one token of text b; true if the text ends with it.
function Run:note(b, id, logp, top)
  local out, o = self.out[b], self.o
  local ids = out.ids
  ids[#ids + 1] = id
  if o.logprobs then out.logprobs[#ids] = logp end
  if top then out.top[#ids] = top end
  if self.set[id] then out.reason = "stop" end
  for _, sequence in ipairs(self.sequences) do
    if ends_with(ids, sequence) then out.reason = "stop" end
  end
  if #ids == o.max_tokens and not out.reason then out.reason = "length" end
  if o.on_token and o.on_token(id, b, logp) == false and not out.reason then
    out.reason = "cancelled"
  end
  return out.reason ~= nil
end

-- Reads the ids of a step; false once all texts have ended.
function Run:read(ids, logp, values, places)
  local running = false
  local list, scores = ids:reshape(-1):totable(), logp and logp:reshape(-1):totable()
  local tops, at = values and values:totable(), places and places:totable()
  for b, id in ipairs(list) do
    if not self.out[b].reason then
      local top
      if tops then
        top = {}
        for k, value in ipairs(tops[b]) do top[k] = {id = at[b][k], logprob = value} end
      end
      running = not self:note(b, id, scores and scores[b], top) or running
    end
  end
  return running
end

-- One step of decoding: the logits after these ids.
function Run:step(ids)
  return self.model:logits(self.model:features(ids, self.cache):squeeze(2)):to "f32"
end

-- Generates until all texts have ended.
local function decode(run, texts)
  local logits = run:prefill(texts)
  if sample.has_penalties(run.o) then
    run.all, run.new = tally(texts, logits), core.zeros_like(logits)
  end
  local function choose(scores) return run:choose(scores) end
  local function step(ids) return run:choose(run:step(ids)) end
  if run.o.compile then step = compile.compile(step) end
  local ids, logp, values, places = choose(logits)
  while run:read(ids, logp, values, places) do ids, logp, values, places = step(ids) end
end

-- Generates with a draft model until all texts have ended.
local function speculate(run, texts)
  local o, drafted = run.o, Cache(#texts, run.cache.length)
  local helper = setmetatable({model = o.draft, o = o, cache = drafted, device = run.device}, Run)
  helper:prefill(texts)
  local ids = run:choose(run:prefill(texts))
  local s = {model = run.model, cache = run.cache, draft = o.draft, draft_cache = drafted, o = o,
             count = o.draft_tokens, generator = run.generator, ended = {}}
  local running = run:read(ids)
  while running do
    local rows, last = require("flare.models.speculative").round(s, ids), {}
    running = false
    for b, row in ipairs(rows) do
      for _, id in ipairs(row) do
        if not run.out[b].reason then run:note(b, id) end
      end
      last[b] = {row[#row]}
      s.ended[b] = run.out[b].reason ~= nil
      running = running or not s.ended[b]
    end
    ids = core.tensor(last, {dtype = "i64", device = run.device})
  end
end

-- Beam search; each text is as many rows of the cache as there are beams.
local function search(run, texts)
  local o, ways, rows = run.o, 1 + #run.sequences, {}
  for _ in pairs(run.set) do ways = ways + 1 end
  for b, text in ipairs(texts) do
    for k = 1, o.beams do rows[(b - 1) * o.beams + k] = text end
  end
  local function ends(ids)
    local over = run.set[ids[#ids]] or false
    for _, sequence in ipairs(run.sequences) do over = over or ends_with(ids, sequence) end
    return over
  end
  run.out = require("flare.models.beams").search(
    {beams = o.beams, length_penalty = o.length_penalty, max_tokens = o.max_tokens,
     width = math.max(2, ways) * o.beams},
    #texts, run:prefill(rows), function(ids) return run:step(ids) end, run.cache, ends)
end

local function start(model, o, texts)
  local longest, device = 0, model:parameters()[1].device
  for _, text in ipairs(texts) do longest = math.max(longest, #text) end
  if o.compile == nil then o.compile = device ~= "cpu" end
  local need = longest + o.max_tokens
  if o.draft then need = need + o.draft_tokens + 1 end
  local limit = model.config.max_position_embeddings
  if model.learned_positions and need > limit then
    fail("generate: %d tokens and %d more are above the model's limit of %d positions", longest,
         o.max_tokens, limit)
  end
  local cache = o.cache or Cache(#texts * o.beams, need, {block = o.compile and 64 or 1})
  if cache.batch ~= #texts * o.beams or cache.length < need then
    fail("generate: the cache is for %d texts of %d tokens, %d of %d are needed", cache.batch,
         cache.length, #texts, need)
  end
  local run = setmetatable({model = model, o = o, cache = cache, device = device, out = {}}, Run)
  run.set, run.sequences = stops_of(model, o)
  run.generator = o.seed and core.generator(o.seed, device) or nil
  for b = 1, #texts do
    run.out[b] = {ids = {}, logprobs = o.logprobs and {} or nil,
                  top = o.logprobs and o.logprobs > 0 and {} or nil}
  end
  return run
end

-- What the cache holds afterwards; the last token of each text is not in it.
local function remember(cache, texts, out)
  cache.tokens = {}
  for b, text in ipairs(texts) do
    local all = table.move(text, 1, #text, 1, {})
    cache.tokens[b] = table.move(out[b].ids, 1, #out[b].ids, #all + 1, all)
  end
end

--- Continues texts; the method model:generate.
function M.generate(model, given)
  local o = options_of(model, given)
  local inputs = encode(model, o)
  local texts, single = texts_of(o.ids)
  check_texts(texts, model.config.vocab_size)
  local run, was = start(model, o, texts), model.training
  model:eval()
  local _ <close> = core.no_grad()
  if inputs then
    if inputs:size(1) ~= #texts then
      fail("generate: %d inputs for %d texts", inputs:size(1), #texts)
    end
    run.cache.memory = model:encode(inputs):repeat_interleave(o.beams, 1)
  end
  local ok, problem = pcall(o.beams > 1 and search or o.draft and speculate or decode, run, texts)
  if was then model:train() end
  if not ok then error(problem, 0) end
  if o.cache then remember(run.cache, texts, run.out) end
  if single then return run.out[1] end
  return run.out
end

return M
