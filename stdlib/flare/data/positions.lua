--- The positions that a data set's `fetch` takes: a tensor of one dim, or a list of integers.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local function is_list_of_integers(list)
  if type(list) ~= "table" or getmetatable(list) or next(list) ~= nil and list[1] == nil then
    return false
  end
  for _, value in ipairs(list) do
    if math.type(value) ~= "integer" then return false end
  end
  return true
end

--- @param where the name of the method, for errors
-- @return a tensor of one dim
return function(where, index)
  if core.is_tensor(index) then
    if index:dim() ~= 1 or not index.dtype:find "^[iu]%d" then
      fail("%s: positions must be integers in one dim, got %s %s", where, index.dtype,
           tostring(index.shape))
    end
    return index
  end
  if is_list_of_integers(index) then return core.tensor(index, {dtype = "i64"}) end
  fail("%s: a tensor or a list of positions is expected, got %s%s", where, options.kind(index),
       math.type(index) == "integer" and ("; {%d} is one position"):format(index) or "")
end
