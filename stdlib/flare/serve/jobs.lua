--- From the body of a request to what the engine works on.
local core = require "flare.core"
local fields = require "flare.serve.fields"

local M = {}

local function check_model(self, body)
  local name = fields.typed(body, "model", "string")
  if name and name ~= self.name then
    fields.refuse(404, ("The model '%s' does not exist; this server has '%s'."):format(name,
                  self.name), "model", "model_not_found")
  end
end

-- The text of a message's content, which may be a list of parts.
local function content_of(message, k)
  local content = message.content
  if type(content) ~= "table" then return content end
  local parts = {}
  for i, part in ipairs(content) do
    if type(part) ~= "table" or part.type ~= "text" or type(part.text) ~= "string" then
      fields.wrong("messages", "part %d of message %d is no text, and the model reads only texts",
                   i - 1, k - 1)
    end
    parts[i] = part.text
  end
  return table.concat(parts, "\n")
end

local function messages_of(body)
  local given = fields.typed(body, "messages", "table")
  if not given or not given[1] then
    fields.wrong("messages", "an array of at least one message is expected")
  end
  local out = {}
  for k, message in ipairs(given) do
    if type(message) ~= "table" or type(message.role) ~= "string" then
      fields.wrong("messages", "message %d is no object with a role", k - 1)
    end
    out[k] = {}
    for name, value in pairs(message) do out[k][name] = value end
    out[k].content = content_of(message, k)
    local content = out[k].content
    local none = content == nil or content == core.json.null
    if not none and type(content) ~= "string" or none and not message.tool_calls then
      fields.wrong("messages", "message %d has no content", k - 1)
    end
    if none then out[k].content = core.json.null end
  end
  return out
end

-- The ids of a conversation.
local function conversation(self, body, tools)
  local o = {generation_prompt = true, ids = true, tools = tools,
             variables = fields.typed(body, "chat_template_kwargs", "table")}
  local ok, ids, message = pcall(self.tokenizer.chat, self.tokenizer, messages_of(body), o)
  if not ok then
    if type(ids) == "table" and ids.refused then error(ids, 0) end
    fields.refuse(400, "The chat template cannot be rendered: " .. tostring(ids), "messages")
  end
  if not ids then fields.refuse(400, "The chat template says: " .. message, "messages") end
  return ids
end

-- The ids of each prompt of a completion.
local function prompts_of(self, body)
  local given = fields.get(body, "prompt")
  if type(given) == "string" then given = {given} end
  if type(given) ~= "table" or given[1] == nil then
    fields.wrong("prompt", "a string, or an array of strings or of ids, is expected")
  end
  if math.type(given[1]) == "integer" then given = {given} end
  local out = {}
  for k, prompt in ipairs(given) do
    if type(prompt) == "string" then
      out[k] = self.tokenizer:encode(prompt, {truncate = false, pad = false})
      if #out[k] == 0 then fields.wrong("prompt", "prompt %d has no tokens", k - 1) end
    elseif type(prompt) == "table" and prompt[1] ~= nil then
      for _, id in ipairs(prompt) do
        if math.type(id) ~= "integer" or id < 0 or id >= self.vocabulary then
          fields.wrong("prompt", "prompt %d has the id %s; ids are 0 to %d", k - 1, tostring(id),
                       self.vocabulary - 1)
        end
      end
      out[k] = prompt
    else
      fields.wrong("prompt", "prompt %d is %s", k - 1, fields.kind(prompt))
    end
  end
  return out
end

local function logprobs_of(body, chat)
  if not chat then return fields.integer(body, "logprobs", 0, 20) end
  local top = fields.integer(body, "top_logprobs", 0, 20)
  if fields.typed(body, "logprobs", "boolean") then return top or 0 end
  if top then fields.wrong("top_logprobs", "it needs logprobs to be true") end
end

--- A body as an object, which names this server's model if it names one.
function M.body_of(self, text)
  local body, message = core.json.decode(text)
  if type(body) ~= "table" or body[1] ~= nil then
    fields.refuse(400, "The body is no JSON object" .. (message and ": " .. message or "."))
  end
  check_model(self, body)
  return body
end

