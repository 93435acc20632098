--- Global names that were never assigned as errors.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local state -- while it is on: the metatable, what it had before, and names that were set to nil

-- Names that may have been meant: globals, and locals of the reading function and its callers.
local function candidates()
  local all = {}
  for name in next, _G do all[name] = true end
  for level = 3, 6 do
    local i, name = 1, debug.getinfo(level, "l") and debug.getlocal(level, 1)
    while name do
      if name:byte() ~= 40 then all[name] = true end -- "(": the interpreter's own
      i = i + 1
      name = debug.getlocal(level, i)
    end
  end
  return all
end

--- From now on reading a global name that was never assigned is an error that names it. Otherwise
-- it is nil, and {lr = learnrate} with a misspelt name is an empty table: Lua drops a nil there,
-- and the optimizer takes its default.
-- @param on false ends it
function M.strict(on)
  if on == false then
    if state then
      state.meta.__index, state.meta.__newindex = state.index, state.newindex
      state = nil
    end
    return
  elseif state then
    return
  end
  local meta = getmetatable(_G) or {}
  state = {meta = meta, index = meta.__index, newindex = meta.__newindex}
  local before, assigned = state.index, {}
  meta.__index = function(t, name)
    local value
    if type(before) == "function" then value = before(t, name)
    elseif before then value = before[name] end
    if value ~= nil or assigned[name] then return value end
    local near = options.nearest(tostring(name), candidates())
    fail("there is no variable '%s'%s", tostring(name),
         near and (" (did you mean '%s'?)"):format(near) or "")
  end
  local store = state.newindex
  meta.__newindex = function(t, name, value)
    assigned[name] = true
    if type(store) == "function" then store(t, name, value)
    else rawset(store or t, name, value) end
  end
  setmetatable(_G, meta)
end

return M
