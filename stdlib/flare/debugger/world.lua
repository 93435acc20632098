--- The names that a text sees which is evaluated in a frame: its variables, its globals, flare.
local M = {}

local lazy = {nn = true, optim = true, data = true}

-- What flare's own programs can rely on where a script has no variable of the name.
local function ours(name)
  if name == "flare" then return require "flare" end
  return lazy[name] and require "flare"[name] or nil
end

--- The environment of a frame. Reading and assigning a name reaches the frame's local variable or
-- upvalue, else its global.
-- @param refer function() -> the frame, see flare.debugger.frames
function M.follow(refer)
  local function look_up(name)
    local frame = refer()
    local found, value = frame:get(name)
    if found then return value end
    local globals = frame:globals()
    local meta = debug.getmetatable(globals)
    local peek = type(meta) == "table" and rawget(meta, "peek")
    if peek then value = peek(name) else value = rawget(globals, name) end
    if value == nil then return ours(name) end
    return value
  end
  return setmetatable({}, {
    __index = function(_, name) return look_up(name) end,
    peek = look_up, -- for completion and help
    has = function(name) return (refer():get(name)) end,
    __newindex = function(_, name, value)
      local frame = refer()
      if not frame:set(name, value) then frame:globals()[name] = value end
    end,
    __pairs = function()
      local frame, all = refer(), {flare = true}
      for name in pairs(frame:globals()) do all[name] = true end
      for _, list in ipairs {frame:upvalues(), frame:locals()} do
        for _, one in ipairs(list) do all[one.name] = true end
      end
      return next, all, nil
    end,
  })
end

--- The first value of an expression in a frame; raises what goes wrong.
function M.value(frame, text)
  local env = M.follow(function() return frame end)
  local f, problem = load("return " .. text, "=" .. text, "t", env)
  if not f then error(problem, 0) end
  local rest = frame:varargs()
  return (f(table.unpack(rest, 1, rest.n)))
end

return M
