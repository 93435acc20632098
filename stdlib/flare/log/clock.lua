--- Wall-clock time, and whether the output is a terminal.
local core = require "flare.core"

local M = {}

--- Seconds from some start, never going back.
M.now = core.clock

--- Whether standard error is a terminal that can draw over a line.
function M.terminal()
  return os.getenv("TERM") ~= "dumb" and core.is_terminal(2)
end

return M
