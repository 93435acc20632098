--- Raising errors as the core does: with the position of the nearest line outside of the
-- library in front, and the module that was running behind.
local core = require "flare.core"

--- Raises `format` filled with the arguments.
-- @param format a string.format pattern
return function(format, ...)
  core.raise(select("#", ...) > 0 and format:format(...) or format)
end
