--- The messages that a kernel sends, as "Messaging in Jupyter" describes them (protocol 5.3), and a
-- check of one.
local core = require "flare.core"

local M = {}

-- A field's kind: a name of `kinds`, or the values that it may have. "?" marks what may be absent.
local bundle = {data = "bundle", metadata = "object"}

local function with(fields, more)
  local all = {}
  for name, kind in pairs(fields) do all[name] = kind end
  for name, kind in pairs(more) do all[name] = kind end
  return all
end

local header = {msg_id = "string", session = "string", username = "string", date = "string",
                msg_type = "string", version = "string"}
local whole = {header = header, parent = "object", metadata = "object", content = "object"}

-- What a reply has whose status is "ok"; the others have no status or their own.
local replies = {
  execute_reply = {execution_count = "integer", ["payload?"] = "array",
                   ["user_expressions?"] = "object"},
  inspect_reply = with(bundle, {found = "boolean"}),
  complete_reply = {matches = "texts", cursor_start = "integer", cursor_end = "integer",
                    metadata = "object"},
  history_reply = {history = "array"},
  comm_info_reply = {comms = "object"},
  kernel_info_reply = {protocol_version = "string", implementation = "string",
    implementation_version = "string", language_info = "object", banner = "string",
    ["help_links?"] = "array", ["debugger?"] = "boolean"},
  shutdown_reply = {restart = "boolean"},
  interrupt_reply = {},
}
local failure = {ename = "string", evalue = "string", traceback = "texts"}
local language = {name = "string", version = "string", mimetype = "string",
  file_extension = "string", ["pygments_lexer?"] = "string", ["codemirror_mode?"] = "string",
  ["nbconvert_exporter?"] = "string"}

local others = {
  is_complete_reply = {status = {"complete", "incomplete", "invalid", "unknown"},
                       ["indent?"] = "string"},
  stream = {name = {"stdout", "stderr"}, text = "string"},
  display_data = with(bundle, {["transient?"] = "object"}),
  update_display_data = with(bundle, {transient = "object"}),
  execute_result = with(bundle, {execution_count = "integer", ["transient?"] = "object"}),
  execute_input = {code = "string", execution_count = "integer"},
  error = failure,
  status = {execution_state = {"busy", "idle", "starting"}},
  input_request = {prompt = "string", password = "boolean"},
}

--- The types of the messages that are described, in order.
M.names = {}
for _, list in ipairs {replies, others} do
  for name in pairs(list) do M.names[#M.names + 1] = name end
end
table.sort(M.names)

local kinds = {
  string = function(v) return type(v) == "string" end,
  boolean = function(v) return type(v) == "boolean" end,
  integer = function(v) return math.type(v) == "integer" end,
  object = function(v) return type(v) == "table" and #v == 0 end,
  array = function(v) return type(v) == "table" and (#v > 0 or next(v) == nil) end,
}

function kinds.texts(v)
  for _, one in ipairs(kinds.array(v) and v or {1}) do
    if type(one) ~= "string" then return false end
  end
  return true
end

function kinds.bundle(v)
  for name in pairs(kinds.object(v) and v or {""}) do
    if not tostring(name):find "^[%w.+-]+/[%w.+-]+$" then return false end
  end
  return true
end

-- Whether the value of a field is of its kind; an empty table shows in JSON what it is.
local function fits(value, kind, name, text)
  if type(kind) == "table" and not kind[1] then return type(value) == "table" end
  if type(kind) == "table" then
    for _, one in ipairs(kind) do
      if one == value then return true end
    end
    return false
  end
  if not kinds[kind](value) then return false end
  local opening = ({object = "{", bundle = "{", array = "[", texts = "["})[kind]
  return not (opening and text) or text:find(('"%s":%s'):format(name, opening), 1, true) ~= nil
end

local function check_fields(what, value, fields, text)
  local known = {}
  for word, kind in pairs(fields) do
    local name, optional = word:match "^([%w_]+)(%??)$"
    known[name] = true
    if value[name] == nil then
      if optional == "" then error(("%s has no %s"):format(what, name), 0) end
    elseif not fits(value[name], kind, name, text) then
      error(("%s.%s is %s"):format(what, name, core.json.encode(value[name])), 0)
    end
  end
  for name in pairs(value) do
    if not known[name] then error(("%s has a field %s"):format(what, name), 0) end
  end
end

local function fields_of(kind, content)
  local status = content.status
  if not replies[kind] then return others[kind] end
  if status == "ok" then return with(replies[kind], {status = {"ok"}}) end
  local counted = kind == "execute_reply" and {execution_count = "integer"} or {}
  if status == "error" then return with(failure, with(counted, {status = {"error"}})) end
  return with(counted, {status = {"aborted"}})
end

--- Raises where a message is not as the protocol has it.
-- @param message {header =, parent =, metadata =, content =}
-- @param text the JSON of its content; without it empty arrays and objects are the same
-- @return the message, and its type
function M.check(message, text)
  local parts = {}
  for name in pairs(whole) do parts[name] = message[name] end
  check_fields("a message", parts, whole)
  local kind = message.header.msg_type
  check_fields(kind .. ".header", message.header, header)
  if not message.header.date:find "^%d%d%d%d%-%d%d%-%d%d[T ]%d%d:%d%d:%d%d[.%d]*[Z+%d:]*$" then
    error("the date is " .. message.header.date, 0)
  end
  if not message.header.version:find "^5%.%d$" then
    error("the version is " .. message.header.version, 0)
  end
  if kind ~= "status" or next(message.parent) then
    for name in pairs(header) do
      if message.parent[name] == nil then error(("%s.parent has no %s"):format(kind, name), 0) end
    end
  end
  local fields = fields_of(kind, message.content)
  if not fields then error("the protocol has no " .. kind, 0) end
  check_fields(kind, message.content, fields, text)
  if message.content.language_info then
    check_fields("language_info", message.content.language_info, language)
  end
  for _, entry in ipairs(message.content.history or {}) do
    if #entry ~= 3 then error("an entry of the history has " .. #entry .. " fields", 0) end
  end
  return message, kind
end

return M
