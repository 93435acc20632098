--- What the program's parts share: resume() forgets a Ctrl-C and tells whether there was one;
-- calm(f) makes an error handler of f that a Ctrl-C does not stop; ignore() makes Ctrl-C do nothing
-- until resume(). main.lua sets them.
local M = {}

local root -- not a field: tracebacks would show its name

--- Notes the outermost function of the script, or of what was typed; returns the one before.
function M.start(f)
  local before = root
  root = f
  return before
end

--- The outermost function of the script, or of what was typed.
function M.root() return root end

return M
