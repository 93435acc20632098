--- Continuous batching (Yu et al., OSDI 2022): generation for many requests at a time over one
-- paged cache. Each step feeds the next token of all texts that have begun and a part of the
-- prompts that wait; texts come and go between steps.
local choice = require "flare.models.choice"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local request = require "flare.models.request"
local sample = require "flare.models.sample"
local Matcher = require "flare.models.matcher"
local Pages = require "flare.models.pages"
local Writer = require "flare.models.writer"

local Engine = class("Engine")

-- How many tokens so many bytes of a paged cache take.
local function tokens_in(model, bytes, block)
  local probe = Pages{tokens = block, block = block}
  local _ <close> = core.no_grad()
  local ids = core.zeros({1, 1}, {dtype = "i64", device = model:parameters()[1].device})
  model:features(ids, probe:batch{probe:open{0}})
  local each = probe:bytes() // 2 -- one block, and the one for padding
  if bytes < 2 * each then
    fail("models.Engine: memory must be above %d bytes, which a block of %d tokens takes", each,
         block)
  end
  return (bytes // each - 1) * block
end

--- models.Engine(model, {tokenizer =, tokens = 8192, block = 16, batch = 64, chunk = 512}):
-- `tokens` and `block` are those of the paged cache, whose size may also be given as `memory`, such
-- as "2GiB"; `batch` is how many texts are generated at a time, `chunk` how many tokens of prompts
-- a step takes.
function Engine:init(model, opts)
  local o = options.check("models.Engine", opts, {tokenizer = options.none, tokens = 8192,
    memory = options.none, block = 16, batch = 64, chunk = 512})
  if type(model) ~= "table" or not model.features or not model.logits or model.encode then
    fail("models.Engine: a model that predicts the next token is expected, got %s",
         options.kind(model))
  end
  self.batch = options.count("models.Engine", "batch", o.batch)
  self.chunk = options.count("models.Engine", "chunk", o.chunk)
  self.model, self.tokenizer = model, o.tokenizer
  model:eval()
  if o.memory then
    o.tokens = tokens_in(model, options.bytes("models.Engine", "memory", o.memory), o.block)
  end
  self.pages = Pages{tokens = o.tokens, block = o.block}
  self.device = model:parameters()[1].device
  self.limit = model.config.max_position_embeddings or math.huge
  self.waiting, self.running = {}, {}
  self.totals = {prompt = 0, cached = 0, generated = 0, preempted = 0, steps = 0}
end

local function copy(list) return table.move(list, 1, #list, 1, {}) end

-- Text k of a request, which continues `tokens`.
local function answer_of(self, o, k)
  local seed = o.seed and o.seed + k - 1
  return {request = o, index = k, ids = {}, tokens = copy(o.ids),
    text = self.tokenizer and "" or nil,
    logprobs = o.logprobs and {} or nil,
    top = o.logprobs and o.logprobs > 0 and {} or nil,
    writer = self.tokenizer and Writer(self.tokenizer, o.strings) or nil,
    generator = seed and core.generator(seed, self.device) or nil, cached = 0,
    matcher = o.grammar and Matcher{grammar = o.grammar, tokenizer = self.tokenizer, ends = o.set}}
end

--- Takes a request, which `step` works on.
-- @param given `ids`, the prompt; `n = 1` texts; `max_tokens`, `seed`, `stop`, `ignore_eos`,
--   `logprobs` and the options of sampling as in model:generate; `bias`, {[id] = what is added to
--   its logit}; `echo`, log-probabilities of the prompt's tokens, too: `request.prompt_logprobs`
--   and `request.prompt_top`, from the second token on, and `max_tokens` may be 0 then; `grammar`,
--   what the text is held to; `on_token(answer, piece)`, called for each token with the text that
--   is certain by now; `on_end(answer)`: an answer has `index`, from 1, `ids`, `text`, `reason`,
--   `logprobs`, `top`
-- @return the request, for `cancel`; nil and a message if it can never run
function Engine:submit(given)
  local none = options.none
  local defaults = {ids = none, n = 1, max_tokens = none, stop = {}, ignore_eos = false,
    seed = none, logprobs = none, echo = false, bias = none, grammar = none, on_token = none,
    on_end = none}
  for name, value in pairs(sample.defaults) do defaults[name] = value end
  local o = options.check("submit", given, defaults)
  request.defaults(o, self.model.generation)
  sample.check("submit", o)
  options.count("submit", "n", o.n)
  if o.max_tokens then options.count("submit", "max_tokens", o.max_tokens, o.echo and 0 or 1) end
  if o.logprobs == true then o.logprobs = 0 end
  request.check_texts({o.ids}, self.model.config.vocab_size)
  if o.grammar then Matcher.check("submit", o.grammar, self.tokenizer) end
  o.tokenizer = self.tokenizer
  o.set, o.sequences, o.strings = request.stops(self.model, o)
  local most = math.min(self.limit, self.pages.count * self.pages.block)
  if #o.ids >= most then
    return nil, ("the prompt has %d tokens, the limit is %d with the answer"):format(#o.ids, most)
  end
  o.max_tokens = math.min(o.max_tokens or math.huge, most - #o.ids)
  if o.echo then o.prompt_logprobs, o.prompt_top = {}, {} end
  o.answers, o.left = {answer_of(self, o, 1)}, o.n
  self.waiting[#self.waiting + 1] = o.answers[1]
  return o
end

local function remove(list, item)
  for k, other in ipairs(list) do
    if other == item then return table.remove(list, k) end
  end
end

-- Gives the memory of a text back; what it has stays known.
local function release(answer)
  if not answer.paged then return end
  answer.paged:commit(answer.tokens)
  answer.paged:close()
  answer.paged = nil
end

local function finish(self, answer, reason)
  answer.reason = reason
  release(answer)
  remove(self.running, answer)
  remove(self.waiting, answer)
  local o = answer.request
  o.left = o.left - 1
  if o.on_end then o.on_end(answer) end
end

--- Ends a request; its answers get the reason "cancelled", or another one.
function Engine:cancel(o, reason)
  for k = 1, o.n do
    local answer = o.answers[k]
    if answer and not answer.reason then finish(self, answer, reason or "cancelled") end
  end
end

--- Ends all requests, as after an error.
function Engine:abort(reason)
  for _, list in ipairs{copy(self.running), copy(self.waiting)} do
    for _, answer in ipairs(list) do self:cancel(answer.request, reason) end
  end
end

--- Whether there is something to do.
function Engine:busy() return #self.running + #self.waiting > 0 end

local function remaining(answer) return #answer.tokens - answer.paged.seen end

-- Blocks that the texts which run will take for what they have to feed.
local function promised(self)
  local n = 0
  for _, answer in ipairs(self.running) do n = n + answer.paged:need(remaining(answer)) end
  return n
end

-- Begins texts that wait while there is memory for their prompts and a block for each text.
local function admit(self)
  while #self.running < self.batch and self.waiting[1] do
    local answer = self.waiting[1]
    local paged = self.pages:open(answer.tokens, answer.request.echo)
    local need = paged:need(#answer.tokens - paged.seen) + promised(self) + #self.running
    if need > self.pages:room() and #self.running > 0 then
      paged:close()
      return
    end
    answer.paged = paged
    if #answer.ids == 0 then
      answer.cached = paged.seen
      self.totals.prompt = self.totals.prompt + #answer.tokens
      self.totals.cached = self.totals.cached + paged.seen
    end
    self.running[#self.running + 1] = table.remove(self.waiting, 1)
  end
end

-- Makes room for the next token of all texts: the youngest ones wait again if there is too little.
local function make_room(self)
  local function need()
    local n = 0
    for _, answer in ipairs(self.running) do
      n = n + answer.paged:need(math.min(remaining(answer), self.chunk))
    end
    return n
  end
  while #self.running > 1 and need() > self.pages:room() do
    local answer = table.remove(self.running)
    release(answer)
    table.insert(self.waiting, 1, answer)
    self.totals.preempted = self.totals.preempted + 1
  end
end

---------------------------------------------------------------- choosing tokens

-- Why a text ends after this token, or nil.
local function reason_of(answer, id)
  local o = answer.request
  if o.set[id] then return "stop" end
  for _, sequence in ipairs(o.sequences) do
    if request.ends_with(answer.ids, sequence) then return "stop" end
  end
  if answer.matcher and not answer.matcher:push(id) then return "stop" end
  if #answer.ids >= o.max_tokens then return "length" end
end

-- Adds a token to a text.
local function note(self, answer, id, logp, top)
  local o, n = answer.request, #answer.ids + 1
  answer.ids[n], answer.tokens[#answer.tokens + 1] = id, id
  if o.logprobs then answer.logprobs[n] = logp end
  if top then answer.top[n] = top end
  self.totals.generated = self.totals.generated + 1
  local reason, piece, stopped = reason_of(answer, id), "", false
  if answer.writer and not o.set[id] then piece, stopped = answer.writer:push(id) end
  if stopped then
    reason = "stop"
  elseif reason and answer.writer then
    piece = piece .. answer.writer:finish()
  end
  if answer.text then answer.text = answer.text .. piece end
  if o.on_token then o.on_token(answer, piece) end
  if reason and not answer.reason then finish(self, answer, reason) end
end

-- The other texts of a request begin with the blocks of the first one.
local function branch(self, first)
  local o, all = first.request, {first}
  for k = 2, o.n do
    local answer = answer_of(self, o, k)
    o.answers[k] = answer
    if #self.running < self.batch then
      answer.paged, answer.cached = first.paged:fork(), first.paged.seen
      self.running[#self.running + 1], all[#all + 1] = answer, answer
    else
      self.waiting[#self.waiting + 1] = answer
    end
  end
  return all
end

-- Chooses the next token of texts from their logits, a row each.
local function choose(self, answers, logits)
  local greedy
  for row, answer in ipairs(answers) do
    local o = answer.request
    local group = {answer}
    if #answer.ids == 0 and answer.index == 1 and o.n > 1 then group = branch(self, answer) end
    for _, one in ipairs(group) do
      if one.reason then -- a callback has ended it
        goto continue
      elseif one.request.max_tokens == 0 then
        finish(self, one, "length")
      elseif choice.plain(one) then
        greedy = greedy or logits:argmax{dim = 2, base = 0}:totable()
        note(self, one, greedy[row])
      else
        local id, logp, top = choice.draw(one, logits:narrow(1, row, 1))
        if id then
          note(self, one, id, logp, top)
        else
          finish(self, one, one.matcher.problem and "error" or "stop")
        end
      end
      ::continue::
    end
  end
end

---------------------------------------------------------------- steps

-- Notes the log-probabilities of the tokens of a prompt behind those that were fed; `x` are the
-- features of a text's row, whose first `count` are of the tokens from `first` on.
local function echo(self, answer, x, first, count)
  local o = answer.request
  local last = math.min(first + count - 1, #o.ids - 1)
  if last < first then return end
  local logits = self.model:logits(x:narrow(1, 1, last - first + 1)):to "f32"
  local ids = table.move(o.ids, first + 1, last + 1, 1, {})
  local own, tops = choice.score(logits, ids, o.logprobs or 0)
  table.move(own, 1, #own, first + 1, o.prompt_logprobs)
  if tops then table.move(tops, 1, #tops, first + 1, o.prompt_top) end
end

-- Feeds texts what they have not fed yet, at most `chunk` tokens each.
local function feed(self, answers)
  local time, rows, fresh, texts = 0, {}, {}, {}
  for b, answer in ipairs(answers) do
    fresh[b], texts[b] = math.min(remaining(answer), self.chunk), answer.paged
    time = math.max(time, fresh[b])
  end
  for b, answer in ipairs(answers) do
    local seen = answer.paged.seen
    rows[b] = table.move(answer.tokens, seen + 1, seen + fresh[b], 1, {})
    for k = fresh[b] + 1, time do rows[b][k] = 0 end
  end
  local ids = core.tensor(rows, {dtype = "i64", device = self.device})
  local x = self.model:features(ids, self.pages:batch(texts, fresh))
  local whole, last = {}, {}
  for b, answer in ipairs(answers) do
    local first = answer.paged.seen - fresh[b] + 1
    if answer.request.echo and answer.index == 1 then
      echo(self, answer, x:select(1, b), first, fresh[b])
    end
    if remaining(answer) == 0 then
      whole[#whole + 1], last[#last + 1] = answer, (b - 1) * time + fresh[b]
      if time > 1 then answer.paged:commit(answer.tokens) end
    end
  end
  if #whole == 0 then return end
  last = core.tensor(last, {dtype = "i64", device = self.device})
  choose(self, whole, self.model:logits(x:flatten(1, 2):index_select(1, last)):to "f32")
end

--- One step: a token for all texts that have begun, and a part of the prompts.
-- @return whether there is more to do
function Engine:step()
  local _ <close> = core.no_grad()
  admit(self)
  make_room(self)
  self.totals.steps = self.totals.steps + 1
  local begun, prompts, longest = {}, {}, 0
  for _, answer in ipairs(self.running) do
    local n = math.min(remaining(answer), self.chunk)
    if n == 1 then
      begun[#begun + 1] = answer
    elseif #prompts == 0 or (#prompts + 1) * math.max(longest, n) <= self.chunk then
      prompts[#prompts + 1], longest = answer, math.max(longest, n)
    end
  end
  if #prompts > 0 then feed(self, prompts) end
  -- a callback may have ended some
  local still = {}
  for _, answer in ipairs(begun) do
    if not answer.reason then still[#still + 1] = answer end
  end
  if #still > 0 then feed(self, still) end
  return self:busy()
end

return Engine
