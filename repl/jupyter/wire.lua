--- Messages of Jupyter's protocol, version 5.3: frames with an HMAC-SHA256 over four JSON texts.
local core = require "flare.core"

local M = {}

local DELIMITER = "<IDS|MSG>"

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- A new id of a message or a session.
function M.id() return hex(core.secret.random(16)) end

local function sign(key, parts)
  return key == "" and "" or hex(core.secret.hmac(key, table.concat(parts)))
end

--- A message out of its frames, or nil and what is wrong with it.
-- @param key of the connection, "" for none
-- @return {ids = frames of the route, header =, parent =, metadata =, content =}
function M.read(frames, key)
  local at
  for k, frame in ipairs(frames) do
    if frame == DELIMITER then
      at = k
      break
    end
  end
  if not at or #frames < at + 5 then return nil, "frames are missing" end
  local parts = table.move(frames, at + 2, at + 5, 1, {})
  if not core.secret.same(sign(key, parts), frames[at + 1]) then
    return nil, "the signature is not that of the connection's key"
  end
  local values = {}
  for k, text in ipairs(parts) do
    local value, problem = core.json.decode(text)
    if type(value) ~= "table" then return nil, problem or "no JSON object" end
    values[k] = value
  end
  if type(values[1].msg_type) ~= "string" then return nil, "the header has no msg_type" end
  return {ids = table.move(frames, 1, at - 1, 1, {}), header = values[1], parent = values[2],
          metadata = values[3], content = values[4]}
end

-- A value whose texts are valid UTF-8, as JSON needs them.
local function clean(value)
  if type(value) == "string" then
    return utf8.len(value) and value or (value:gsub("[\x80-\xFF]", "\u{FFFD}"))
  elseif type(value) ~= "table" then
    return value
  end
  local out = {}
  for key, inner in pairs(value) do out[clean(key)] = clean(inner) end
  return getmetatable(value) and #out > 0 and core.json.array(out)
         or setmetatable(out, getmetatable(value))
end

--- The frames of a message.
-- @param ids frames of the route: those of the request, or {topic} for what is published
-- @param o {key =, session =, kind =, content =, parent = header of the request or nil}
function M.write(ids, o)
  local header = {msg_id = M.id(), session = o.session, username = "flare", msg_type = o.kind,
                  version = "5.3", date = os.date "!%Y-%m-%dT%H:%M:%S.000000Z"}
  local parts = {}
  for k, value in ipairs {header, o.parent or {}, {}, o.content or {}} do
    parts[k] = core.json.encode(clean(value))
  end
  local frames = table.move(ids, 1, #ids, 1, {})
  frames[#frames + 1] = DELIMITER
  frames[#frames + 1] = sign(o.key, parts)
  return table.move(parts, 1, 4, #frames + 1, frames)
end

return M
