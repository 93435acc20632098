--- What convolutions and pooling share: one number for each dim of the window.
local fail = require "flare.fail"

local M = {}

--- `value` as a list of n integers >= least; a number stands for all dims.
function M.list(where, name, value, n, least)
  local list = {}
  if type(value) == "number" then
    for i = 1, n do list[i] = value end
  elseif type(value) == "table" then
    if #value ~= n then
      fail("%s: %s must be a number or %d of them, got %d", where, name, n, #value)
    end
    for i = 1, n do list[i] = value[i] end
  else
    fail("%s: %s must be a number or a table of %d, got %s", where, name, n, type(value))
  end
  for i = 1, n do
    local whole = math.tointeger(list[i])
    if not whole or whole < least then
      fail("%s: %s must be integers of at least %d, got %s", where, name, least,
           tostring(list[i]))
    end
    list[i] = whole
  end
  return list
end

--- "3" when all are equal, "3x5" otherwise.
function M.text(list)
  for i = 2, #list do
    if list[i] ~= list[1] then return table.concat(list, "x") end
  end
  return tostring(list[1])
end

return M
