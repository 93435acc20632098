--- Shows long texts a screen at a time.
local terminal = require "flare.repl.terminal"

local M = {}

local print, require = print or io.write, require
local stdout = io.stdout

local function rows_of(line, columns)
  return math.max(1, math.ceil((utf8.len(line) or #line) / columns))
end

-- What a key says: "page", "line", "rest" or "stop"; nil for others.
local actions = {[" "] = "page", ["\27[6~"] = "page", ["\r"] = "line", ["\27[B"] = "line",
                 G = "rest", ["\27[F"] = "rest", q = "stop", ["\27"] = "stop", ["\3"] = "stop",
                 ["\4"] = "stop"}

-- Waits for a key below what was shown.
local function ask(shown, all)
  if not terminal.raw(true) then return "rest" end
  terminal.write(("\27[7m%d of %d lines: Space, Enter, G, q\27[0m"):format(shown, all))
  local action
  repeat
    local bytes, event = terminal.keys()
    action = bytes and (actions[bytes] or actions[bytes:sub(1, 1)])
             or (event == "end" or event == "interrupt") and "stop"
  until action
  terminal.write "\r\27[K"
  terminal.raw(false)
  return action
end

--- Prints a text; where it is longer than the terminal, it waits for keys between its screens.
function M.print(text)
  local columns, rows = terminal.size(1)
  if not columns or not require("flare.repl.editor").usable() then return print(text) end
  local lines, needed = {}, 0
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    lines[#lines + 1] = line
    needed = needed + rows_of(line, columns)
  end
  if needed < rows then return print(text) end
  local at, room = 1, rows - 1
  while lines[at] do
    repeat
      stdout:write(lines[at], "\n")
      room = room - rows_of(lines[at], columns)
      at = at + 1
    until not lines[at] or room < rows_of(lines[at], columns)
    if not lines[at] then break end
    local action = ask(at - 1, #lines)
    if action == "stop" then return end
    room = action == "line" and 1 or action == "rest" and math.huge or rows - 1
  end
end

return M
