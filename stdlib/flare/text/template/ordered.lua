--- JSON read with the order of its keys, which core.json does not keep and templates show.
local values = require "flare.text.template.values"

local escapes = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\",
  ["/"] = "/"}
local words = {["true"] = true, ["false"] = false, null = values.none}

local function wrong(at, what) error(("byte %d: %s"):format(at, what), 0) end

local read_value

local function skip(text, at) return text:find("%S", at) or #text + 1 end

-- The decoded string that begins at `at`, and the place behind it.
local function string_at(text, at)
  local out, i = {}, at + 1
  while true do
    local plain = text:match('^[^"\\]*', i)
    out[#out + 1], i = plain, i + #plain
    local c = text:sub(i, i)
    if c == '"' then return table.concat(out), i + 1 end
    if c ~= "\\" then wrong(at, "a string does not end") end
    local hex = text:match("^u(%x%x%x%x)", i + 1)
    if hex then
      local code = tonumber(hex, 16)
      local low = text:match("^\\u([dD][c-fC-F]%x%x)", i + 6)
      i = i + 6
      if code >= 0xd800 and code < 0xdc00 and low then
        code = 0x10000 + (code - 0xd800 << 10) + tonumber(low, 16) - 0xdc00
        i = i + 6
      end
      out[#out + 1] = utf8.char(code)
    else
      out[#out + 1] = escapes[text:sub(i + 1, i + 1)] or wrong(i, "an unknown escape")
      i = i + 2
    end
  end
end

local function object_at(text, at, depth)
  local keys, items = {}, {}
  at = skip(text, at + 1)
  if text:sub(at, at) == "}" then return values.dict(keys, items), at + 1 end
  while true do
    if text:sub(at, at) ~= '"' then wrong(at, "a key is expected") end
    keys[#keys + 1], at = string_at(text, at)
    at = skip(text, at)
    if text:sub(at, at) ~= ":" then wrong(at, "':' is expected") end
    items[#keys], at = read_value(text, skip(text, at + 1), depth)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "}" then return values.dict(keys, items), at + 1 end
    if c ~= "," then wrong(at, "',' or '}' is expected") end
    at = skip(text, at + 1)
  end
end

local function array_at(text, at, depth)
  local items = {}
  at = skip(text, at + 1)
  if text:sub(at, at) == "]" then return items, at + 1 end
  while true do
    items[#items + 1], at = read_value(text, at, depth)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "]" then return items, at + 1 end
    if c ~= "," then wrong(at, "',' or ']' is expected") end
    at = skip(text, at + 1)
  end
end

function read_value(text, at, depth)
  if depth > 100 then wrong(at, "nested deeper than 100") end
  local c = text:sub(at, at)
  if c == "{" then return object_at(text, at, depth + 1) end
  if c == "[" then return array_at(text, at, depth + 1) end
  if c == '"' then return string_at(text, at) end
  local number = text:match("^-?%d[%d.eE+-]*", at)
  if number and tonumber(number) then
    return math.tointeger(number) or tonumber(number), at + #number
  end
  local word = text:match("^%a+", at)
  if word == nil or words[word] == nil then wrong(at, "a value is expected") end
  return words[word], at + #word
end

--- Reads a text; raises for what is wrong.
return function(text)
  local value, at = read_value(text, skip(text, 1), 0)
  if skip(text, at) <= #text then wrong(at, "something follows the value") end
  return value
end
