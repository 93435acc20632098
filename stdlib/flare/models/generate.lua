--- Generation of text: prompts go through the model at once, then one token after the other, with
-- the keys and values of all tokens before in a cache.
local compile = require "flare.compile"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local request = require "flare.models.request"
local sample = require "flare.models.sample"
local Cache = require "flare.models.cache"
local Matcher = require "flare.models.matcher"
local Pages = require "flare.models.pages"
local Writer = require "flare.models.writer"

local M = {}

local WHERE = "generate"

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

-- The logits of the tokens that the grammar allows in each text.
local function allowed(run, logits)
  local rows = {}
  for b, out in ipairs(run.out) do
    rows[b] = not out.reason and run.matchers[b]:banned(logits:size(2), logits.device)
      or core.zeros({1, logits:size(2)}, {dtype = "bool", device = logits.device})
  end
  return logits:masked_fill(core.cat(rows, 1), -math.huge)
end

-- The next ids (batch, 1) from logits, with log-probabilities if they are wanted.
function Run:choose(logits)
  local o, scores = self.o, logits
  if self.all then scores = sample.penalise(logits, o, self.all, self.new) end
  if o.grammar then scores = allowed(self, scores) end
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

-- Adds a token to the text that is decoded from it; the end of a text is not part of it.
local function write(run, out, b, id)
  local piece, stopped = "", false
  if not run.set[id] then piece, stopped = out.writer:push(id) end
  if stopped then out.reason = "stop" end
  if out.reason and not stopped then piece = piece .. out.writer:finish() end
  out.text = out.text .. piece
  if piece ~= "" and run.o.on_text and run.o.on_text(piece, b) == false and not out.reason then
    out.reason = "cancelled"
  end
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
    if request.ends_with(ids, sequence) then out.reason = "stop" end
  end
  if self.matchers and not self.matchers[b]:push(id) then out.reason = "stop" end
  if #ids == o.max_tokens and not out.reason then out.reason = "length" end
  if o.on_token and o.on_token(id, b, logp) == false and not out.reason then
    out.reason = "cancelled"
  end
  if out.writer then write(self, out, b, id) end
  if out.reason then out.writer = nil end
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
    for _, sequence in ipairs(run.sequences) do over = over or request.ends_with(ids, sequence) end
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
  if o.compile == nil then o.compile = device ~= "cpu" and not o.grammar end
  local need = longest + o.max_tokens
  if o.draft then need = need + o.draft_tokens + 1 end
  local limit = model.config.max_position_embeddings
  if model.learned_positions and need > limit then
    fail("generate: %d tokens and %d more are above the model's limit of %d positions", longest,
         o.max_tokens, limit)
  end
  local cache = o.cache or Cache(#texts * o.beams, need, {block = o.compile and 64 or 1})
  if getmetatable(cache) == Pages then cache = cache:texts(texts, o.beams) end
  if cache.batch ~= #texts * o.beams or cache.length < need then
    fail("generate: the cache is for %d texts of %d tokens, %d of %d are needed", cache.batch,
         cache.length, #texts, need)
  end
  local run = setmetatable({model = model, o = o, cache = cache, device = device, out = {}}, Run)
  local strings
  run.set, run.sequences, strings = request.stops(model, o)
  if o.grammar then
    run.matchers = {}
    for b = 1, #texts do
      run.matchers[b] = Matcher{grammar = o.grammar, tokenizer = o.tokenizer, ends = run.set}
    end
  end
  if o.beams > 1 and #strings > 0 then
    fail "generate: beams end at ids and lists of ids, not at strings"
  end
  run.generator = o.seed and core.generator(o.seed, device) or nil
  for b = 1, #texts do
    run.out[b] = {ids = {}, logprobs = o.logprobs and {} or nil,
                  top = o.logprobs and o.logprobs > 0 and {} or nil,
                  text = o.tokenizer and "" or nil,
                  writer = o.tokenizer and Writer(o.tokenizer, strings) or nil}
  end
  return run
end

-- What the cache holds afterwards; the last token of each text is not in it.
local function remember(cache, texts, out, beams)
  local tokens = {}
  for b = 1, cache.batch do
    local text = (b - 1) // beams + 1
    tokens[b] = table.move(texts[text], 1, #texts[text], 1, {})
    -- which beam a row has become is not known here
    if beams == 1 then table.move(out[b].ids, 1, #out[b].ids, #texts[b] + 1, tokens[b]) end
  end
  if cache.commit then cache:commit(tokens) else cache.tokens = tokens end
end

--- Continues texts; the method model:generate.
function M.generate(model, given)
  local o = request.options(model, given)
  local inputs = encode(model, o)
  local texts, single = request.texts(o.ids)
  request.check_texts(texts, model.config.vocab_size)
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
  if ok and o.cache then remember(run.cache, texts, run.out, o.beams) end
  if run.cache ~= o.cache and o.cache then run.cache:close() end
  if not ok then error(problem, 0) end
  if single then return run.out[1] end
  return run.out
end

return M
