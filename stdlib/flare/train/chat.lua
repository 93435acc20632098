--- Conversations as examples whose loss counts on the answers alone.
local fail = require "flare.fail"
local options = require "flare.options"

-- The parts of the text that the assistant wrote, {first, last} bytes: what each of its messages
-- adds to the prompt before it.
local function answers(tokenizer, messages, text, o)
  local parts = {}
  local function render(n, prompt)
    local out, message = tokenizer:chat(table.move(messages, 1, n, 1, {}),
      {template = o.template, tools = o.tools, variables = o.variables,
       generation_prompt = prompt})
    if not out then fail("train.chat: %s", message) end
    return out
  end
  for k, message in ipairs(messages) do
    if message.role == o.role then
      local before, after = render(k - 1, true), k == #messages and text or render(k, false)
      if text:sub(1, #before) ~= before or text:sub(1, #after) ~= after then
        fail("train.chat: the template writes the beginning of the conversation otherwise when "
          .. "message %d is its last, so its part of the text is unknown; end the conversation "
          .. "there", k)
      end
      parts[#parts + 1] = {#before + 1, #after}
    end
  end
  return parts
end

--- A conversation as an example for train.Packed: its text by the chat template, where the loss
-- counts on the messages of the assistant, with the token that ends them.
-- @param tokenizer a flare.text tokenizer with a chat template
-- @param messages a list of {role =, content =}
-- @param opts `role = "assistant"`, whose messages count; `last`, true: only the last one counts;
--   `template`, `tools`, `variables` as of tokenizer:chat
-- @return {ids = list, labels = list, -100 where the loss does not count}
return function(tokenizer, messages, opts)
  local none = options.none
  local o = options.check("train.chat", opts, {role = "assistant", last = false, template = none,
                                               tools = none, variables = none})
  if type(tokenizer) ~= "table" or not tokenizer.chat then
    fail("train.chat: a tokenizer is expected, got %s", options.kind(tokenizer))
  elseif type(messages) ~= "table" or #messages == 0 then
    fail("train.chat: a list of messages {role =, content =} is expected")
  end
  local text, message = tokenizer:chat(messages, {template = o.template, tools = o.tools,
                                                  variables = o.variables})
  if not text then fail("train.chat: %s", message) end
  local parts = answers(tokenizer, messages, text, o)
  if #parts == 0 then fail("train.chat: no message is of the %s", o.role) end
  if o.last then parts = {parts[#parts]} end
  local ids, more = tokenizer:encode(text, {special = false, offsets = true, truncate = false,
                                            pad = false})
  local labels, part = {}, 1
  for k, id in ipairs(ids) do
    local first, last = table.unpack(more.offsets[k])
    while parts[part] and first > parts[part][2] do part = part + 1 end
    local own = parts[part]
    -- a token counts if a byte of it is the assistant's
    labels[k] = own and last >= own[1] and last >= first and id or -100
  end
  return {ids = ids, labels = labels}
end
