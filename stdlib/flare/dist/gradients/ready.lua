--- Distributes the core's event "the gradient of a leaf is complete" to several listeners.
local core = require "flare.core"

local M = {}

-- In the order of registration, which is the same on all ranks; weak.
local listeners, last = setmetatable({}, {__mode = "v"}), 0

local function tell(leaf)
  local name = leaf and "ready" or "finish"
  for k = 1, last do
    local listener = listeners[k]
    if listener then listener[name](listener, leaf) end
  end
end

--- Registers a listener: listener:ready(leaf) is called for each leaf, and listener:finish() at the
-- end of each backward pass. The reference is weak.
function M.add(listener)
  while last > 0 and not listeners[last] do last = last - 1 end
  last = last + 1
  listeners[last] = listener
  core.on_ready(tell)
end

return M
