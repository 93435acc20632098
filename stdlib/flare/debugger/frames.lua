--- The stack of a coroutine as frames with variables that can be read and assigned. A stack is read
-- from another coroutine, so its levels stay the same however deep the reader calls. A *kept* frame
-- is a copy: it outlives the function that it shows.
local M = {}

local Frame = {}
Frame.__index = Frame
M.Frame = Frame

-- Sources of the library, as core.library knows them.
function M.is_library(source)
  local prefix = require "flare.core".library()
  return prefix ~= "" and source:sub(1, #prefix) == prefix or source:sub(1, 9) == "@<flare>/"
end

-- What a function is called: "function 'loss'", "method 'forward'", "main chunk".
local function name_of(info)
  if info.what == "main" then return "main chunk" end
  if info.name then
    local kind = info.namewhat == "method" and "method" or "function"
    return ("%s '%s'"):format(kind, info.name)
  end
  if info.what == "C" then return "a function of C" end
  return ("function <%s:%d>"):format(info.short_src, info.linedefined)
end

local function read_locals(thread, level)
  local list, place = {}, {}
  local i = 1
  while true do
    local name, value = debug.getlocal(thread, level, i)
    if not name then break end
    if name:byte() ~= 40 then -- "(": the interpreter's own
      local at = place[name] or #list + 1 -- an inner variable hides one of the same name
      list[at] = {name = name, value = value, index = i}
      place[name] = at
    end
    i = i + 1
  end
  return list
end

local function read_varargs(thread, level)
  local list = {n = 0}
  while true do
    local name, value = debug.getlocal(thread, level, -list.n - 1)
    if not name then return list end
    list.n = list.n + 1
    list[list.n] = value
  end
end

--- The frame at a level of a coroutine's stack, or nil.
-- @param kept whether its variables are copied
function M.at(thread, level, kept)
  local info = debug.getinfo(thread, level, "Slnfut")
  if not info then return nil end
  local self = setmetatable({func = info.func, source = info.source, short = info.short_src,
    line = info.currentline, defined = info.linedefined, last = info.lastlinedefined,
    what = info.what, name = name_of(info), tail = info.istailcall, level = level,
    library = info.what == "C" or M.is_library(info.source)}, Frame)
  if kept then
    self.values, self.rest = read_locals(thread, level), read_varargs(thread, level)
  else
    self.thread = thread
  end
  return self
end

--- The frames from a level outwards, the innermost first.
-- @param root the function that is the script's outermost one: what called it is left out
-- @param kept how many frames to copy, instead of all as they are
function M.stack(thread, level, root, kept)
  local list = {}
  while not kept or #list < kept do
    local frame = M.at(thread, level, kept)
    if not frame then break end
    list[#list + 1] = frame
    if root and frame.func == root then break end
    level = level + 1
  end
  return list
end

--- The frames of a stack that are the script's own, or all if there are none.
function M.own(stack)
  local list = {}
  for _, frame in ipairs(stack) do
    if not frame.library then list[#list + 1] = frame end
  end
  return list[1] and list or stack
end

--- How many frames a coroutine has from a level outwards.
function M.depth(thread, level)
  local count = 0
  while debug.getinfo(thread, level + count, "l") do count = count + 1 end
  return count
end

--- "train.lua:12 in function 'loss'".
function Frame:place()
  if self.line < 0 then return self.name end
  return ("%s:%d in %s"):format(self.short, self.line, self.name)
end

--- The path of the file that it is from, or nil.
function Frame:path() return self.source:match "^@(.*)$" end

--- The local variables, in order, as {name =, value =, index =}.
function Frame:locals()
  return self.values or read_locals(self.thread, self.level)
end

--- The variables of functions around it that it uses, as {name =, value =, index =}.
function Frame:upvalues()
  local list, i = {}, 1
  while true do
    local name, value = debug.getupvalue(self.func, i)
    if not name then return list end
    if name ~= "_ENV" and name ~= "" then
      list[#list + 1] = {name = name, value = value, index = i}
    end
    i = i + 1
  end
end

--- The values of `...`, with their number n.
function Frame:varargs()
  return self.rest or read_varargs(self.thread, self.level)
end

--- The table of its globals.
function Frame:globals()
  for _, one in ipairs(self:locals()) do
    if one.name == "_ENV" then return one.value end
  end
  local i = 1
  while true do
    local name, value = debug.getupvalue(self.func, i)
    if not name then return _G end
    if name == "_ENV" then return value end
    i = i + 1
  end
end

-- The variable of a name, and whether it is a local one.
local function find(self, name)
  for _, one in ipairs(self:locals()) do
    if one.name == name then return one, true end
  end
  for _, one in ipairs(self:upvalues()) do
    if one.name == name then return one, false end
  end
end

--- Whether it has a variable of this name, and its value.
function Frame:get(name)
  local one = find(self, name)
  if one then return true, one.value end
  return false
end

--- Assigns a local variable or an upvalue; false if it has none of this name.
function Frame:set(name, value)
  local one, is_local = find(self, name)
  if not one then return false end
  if not is_local then
    debug.setupvalue(self.func, one.index, value)
  elseif self.values then
    one.value = value
  else
    debug.setlocal(self.thread, self.level, one.index, value)
  end
  return true
end

return M
