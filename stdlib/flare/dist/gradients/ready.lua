--- Who wants to know when a leaf's gradient is complete: several may, the core tells one.
local core = require "flare.core"

local M = {}

-- In the order in which they came, the same on all ranks; weak.
local listeners, last = setmetatable({}, {__mode = "v"}), 0

local function tell(leaf)
  local name = leaf and "ready" or "finish"
  for k = 1, last do
    local listener = listeners[k]
    if listener then listener[name](listener, leaf) end
  end
end

--- From now on listener:ready(leaf) and, at the end of each backward pass, listener:finish(). As
-- long as somebody else holds it.
function M.add(listener)
  while last > 0 and not listeners[last] do last = last - 1 end
  last = last + 1
  listeners[last] = listener
  core.on_ready(tell)
end

return M
