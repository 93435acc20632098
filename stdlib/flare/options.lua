--- Keyword tables: defaults filled in, unknown keys refused by name.
local fail = require "flare.fail"

local M = {}

-- Edit distance in which swapping two neighbours counts one; only small ones matter.
local function distance(a, b)
  local previous, last = {}, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    local row = {[0] = i}
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], previous[j - 2] + 1)
      end
    end
    previous, last = last, row
  end
  return last[#b]
end

--- The candidate that `name` was probably meant to be, or nil.
-- @param name what was written
-- @param candidates a table whose string keys are the names there are
function M.nearest(name, candidates)
  local best, least = nil, math.max(2, #name // 3) + 1
  local lower = name:lower()
  for candidate in pairs(candidates) do
    if type(candidate) == "string" and candidate:sub(1, 1) ~= "_" then
      local d = distance(lower, candidate:lower())
      -- ties go to the alphabet, since the order of pairs is random
      if d < least or (d == least and best and candidate < best) then
        best, least = candidate, d
      end
    end
  end
  return best
end

--- ", did you mean 'x'?" or a list of what there is.
function M.hint(name, candidates)
  local near = M.nearest(name, candidates)
  if near then return (" (did you mean '%s'?)"):format(near) end
  local all = {}
  for candidate in pairs(candidates) do
    if type(candidate) == "string" and candidate:sub(1, 1) ~= "_" then all[#all + 1] = candidate end
  end
  if #all == 0 then return " (it takes none)" end
  table.sort(all)
  if #all > 16 then return "" end
  return " (there are: " .. table.concat(all, ", ") .. ")"
end

--- A copy of `defaults` with what `given` says.
-- A default of `options.none` stands for "may be given, is left out otherwise".
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
    fail("%s: options must be a table like {%s = ...}, got %s", where,
         next(defaults) or "key", type(given))
  end
  for key, value in pairs(given) do
    local default = defaults[key]
    if default == nil then
      fail("%s: unknown option '%s'%s", where, tostring(key), M.hint(tostring(key), defaults))
    end
    if default ~= M.none and type(default) ~= type(value)
       and (type(default) == "boolean" or type(default) == "number"
            or type(default) == "string") then
      fail("%s: option '%s' must be a %s, got %s", where, key, type(default), type(value))
    end
    out[key] = value
  end
  return out
end

M.none = setmetatable({}, {__name = "left out"})

--- Checks that `value` is a positive integer and returns it.
function M.count(where, name, value, least)
  local n = math.tointeger(value)
  if type(value) ~= "number" or not n or n < (least or 1) then
    fail("%s: %s must be an integer of at least %d, got %s", where, name, least or 1,
         tostring(value))
  end
  return n
end

return M
