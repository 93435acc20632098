--- Values of chat templates. Python's lists and dictionaries are Lua tables: a list has no keys but
-- 1 to n; `Dict` keeps the order of keys. None is nil where it can be, and `none` inside of tables.
local core = require "flare.core"
local fail = require "flare.text.template.lexer".fail

local M = {}

--- None inside of lists and dictionaries.
M.none = core.json.null

local Dict = {__name = "dict"}

--- A dictionary with its keys in order.
function M.dict(keys, values)
  local map = {}
  for i, key in ipairs(keys) do map[key] = values[i] end
  return setmetatable({keys = keys, map = map}, Dict)
end

local Undefined = setmetatable({}, {__name = "undefined", object = true})
M.undefined = Undefined

-- Macros, namespaces, loops: neither a list nor a dictionary.
local function is_object(value)
  local meta = getmetatable(value)
  return type(meta) == "table" and meta.object
end

function M.is_dict(value)
  if type(value) ~= "table" or is_object(value) then return false end
  if getmetatable(value) == Dict then return true end
  return value[1] == nil and next(value) ~= nil
end

function M.is_list(value)
  return type(value) == "table" and not is_object(value) and not M.is_dict(value)
end

--- The keys of a dictionary, in order; a plain table's in alphabetical order.
function M.keys(value)
  if getmetatable(value) == Dict then return value.keys end
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

--- A field of a dictionary, nil if it is not there.
function M.field(value, key)
  if getmetatable(value) == Dict then return value.map[key] end
  return value[key]
end

function M.set_field(value, key, to)
  if getmetatable(value) == Dict then
    if value.map[key] == nil then value.keys[#value.keys + 1] = key end
    value.map[key] = to == nil and M.none or to
  else
    value[key] = to
  end
end

function M.is_none(value) return value == nil or value == M.none end

function M.truth(value)
  if value == nil or value == M.none or value == false or value == Undefined then return false end
  if value == 0 or value == "" then return false end
  if M.is_dict(value) then return #M.keys(value) > 0 end
  return not M.is_list(value) or next(value) ~= nil
end

function M.kind(value)
  if value == Undefined then return "undefined" end
  if M.is_none(value) then return "None" end
  if M.is_dict(value) then return "a dictionary" end
  if type(value) == "table" then return M.is_list(value) and "a list" or "an object" end
  return "a " .. type(value)
end

-- Python's repr of a string.
local function quoted(text)
  local quote = text:find("'", 1, true) and not text:find('"', 1, true) and '"' or "'"
  text = text:gsub("\\", "\\\\"):gsub("\n", "\\n"):gsub("\r", "\\r"):gsub("\t", "\\t")
  if quote == "'" then text = text:gsub("'", "\\'") end
  return quote .. text .. quote
end

local function number_text(value)
  if math.type(value) == "integer" then return tostring(value) end
  if value ~= value then return "nan" end
  if value == math.huge or value == -math.huge then return value > 0 and "inf" or "-inf" end
  for digits = 15, 17 do
    local text = ("%%.%dg"):format(digits):format(value)
    if tonumber(text) == value then
      return text:find "[%.eE]" and text or text .. ".0"
    end
  end
end

--- Python's str of a value; with `inside`, its repr.
function M.text(value, inside, depth)
  depth = depth or 0
  if depth > 50 then fail(0, "a value is nested deeper than 50") end
  if value == Undefined then return "" end
  if M.is_none(value) then return "None" end
  if value == true then return "True" elseif value == false then return "False" end
  if type(value) == "string" then return inside and quoted(value) or value end
  if type(value) == "number" then return number_text(value) end
  local out = {}
  if M.is_dict(value) then
    for i, key in ipairs(M.keys(value)) do
      out[i] = M.text(key, true, depth + 1) .. ": "
        .. M.text(M.field(value, key), true, depth + 1)
    end
    return "{" .. table.concat(out, ", ") .. "}"
  elseif M.is_list(value) then
    for i, item in ipairs(value) do out[i] = M.text(item, true, depth + 1) end
    return "[" .. table.concat(out, ", ") .. "]"
  end
  return tostring(value)
end

local escapes = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
  ["\b"] = "\\b", ["\f"] = "\\f"}

--- JSON as Python's json.dumps writes it.
-- @param o indent: a number of spaces or nil; item and key: separators; sort: by key; ascii
function M.json(value, o, depth)
  depth = depth or 0
  if depth > 100 then fail(0, "a value is nested deeper than 100") end
  if M.is_none(value) then return "null" end
  if type(value) == "boolean" then return tostring(value) end
  if type(value) == "number" then return (number_text(value):gsub("^nan$", "NaN")) end
  if type(value) == "string" then
    local text = value:gsub('[%c"\\]', function(c)
      if c == "\127" then return c end
      return escapes[c] or ("\\u%04x"):format(c:byte())
    end)
    if o.ascii then
      text = text:gsub("[\xc2-\xf4][\x80-\xbf]*", function(c)
        local code = utf8.codepoint(c)
        if code < 0x10000 then return ("\\u%04x"):format(code) end
        code = code - 0x10000
        return ("\\u%04x\\u%04x"):format(0xd800 + (code >> 10), 0xdc00 + (code & 1023))
      end)
    end
    return '"' .. text .. '"'
  end
  local dict = M.is_dict(value)
  if not dict and not M.is_list(value) then
    fail(0, "tojson: %s has no form in JSON", M.kind(value))
  end
  local out, line, last = {}, "", ""
  if o.indent then
    line = "\n" .. (" "):rep(o.indent * (depth + 1))
    last = "\n" .. (" "):rep(o.indent * depth)
  end
  if dict then
    local keys = table.move(M.keys(value), 1, #M.keys(value), 1, {})
    if o.sort then table.sort(keys) end
    for i, key in ipairs(keys) do
      out[i] = line .. M.json(tostring(key), o, depth + 1) .. (o.key or ": ")
        .. M.json(M.field(value, key), o, depth + 1)
    end
  else
    for i, item in ipairs(value) do out[i] = line .. M.json(item, o, depth + 1) end
  end
  local open, close = dict and "{" or "[", dict and "}" or "]"
  if #out == 0 then return open .. close end
  local comma = o.item or (o.indent and "," or ", ")
  return open .. table.concat(out, comma) .. last .. close
end

--- Equality as Python's ==.
function M.equal(a, b)
  if M.is_none(a) or M.is_none(b) then return M.is_none(a) and M.is_none(b) end
  if type(a) ~= "table" or type(b) ~= "table" or a == b then return a == b end
  if M.is_dict(a) ~= M.is_dict(b) then return false end
  local keys, others = M.is_dict(a) and M.keys(a), M.is_dict(b) and M.keys(b)
  if keys then
    if #keys ~= #others then return false end
    for _, key in ipairs(keys) do
      if not M.equal(M.field(a, key), M.field(b, key)) then return false end
    end
    return true
  end
  if #a ~= #b then return false end
  for i, item in ipairs(a) do if not M.equal(item, b[i]) then return false end end
  return true
end

return M
