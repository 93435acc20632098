--- The prompt's marks, by flare.session: of all globals and of the prompt's locals.
local M = {}

local _G, print, tostring, tonumber = _G, print or io.write, tostring, tonumber
local pairs, pcall, rawequal, require = pairs, pcall, rawequal, require
local stderr = io.stderr

local view = {globals = _G, locals = {}}
local session

-- The session, with the locals that there are now; nil, after telling why, for one without marks.
local function open(kept, empty)
  session = session or require("flare.session")(view)
  if not empty and not session.marks[1] then
    return nil, stderr:write "there is no mark; :mark makes one\n"
  end
  local locals = {}
  for name, entry in pairs(kept) do
    if entry.access then locals[name] = entry.access() else locals[name] = entry.value end
  end
  view.locals = locals
  return session
end

-- Gives the locals the values that the mark has; those that came later stay.
local function assign(kept)
  for name, value in pairs(view.locals) do
    local entry = kept[name]
    if entry and entry.access and not rawequal(entry.access(), value) then
      entry.access(true, value)
    end
  end
end

local function tell(ok, mark, kept)
  if not ok then
    stderr:write((tostring(mark):gsub("^[^\n]-:%d+: ", "")), "\n")
    return false
  end
  assign(kept)
  print(mark)
end

-- The mark of a number; the last one for "".
local function find(s, text)
  if text == "" then return s.base end
  for _, mark in pairs(s.marks) do
    if mark.number == tonumber(text) then return mark end
  end
  return nil, stderr:write(("there is no mark %s; :marks lists them\n"):format(text))
end

function M.mark(text, _, kept)
  local s = open(kept, true)
  local ok, mark = pcall(s.mark, s, tonumber(text))
  if not ok then return stderr:write(tostring(mark), "\n") end
  print(mark)
end

function M.back(text, _, kept)
  local s = open(kept)
  local mark = s and find(s, text)
  if not mark then return false end
  local ok, result = pcall(s.back, s, mark)
  return tell(ok, result, kept)
end

function M.at(text, _, kept)
  local s = open(kept)
  if not s then return false end
  local step = tonumber(text)
  if not step then return stderr:write "the step is missing: :at step\n" end
  local ok, result = pcall(s.at, s, step)
  return tell(ok, result, kept)
end

function M.fork(_, _, kept)
  local s = open(kept)
  if not s then return false end
  local ok, result = pcall(s.fork, s)
  return tell(ok, result, kept)
end

function M.marks(_, _, kept) print(open(kept, true)) end

return M
