--- Wall-clock time and whether somebody is looking.
local core = require "flare.core"

local M = {}

--- Seconds from some start, never going back.
M.now = core.clock

--- Whether standard error is a terminal.
function M.terminal()
  if os.getenv("TERM") == "dumb" then return false end
  return core.is_terminal(2)
end

return M
