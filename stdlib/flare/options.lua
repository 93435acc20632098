--- Tables of options: fills in defaults, and raises an error that names an unknown option.
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

-- The names among a table's keys, in alphabetical order.
local function names_of(candidates)
  local all = {}
  for name in next, candidates do
    if type(name) == "string" and name:sub(1, 1) ~= "_" then all[#all + 1] = name end
  end
  table.sort(all)
  return all
end

--- The candidate nearest to a misspelt name, regardless of case, or nil.
-- @param name the misspelt name
-- @param candidates a table whose string keys are the valid names
function M.nearest(name, candidates)
  local lower, given = {}, {}
  name = tostring(name)
  for i, candidate in ipairs(names_of(candidates)) do
    lower[i] = candidate:lower()
    given[lower[i]] = candidate
  end
  if given[name:lower()] then return given[name:lower()] end
  return given[core.nearest(name:lower(), lower)]
end

--- " (did you mean 'x'?)", or a list of the valid names.
function M.hint(name, candidates)
  local near = M.nearest(name, candidates)
  if near then return (" (did you mean '%s'?)"):format(near) end
  local all = names_of(candidates)
  if #all == 0 then return " (it takes none)" end
  if #all > 16 then return "" end
  return " (there are: " .. table.concat(all, ", ") .. ")"
end

--- What a value is, for messages: "a tensor", "a Linear", "the class Linear", or Lua's name of
-- the type.
function M.kind(value)
  if core.is_tensor(value) then return "a tensor" end
  local meta = getmetatable(value)
  if type(value) == "table" and rawget(value, "__index") ~= nil and rawget(value, "__name") then
    return "the class " .. tostring(rawget(value, "__name"))
  elseif type(meta) == "table" and type(meta.__name) == "string" then
    return (meta.__name:find "^[AEIOU]" and "an " or "a ") .. meta.__name
  end
  return type(value)
end

--- ": " and the message of a failed load, where a caller passed its results, nil and a message, on
-- unchecked, as in f(load(path)); otherwise "". For the end of an error.
function M.reason(value, message)
  return value == nil and type(message) == "string" and ": " .. message or ""
end

--- Checks that `value` is a table, as load_state_dict needs.
-- @param message the message that came with nil in place of a table
function M.state(where, value, message)
  if type(value) == "table" then return value end
  fail("%s: a table that state_dict() gave is expected, got %s%s", where, M.kind(value),
       M.reason(value, message))
end

--- A copy of `defaults`, overwritten by the fields of `given`.
-- A default of `options.none` marks an option that is nil unless it is given.
-- @param where the function's name, for errors
-- @param given the caller's table, or nil
-- @param defaults names and default values
-- @return a new table; raises for unknown keys and for anything but a table
function M.check(where, given, defaults)
  local out = {}
  for key, value in pairs(defaults) do
    if value ~= M.none then out[key] = value end
  end
  if given == nil then return out end
  if type(given) ~= "table" then
    local made = core.is_tensor(given) and where:find "^nn%."
      and ("; a layer is made first and called then: %s()(x)"):format(where) or ""
    fail("%s: options must be a table {name = value}, got %s%s%s", where, M.kind(given), made,
      M.hint("", defaults))
  end
  for key, value in pairs(given) do
    local default = defaults[key]
    if default == nil then
      fail("%s: unknown option '%s'%s", where, tostring(key), M.hint(tostring(key), defaults))
    end
    if default ~= M.none and type(default) ~= type(value)
       and (type(default) == "boolean" or type(default) == "number"
            or type(default) == "string") then
      fail("%s: option '%s' must be a %s, got %s", where, key, type(default), M.kind(value))
    end
    out[key] = value
  end
  return out
end

-- A value of an option as text.
local function value_text(value)
  if type(value) == "number" then return ("%g"):format(value) end
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value):gsub(":.*", "") end
  local parts = {}
  for i, part in ipairs(value) do parts[i] = value_text(part) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- An object as text: Name(option=value, ..., rest), the options in alphabetical order.
function M.describe(name, o, rest)
  local parts = names_of(o)
  for i, key in ipairs(parts) do parts[i] = key .. "=" .. value_text(o[key]) end
  parts[#parts + 1] = rest
  return ("%s(%s)"):format(name, table.concat(parts, ", "))
end

M.none = setmetatable({}, {__name = "left out"})

--- Checks that the input of a layer is a tensor and returns it.
function M.input(layer, x)
  if core.is_tensor(x) then return x end
  fail("%s: the input must be a tensor, got %s", getmetatable(layer).__name, M.kind(x))
end

--- Checks that the values are tensors: options.tensors("f", "x", x, "target", target).
function M.tensors(where, ...)
  for k = 1, select("#", ...), 2 do
    local name, value = select(k, ...)
    M.tensor(where, name, value)
  end
end

--- The same, and that all have the shape of the first.
function M.alike(where, first, x, ...)
  M.tensors(where, first, x, ...)
  for k = 1, select("#", ...), 2 do
    local name, value = select(k, ...)
    if value.shape ~= x.shape then
      fail("%s: %s has shape %s, %s %s", where, first, tostring(x.shape), name,
           tostring(value.shape))
    end
  end
end

--- Checks that `value` is a string and returns it.
function M.text(where, name, value)
  if type(value) ~= "string" then
    fail("%s: %s must be a string, got %s", where, name, M.kind(value))
  end
  return value
end

--- Checks that `value` is a positive integer and returns it.
function M.count(where, name, value, least)
  local n = math.tointeger(value)
  if type(value) ~= "number" or not n or n < (least or 1) then
    fail(type(value) == "string" and "%s: %s must be an integer of at least %d, got '%s'"
         or "%s: %s must be an integer of at least %d, got %s", where, name, least or 1,
         type(value) == "table" and "a table" or core.is_tensor(value) and "a tensor"
         or tostring(value))
  end
  return n
end

local units = {b = 1}
for k, prefix in ipairs{"k", "m", "g", "t"} do
  units[prefix .. "ib"], units[prefix .. "b"] = 1024 ^ k, 1000 ^ k
end

--- Bytes as an integer: from a positive number of them, or from text such as "20GiB" or "512 MB".
-- @param also what else the option may be, for the message: "or false"
function M.bytes(where, name, value, also)
  local n = value
  if type(value) == "string" then
    local count, unit = value:match "^%s*([%d.]+)%s*(%a*)%s*$"
    count, unit = tonumber(count), units[(unit == "" and "b" or unit or ""):lower()]
    n = count and unit and math.floor(count * unit)
  end
  local whole = type(n) == "number" and math.tointeger(n)
  if whole and whole > 0 then return whole end
  fail("%s: %s must be a number of bytes, text such as \"20GiB\"%s, got %s", where, name,
       also and ", " .. also or "", type(value) == "string" and ("%q"):format(value)
       or type(value) == "number" and tostring(value) or type(value) == "boolean"
       and tostring(value) or M.kind(value))
end

--- Checks that `f` can be called and returns it.
function M.callable(where, f)
  local meta = getmetatable(f) -- hidden where a userdata is a kernel
  local kernel = type(f) == "userdata" and not core.is_tensor(f)
  if type(f) ~= "function" and not kernel and not (type(meta) == "table" and meta.__call) then
    fail("%s: expected a function or a module, got %s", where, M.kind(f))
  end
  return f
end

--- Checks that `value` is a tensor and returns it.
function M.tensor(where, name, value)
  if not core.is_tensor(value) then
    fail("%s: %s must be a tensor, got %s", where, name, type(value))
  end
  return value
end

return M
