--- Answers as JSON in the form of OpenAI's interface: whole ones and pieces of a stream.
local core = require "flare.core"

local M = {}

local array, null = core.json.array, core.json.null

local function list(items) return array(items) end

-- A token of log-probabilities: its text, with U+FFFD for half a character, and its bytes.
local function token_of(tokenizer, id, logprob)
  local text, bytes = tokenizer:bytes(id), {}
  if tokenizer.special[id] then text = tokenizer:token(id) end
  for k = 1, #text do bytes[k] = text:byte(k) end
  return {token = (core.text.repair(text)), bytes = list(bytes),
          logprob = math.max(logprob, -9999)} -- JSON has no infinity
end

local function chat_logprobs(tokenizer, answer, first, last)
  local content = {}
  for k = first, last do
    local entry, top = token_of(tokenizer, answer.ids[k], answer.logprobs[k]), {}
    for i, one in ipairs(answer.top and answer.top[k] or {}) do
      top[i] = token_of(tokenizer, one.id, one.logprob)
    end
    entry.top_logprobs = list(top)
    content[#content + 1] = entry
  end
  return {content = list(content), refusal = null}
end

local function new_logprobs()
  return {tokens = list{}, token_logprobs = list{}, top_logprobs = list{}, text_offset = list{}}
end

-- Adds a token to log-probabilities; without one, as the first of a prompt, it is null.
local function add_logprob(out, tokenizer, answer, id, logprob, top)
  local entry, n = token_of(tokenizer, id, logprob or 0), #out.tokens + 1
  local likely = {}
  for _, one in ipairs(top or {}) do
    local other = token_of(tokenizer, one.id, one.logprob)
    likely[other.token] = math.max(likely[other.token] or -9999, other.logprob)
  end
  answer.offset = answer.offset or 0
  out.tokens[n], out.token_logprobs[n] = entry.token, logprob and entry.logprob or null
  out.top_logprobs[n], out.text_offset[n] = logprob and likely or null, answer.offset
  answer.offset = answer.offset + utf8.len(entry.token)
end

local function text_logprobs(tokenizer, answer, first, last)
  local out, request = new_logprobs(), answer.request
  if request.echo and first == 1 then
    for k, id in ipairs(request.ids) do
      add_logprob(out, tokenizer, answer, id, request.prompt_logprobs[k], request.prompt_top[k])
    end
  end
  for k = first, last do
    add_logprob(out, tokenizer, answer, answer.ids[k], answer.logprobs[k],
                answer.top and answer.top[k])
  end
  return out
end

-- Log-probabilities of tokens first to last of an answer, or null.
local function logprobs(job, answer, first, last)
  if not answer.logprobs or last < first and not answer.request.echo then return null end
  return (job.chat and chat_logprobs or text_logprobs)(job.tokenizer, answer, first, last)
end

local function usage_of(job)
  local prompt, cached, completion = 0, 0, 0
  for _, request in ipairs(job.requests) do
    prompt, cached = prompt + #request.ids, cached + request.answers[1].cached
    for _, answer in pairs(request.answers) do completion = completion + #answer.ids end
  end
  return {prompt_tokens = prompt, completion_tokens = completion,
          total_tokens = prompt + completion, prompt_tokens_details = {cached_tokens = cached}}
end

local function head(job, object)
  return {id = job.id, object = object, created = job.created, model = job.model}
end

--- The whole answer to a job.
function M.whole(job)
  local choices = {}
  for r, request in ipairs(job.requests) do
    for k, answer in ipairs(request.answers) do
      local choice = {index = (r - 1) * request.n + k - 1, finish_reason = answer.reason,
                      logprobs = logprobs(job, answer, 1, #answer.ids)}
      if job.chat then
        choice.message = {role = "assistant", content = answer.text, refusal = null}
        if job.tools then require("flare.serve.tools").split(job, choice, answer) end
      else
        choice.text = answer.text
        if request.echo then
          choice.text = job.tokenizer:decode(request.ids, {skip_special = false}) .. choice.text
        end
      end
      choices[#choices + 1] = choice
    end
  end
  local out = head(job, job.chat and "chat.completion" or "text_completion")
  out.choices, out.usage = list(choices), usage_of(job)
  return core.json.encode(out)
end

local function event(value) return "data: " .. core.json.encode(value) .. "\n\n" end

local function chunk(job, choice)
  local out = head(job, job.chat and "chat.completion.chunk" or "text_completion")
  out.choices = list{choice}
  if job.usage then out.usage = null end
  return event(out)
end

-- A piece of an answer for a stream.
local function delta(job, answer, index, content, reason)
  local choice = {index = index, finish_reason = reason or null, logprobs = null}
  if job.chat then choice.delta = content else choice.text = content end
  if answer.logprobs then
    choice.logprobs = logprobs(job, answer, (answer.sent or 0) + 1, #answer.ids)
    answer.sent = #answer.ids
  end
  return chunk(job, choice)
end

--- What a stream begins with for each answer.
function M.opening(job, index)
  if not job.chat then return "" end
  return chunk(job, {index = index, delta = {role = "assistant", content = ""},
                     finish_reason = null, logprobs = null})
end

--- The next piece of text of an answer; "" if there is none yet.
function M.piece(job, answer, index, text)
  if text == "" then return "" end
  return delta(job, answer, index, job.chat and {content = text} or text)
end

--- The end of an answer.
function M.closing(job, answer, index)
  if job.tools then
    local calls = require("flare.serve.tools").rest(job, answer)
    if calls then
      local reason = calls.tool_calls and "tool_calls" or answer.reason
      return delta(job, answer, index, calls) .. delta(job, answer, index, {}, reason)
    end
  end
  local rest = job.chat and {} or ""
  return delta(job, answer, index, rest, answer.reason)
end

--- The end of a stream.
function M.ending(job)
  local text = ""
  if job.usage then
    local out = head(job, job.chat and "chat.completion.chunk" or "text_completion")
    out.choices, out.usage = list{}, usage_of(job)
    text = event(out)
  end
  return text .. "data: [DONE]\n\n"
end

--- An error as a body.
function M.error(e)
  local message = core.text.repair(e.message) -- it may show a path, which is any bytes
  return core.json.encode{error = {message = message, type = e.type, param = e.param or null,
                                   code = e.code or null}}
end

--- An error within a stream.
function M.error_event(e) return "data: " .. M.error(e) .. "\n\n" end

return M
