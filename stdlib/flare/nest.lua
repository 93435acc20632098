--- Tensors in plain tables, in an order that depends on the keys alone.
local core = require "flare.core"

local M = {}

local DEPTH = 20 -- what is deeper stays as it is

local function less(a, b)
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

--- Puts the tensors of a table into a list. Tables in it that have none stay what they are.
-- @return what M.give makes the table of again
function M.take(value, list, depth)
  depth = depth or 0
  if core.is_tensor(value) then
    list[#list + 1] = value
    return {tensor = #list}
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil or depth == DEPTH then
    return {value = value}
  end
  local keys, fields = {}, {}
  for key in next, value do
    if type(key) == "number" or type(key) == "string" then keys[#keys + 1] = key
    else fields[key] = {value = value[key]} end
  end
  table.sort(keys, less)
  local before = #list
  for _, key in ipairs(keys) do fields[key] = M.take(value[key], list, depth + 1) end
  return (depth == 0 or #list > before) and {fields = fields} or {value = value}
end

--- The table with tensors of the list in their places.
function M.give(taken, list)
  if taken.tensor then return list[taken.tensor] end
  if not taken.fields then return taken.value end
  local value = {}
  for key, field in next, taken.fields do value[key] = M.give(field, list) end
  return value
end

return M
