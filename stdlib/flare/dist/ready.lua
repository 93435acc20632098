--- Who wants to know when a leaf's gradient is complete: several may, the core tells one.
local core = require "flare.core"

local M = {}

local listeners = setmetatable({}, {__mode = "k"})

local function tell(leaf)
  local name = leaf and "ready" or "finish"
  for listener in pairs(listeners) do listener[name](listener, leaf) end
end

--- From now on listener:ready(leaf) and, at the end of each backward pass, listener:finish(). As
-- long as somebody else holds it.
function M.add(listener)
  listeners[listener] = true
  core.on_ready(tell)
end

function M.remove(listener)
  listeners[listener] = nil
  if not next(listeners) then core.on_ready(nil) end
end

return M
