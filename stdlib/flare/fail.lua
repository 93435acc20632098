--- Raising errors that point at the user's line.
-- Library functions call each other, so a fixed level would point into the library; the
-- position is that of the nearest frame outside it.

-- Every file of the library has a source name with this one's beginning.
local prefix = debug and debug.getinfo(1, "S").source:match("^(.*)fail") or nil

local function outside()
  if not prefix then return 2 end
  local level = 3
  while true do
    local info = debug.getinfo(level, "S")
    if not info then return 2 end
    if info.what ~= "C" and info.source:sub(1, #prefix) ~= prefix then return level - 1 end
    level = level + 1
  end
end

--- Raises `format` filled with the arguments, with the position of the user's call.
-- @param format a string.format pattern
return function(format, ...)
  local message = select("#", ...) > 0 and format:format(...) or format
  error(message, outside())
end
