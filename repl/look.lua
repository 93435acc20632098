--- What is in a value and what it is, without a call that could have an effect: raw fields, and the
-- tables behind __index. Metamethods of the user's values are never run.
local core = require "flare.core"

local M = {}

-- Tables of the library that load their fields when they are read; these may be read.
local function is_lazy(meta)
  local walk = type(meta) == "table" and rawget(meta, "__pairs")
  if type(walk) ~= "function" then return false end
  local own = debug.getmetatable(require "flare").__pairs
  local info, known = debug.getinfo(walk, "S"), debug.getinfo(own, "S")
  return info.source == known.source and info.linedefined == known.linedefined
end

local function is_world(meta) return type(meta) == "table" and rawget(meta, "peek") ~= nil end

--- The names of the fields of a table, and of the tables behind it, as keys of `into`.
function M.keys(value, into)
  for _ = 1, 10 do
    if type(value) ~= "table" then return into end
    local meta = debug.getmetatable(value)
    if is_lazy(meta) or is_world(meta) then
      local step, state, key = rawget(meta, "__pairs")(value)
      while true do
        if step == next then key = next(state, key) else key = step(state, key) end
        if key == nil then break end
        if type(key) == "string" then into[key] = true end
      end
    else
      for key in next, value do
        if type(key) == "string" then into[key] = true end
      end
    end
    local behind = type(meta) == "table" and rawget(meta, "__index") or nil
    value = type(behind) == "function" and meta or behind -- a class may look up by itself
  end
  return into
end

--- The names that may stand behind a value's dot or colon.
function M.names_of(value, into)
  if core.is_tensor(value) then return M.keys(core.methods(), into) end
  if type(value) == "string" then return M.keys(string, into) end
  if type(value) == "userdata" then
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index") or nil
  end
  return M.keys(value, into)
end

-- Fields of classes that users of their objects have no business with.
local inner = {about = true, defaults = true, parent = true, init = true, needed = true}

--- Removes from the names behind a value those of its class's workings and, for a method, those
-- that are no functions.
function M.drop_inner(value, names, method)
  local object = type(value) == "table" and rawget(value, "object") or value
  if type(object) ~= "table" or M.is_class(value) then return end
  for name in pairs(names) do
    local own = object == value and rawget(value, name)
    if inner[name] and (own == nil or method) then names[name] = nil
    elseif method then
      local field = M.field(object, name)
      local kind = type(field)
      if kind ~= "function" and kind ~= "nil" then names[name] = nil end
    end
  end
end

--- The texts among a plain table's own keys, quoted, in order.
function M.own_keys(value)
  local list = {}
  if debug.getmetatable(value) ~= nil then return list end
  for key in next, value do
    if type(key) == "string" and #list < 1000 then list[#list + 1] = ("%q"):format(key) end
  end
  table.sort(list)
  return list
end

--- The field of a value; nil if it could only be had by a call.
function M.field(value, name)
  local meta = debug.getmetatable(value)
  if type(value) == "string" then return string[name] end
  if type(value) == "userdata" then
    local behind = type(meta) == "table" and rawget(meta, "__index")
    return type(behind) == "table" and rawget(behind, name) or nil
  end
  if type(value) ~= "table" then return nil end
  if is_world(meta) then return meta.peek(name) end
  local found = rawget(value, name)
  if found == nil and is_lazy(meta) then
    local ok, loaded = pcall(function() return value[name] end)
    return ok and loaded or nil
  end
  for _ = 1, 10 do
    if found ~= nil or type(meta) ~= "table" then break end
    local behind = rawget(meta, "__index")
    if type(behind) == "function" then behind = meta end -- a class may look up by itself
    if type(behind) ~= "table" then break end
    found = rawget(behind, name)
    meta = debug.getmetatable(behind)
    if meta and rawequal(behind, rawget(meta, "__index")) then break end
  end
  return found
end

--- The value at a path of names, such as m.fc.weight.
function M.find(env, path)
  local value = env
  for name in path:gmatch "[^.:]+" do
    if value == nil then return nil end
    value = M.field(value, name)
  end
  return value
end

--- Whether a value is a class of flare.class.
function M.is_class(value)
  return type(value) == "table" and rawget(value, "__name") ~= nil
         and rawget(value, "__index") ~= nil
end

--- A word or two about a value.
function M.kind(value)
  if core.is_tensor(value) then
    if value.closed then return "a closed tensor" end
    return ("tensor %s %s"):format(value.dtype, value.shape)
  end
  local meta = debug.getmetatable(value)
  local name = type(value) == "table" and type(meta) == "table" and rawget(meta, "__name")
  if M.is_class(value) then return "class " .. tostring(rawget(value, "__name")) end
  if type(name) == "string" then return name end
  if type(value) == "string" then
    return ("%q"):format(#value > 40 and value:sub(1, 40) .. "..." or value):gsub("\\\n", "\\n")
  end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
  return type(value)
end

return M
