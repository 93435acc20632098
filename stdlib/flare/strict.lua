--- Makes reading a global name that was never assigned an error.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- While strict mode is on: the metatable of _G, what it had before, and the names that were
-- assigned, also those that hold nil now.
local state

-- Python's words, which would be nil: {bias = False} would be a table without options.
local foreign = {True = "there is no variable 'True': Lua writes true",
                 False = "there is no variable 'False': Lua writes false"}

-- Candidates for a misspelt name: globals, the names of `more`, and locals of the reading function
-- and of its callers.
local function candidates(more)
  local all = {}
  for name in next, _G do all[name] = true end
  for name in pairs(more and more() or {}) do all[name] = true end
  for level = 3, 7 do
    local info = debug.getinfo(level, "l")
    local i, name = 1, info and debug.getlocal(level, 1)
    while name do
      if name:byte() ~= 40 then all[name] = true end -- "(": the interpreter's own
      i = i + 1
      name = debug.getlocal(level, i)
    end
  end
  return all
end

--- The message for reading a name without a value; nil if strict mode is off or the name was
-- assigned before. For environments other than _G, such as the prompt's.
-- @param name the name that was read
-- @param more a function that returns a table whose keys are the names of that environment
-- @return a message, or nil
function M.problem(name, more)
  if foreign[name] and not (state and state.assigned[name]) then return foreign[name] end
  if not state or state.assigned[name] then return end
  local near = options.nearest(tostring(name), candidates(more))
  return ("there is no variable '%s'%s"):format(tostring(name),
    near and (" (did you mean '%s'?)"):format(near) or "")
end

--- Notes that an environment other than _G assigned a global name.
function M.assign(name)
  if state then state.assigned[name] = true end
end

--- Makes reading a global name that was never assigned an error that names it and the nearest
-- name. Without strict mode such a name is nil, and {lr = learnrate} with a misspelt name is an
-- empty table, so that the optimizer uses its default.
-- @param on false turns strict mode off
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
  state = {meta = meta, index = meta.__index, newindex = meta.__newindex, assigned = {}}
  local before, assigned = state.index, state.assigned
  meta.__index = function(t, name)
    local value
    if foreign[name] then value = nil -- the program's own message would name this line
    elseif type(before) == "function" then value = before(t, name)
    elseif before then value = before[name] end
    local problem = value == nil and M.problem(name)
    if problem then fail("%s", problem) end
    return value
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
