--- Raises errors as the core does: the message begins with the nearest line outside of the library
-- and ends with the path of the module that was running.
local core = require "flare.core"

--- Raises an error with the message format:format(...).
-- @param format a string.format pattern
return function(format, ...)
  core.raise(select("#", ...) > 0 and format:format(...) or format)
end
