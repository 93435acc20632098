--- Calls of tools in generated text, in the form that the templates of Hermes and Qwen teach:
-- <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Other text stays text.
local core = require "flare.core"

local M = {}

local OPEN, CLOSE = "<tool_call>", "</tool_call>"

-- A text without its calls, and the calls; calls that are no JSON stay in the text.
local function parse(job, text)
  local rest, calls, at = {}, {}, 1
  while true do
    local first, last = text:find(OPEN, at, true)
    if not first then break end
    local stop, behind = text:find(CLOSE, last + 1, true)
    local call = core.json.decode(text:sub(last + 1, (stop or #text + 1) - 1))
    local fits = type(call) == "table" and type(call.name) == "string"
    rest[#rest + 1] = text:sub(at, fits and first - 1 or behind or #text)
    if fits then
      local arguments = call.arguments
      if type(arguments) ~= "string" then arguments = core.json.encode(arguments or {}) end
      job.calls = (job.calls or 0) + 1
      calls[#calls + 1] = {id = ("call_%s_%d"):format(job.id, job.calls), type = "function",
                           ["function"] = {name = call.name, arguments = arguments}}
    end
    at = (behind or #text) + 1
  end
  rest[#rest + 1] = text:sub(at)
  return table.concat(rest), calls
end

--- Moves calls of tools from the text of a message to where clients look for them.
function M.split(job, choice, answer)
  local text, calls = parse(job, answer.text)
  if #calls == 0 then return end
  text = text:match "^%s*(.-)%s*$"
  choice.message.content = text ~= "" and text or core.json.null
  choice.message.tool_calls = core.json.array(calls)
  if answer.reason == "stop" then choice.finish_reason = "tool_calls" end
end

--- What can be streamed of a piece: nothing from the first call on, which `rest` has.
function M.piece(answer, piece)
  local held = (answer.held or "") .. piece
  local keep = 0
  if held:find(OPEN, 1, true) then
    keep = #held - held:find(OPEN, 1, true) + 1
  else
    for n = math.min(#OPEN - 1, #held), 1, -1 do
      if held:sub(-n) == OPEN:sub(1, n) then
        keep = n
        break
      end
    end
  end
  answer.held = held:sub(#held - keep + 1)
  return held:sub(1, #held - keep)
end

--- The last delta of a stream: what was held back, with the calls in it; nil if there is nothing.
function M.rest(job, answer)
  if (answer.held or "") == "" then return nil end
  local text, calls = parse(job, answer.held)
  for k, call in ipairs(calls) do call.index = k - 1 end
  if #calls == 0 then return {content = text} end
  text = text:match "^%s*(.-)%s*$"
  return {content = text ~= "" and text or nil, tool_calls = core.json.array(calls)}
end

return M