-- The ids of each prompt, and the job without its requests.
local function begin(self, path, text)
  local body = M.body_of(self, text)
  local chat = path == "/v1/chat/completions"
  local job = {chat = chat, model = self.name, created = os.time(), tokenizer = self.tokenizer,
               stream = fields.typed(body, "stream", "boolean")}
  local how = fields.typed(body, "stream_options", "table")
  job.usage = how and fields.typed(how, "include_usage", "boolean") or false
  if not chat then return job, body, prompts_of(self, body) end
  local tools
  if fields.typed(body, "tools", "table") and #body.tools > 0 then
    -- the template shows the tools with their keys in the order of the request
    tools = require "flare.text.template.ordered"(text).map.tools
    local choice = fields.get(body, "tool_choice", "auto")
    if choice ~= "auto" and choice ~= "none" then
      fields.wrong("tool_choice", "'auto' and 'none' are supported: the model decides by its "
        .. "template")
    end
    if choice == "none" then tools = nil end
    job.tools = tools ~= nil
  end
  return job, body, {conversation(self, body, tools)}
end

-- What the text is held to, or nil.
-- @param text the body, where the schema has its members in the order of the request
local function grammar_of(self, body, text)
  local given, source = fields.typed(body, "response_format", "table"), nil
  for _, name in ipairs{"gbnf", "regex"} do
    local value = fields.typed(body, name, "string")
    if value then source = {[name] = value} end
  end
  local kind = given and given.type
  if kind == "json_object" then
    source = {json = true}
  elseif kind == "json_schema" then
    local holder = fields.typed(given, "json_schema", "table")
    if not holder or holder.schema == nil then
      fields.wrong("response_format", "json_schema needs a schema")
    end
    local tree = require "flare.text.template.ordered"(text)
    source = {json = tree.map.response_format.map.json_schema.map.schema}
  elseif given and kind ~= "text" then
    fields.wrong("response_format", "'%s' is not known; there are text, json_object and "
      .. "json_schema", tostring(kind))
  end
  if not source then return nil end
  local name, value = next(source)
  local key = name .. require "flare.text.grammar.strings".literal(value)
  if self.grammar_key ~= key then
    local ok, grammar = pcall(require "flare.text".grammar, source)
    if not ok then
      fields.refuse(400, (tostring(grammar):gsub("^[^\n:]+:%d+: ", "")),
                    source.json and "response_format" or name)
    end
    self.grammar, self.grammar_key = grammar, key
  end
  return self.grammar
end

local function check_unknown(body)
  for _, name in ipairs{"best_of", "suffix", "functions"} do
    local value = fields.get(body, name)
    if value and not (name == "best_of" and value == 1) and value ~= "" then
      fields.wrong(name, "it is not supported")
    end
  end
end

--- Reads a body.
-- @param self the server
-- @param path /v1/completions or /v1/chat/completions
-- @return a job: {chat =, stream =, usage =, ...}, and the options of each of its requests for
--   Engine:submit. Raises what fields.refuse does
function M.read(self, path, text)
  local job, body, prompts = begin(self, path, text)
  check_unknown(body)
  local list, grammar = {}, grammar_of(self, body, text)
  if #prompts > 128 then fields.wrong("prompt", "at most 128 prompts are allowed") end
  for k, ids in ipairs(prompts) do
    local o = fields.sampling(body, self.vocabulary)
    o.ids, o.grammar = ids, grammar
    -- OpenAI's default, unless the model was published with others
    local sets = self.engine.model.generation
    if not o.temperature and not (sets and sets.do_sample) then o.temperature = 1 end
    o.echo = not job.chat and fields.typed(body, "echo", "boolean") or false
    if o.echo and job.stream then fields.wrong("echo", "it cannot be streamed") end
    o.max_tokens = fields.integer(body, "max_completion_tokens", 1, math.maxinteger)
      or fields.integer(body, "max_tokens", o.echo and 0 or 1, math.maxinteger)
      or not job.chat and 16 or nil
    o.logprobs = logprobs_of(body, job.chat)
    list[k] = o
    local limit = self.limit
    if #ids >= limit then
      fields.refuse(400, ("The prompt has %d tokens; the model takes %d with the answer.")
        :format(#ids, limit), job.chat and "messages" or "prompt", "context_length_exceeded")
    end
  end
  return job, list
end

return M
