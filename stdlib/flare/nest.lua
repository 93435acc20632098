--- Lists the tensors in nested plain tables, in an order that depends on the keys only.
local core = require "flare.core"

local M = {}

local DEPTH = 20 -- deeper tables are not searched

local function less(a, b)
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

--- Appends the tensors of a table to a list. Inner tables without tensors are kept as they are.
-- @return a structure from which M.give makes the table again
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

--- The table, with tensors from the list.
function M.give(taken, list)
  if taken.tensor then return list[taken.tensor] end
  if not taken.fields then return taken.value end
  local value = {}
  for key, field in next, taken.fields do value[key] = M.give(field, list) end
  return value
end

return M
