--- Round numbers along an axis.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

--- Positions 1, 2 or 5 times a power of ten apart, inside [low, high].
function M.linear(low, high, about)
  local span = high - low
  if span <= 0 or span ~= span then return {low} end
  local raw = span / about
  local power = 10 ^ math.floor(math.log(raw, 10))
  local step = power
  for _, factor in ipairs{1, 2, 5, 10} do
    step = power * factor
    if step >= raw then break end
  end
  local list = {}
  for k = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do
    list[#list + 1] = k * step
  end
  return list
end

--- A short text for a tick: no exponent where it can be avoided, thousands as "k".
function M.label(value)
  if value ~= 0 and math.abs(value) >= 10000 and value % 1000 == 0 then
    return core.format("%gk", value / 1000)
  end
  return core.format("%.6g", value)
end

--- The smallest and largest finite x and y of a list of series {x = {...}, y = {...}}.
function M.bounds(series)
  local x0, x1, y0, y1 = math.huge, -math.huge, math.huge, -math.huge
  for _, s in ipairs(series) do
    for i, y in ipairs(s.y) do
      local x = s.x[i]
      if y == y and math.abs(y) ~= math.huge then
        x0, x1 = math.min(x0, x), math.max(x1, x)
        y0, y1 = math.min(y0, y), math.max(y1, y)
      end
    end
  end
  if x0 > x1 then return 0, 1, 0, 1 end
  if x0 == x1 then x0, x1 = x0 - 0.5, x1 + 0.5 end
  if y0 == y1 then y0, y1 = y0 - 0.5, y1 + 0.5 end
  return x0, x1, y0, y1
end

--- Series in one form: a list of {name =, x =, y =}. A list of numbers is one series over
-- 1, 2, ...; a table of names and lists is several.
function M.series(given)
  if type(given) ~= "table" or core.is_tensor(given) then
    fail("a plot takes a list of numbers, a list of {name =, x =, y =}, or {name = list}, got %s",
         options.kind(given))
  end
  if type(given[1]) == "number" then given = {{y = given}} end
  if given[1] == nil then
    local names, list = {}, {}
    for name in pairs(given) do names[#names + 1] = name end
    table.sort(names)
    for i, name in ipairs(names) do
      local s = given[name]
      local whole = type(s) == "table" and s.y
      list[i] = whole and {name = name, x = s.x, y = s.y} or {name = name, y = s}
    end
    given = list
  end
  local list = {}
  for i, s in ipairs(given) do
    local y = type(s) == "table" and s.y or nil
    if type(y) ~= "table" or type(y[1] or 0) ~= "number" then
      fail("a plot takes lists of numbers, got %s", options.kind(type(s) == "table" and y or s))
    end
    local x = s.x
    if not x then
      x = {}
      for k = 1, #s.y do x[k] = k end
    end
    list[i] = {name = s.name or "", x = x, y = s.y}
  end
  return list
end

return M
