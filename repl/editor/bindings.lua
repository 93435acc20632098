--- What the keys do: those of Emacs, and of readline where Emacs has none.
local Menu = require "flare.repl.editor.menu"
local Search = require "flare.repl.editor.search"
local indent = require "flare.repl.editor.indent"
local terminal = require "flare.repl.terminal"

local M = {}

local keys = {} -- name = function(editor, buffer) -> outcome, if reading ends

-- --- history ---

-- The entry of the history that is `by` away and begins as the text before the cursor did when
-- the way through the history began.
local function recall(editor, by)
  local buffer, history = editor.buffer, editor.history
  if editor.recalled ~= buffer.text then
    editor.draft = buffer.text
    editor.prefix = buffer.text:sub(1, buffer.at)
    if editor.prefix:find "\n" then editor.prefix = "" end
    editor.place = #history + 1
  end
  local place = editor.place + by
  while history[place] and (history[place]:sub(1, #editor.prefix) ~= editor.prefix
                            or history[place] == buffer.text) do
    place = place + by
  end
  if place < 1 or place > #history + 1 then return end
  editor.place = place
  local text = history[place] or editor.draft
  buffer:set(text)
  editor.recalled = text
end

function keys.up(editor, buffer)
  if not buffer:vertical(-1) then recall(editor, -1) end
end

function keys.down(editor, buffer)
  if not buffer:vertical(1) then recall(editor, 1) end
end

keys["ctrl+p"], keys["ctrl+n"] = keys.up, keys.down
keys["alt+p"] = function(editor) recall(editor, -1) end
keys["alt+n"] = function(editor) recall(editor, 1) end
keys.page_up, keys.page_down = keys["alt+p"], keys["alt+n"]

local function search(by)
  return function(editor)
    editor.search = Search.new(editor)
    editor.search.by = by
  end
end

keys["ctrl+r"], keys["ctrl+s"] = search(-1), search(1)

-- --- moving ---

keys.left = function(_, buffer) buffer:left() end
keys.right = function(_, buffer) buffer:right() end
keys.home = function(_, buffer) buffer:home() end
keys["end"] = function(_, buffer) buffer:finish() end
keys["alt+b"] = function(_, buffer) buffer.at = buffer:word_left() end
keys["alt+f"] = function(_, buffer) buffer.at = buffer:word_right() end
keys["alt+<"] = function(_, buffer) buffer.at = 0 end
keys["alt+>"] = function(_, buffer) buffer.at = #buffer.text end
keys["ctrl+b"], keys["ctrl+f"] = keys.left, keys.right
keys["ctrl+a"], keys["ctrl+e"] = keys.home, keys["end"]
keys["ctrl+left"], keys["ctrl+right"] = keys["alt+b"], keys["alt+f"]
keys["alt+left"], keys["alt+right"] = keys["alt+b"], keys["alt+f"]
keys["ctrl+home"], keys["ctrl+end"] = keys["alt+<"], keys["alt+>"]

-- --- changing ---

keys.backspace = function(_, buffer) buffer:delete_left() end
keys.delete = function(_, buffer) buffer:delete_right() end
keys["ctrl+k"] = function(_, buffer)
  local _, to = buffer:line_bounds()
  if to == buffer.at then to = math.min(#buffer.text, to + 1) end -- the end of the line itself
  buffer:cut(buffer.at, to)
end
keys["ctrl+u"] = function(_, buffer) buffer:cut((buffer:line_bounds()), buffer.at) end
keys["ctrl+w"] = function(_, buffer)
  local line, at = buffer:line()
  local word = line:sub(1, at):match "%S+%s*$" or line:sub(1, at)
  buffer:cut(buffer.at - #word, buffer.at)
end
keys["alt+backspace"] = function(_, buffer) buffer:cut(buffer:word_left(), buffer.at) end
keys["alt+d"] = function(_, buffer) buffer:cut(buffer.at, buffer:word_right()) end
keys["ctrl+backspace"], keys["ctrl+delete"] = keys["alt+backspace"], keys["alt+d"]
keys["alt+delete"] = keys["alt+d"]
keys["ctrl+y"] = function(_, buffer) buffer:yank() end
keys["alt+y"] = function(_, buffer) buffer:yank_older() end
keys["ctrl+t"] = function(_, buffer) buffer:transpose() end
keys["alt+u"] = function(_, buffer) buffer:change_case "upper" end
keys["alt+l"] = function(_, buffer) buffer:change_case "lower" end
keys["alt+c"] = function(_, buffer) buffer:change_case "capital" end
keys["ctrl+_"] = function(_, buffer) buffer:undo() end
keys["ctrl+z"] = function(editor) M.suspend(editor) end
keys["alt+_"] = function(_, buffer) buffer:redo() end
keys["alt+/"] = keys["alt+_"]

-- --- ending ---

keys["ctrl+c"] = function() return "drop" end
keys["ctrl+d"] = function(_, buffer)
  if buffer.text == "" then return "end" end
  buffer:delete_right()
end

--- Stops the program until the shell continues it.
function M.suspend(editor)
  local view = editor:view()
  editor.screen:finish(view)
  terminal.suspend()
  editor.screen:begin()
end

keys["ctrl+l"] = function(editor) editor.screen:clear() end

local function new_line(editor, buffer, indented)
  local before = buffer.text:sub(1, buffer.at)
  local space = indented and indent.after(before) or ""
  local behind = buffer.text:match("^[ \t]*", buffer.at + 1)
  if indented and #behind > 0 then -- the rest of the line gets its place by the new indentation
    buffer:replace(buffer.at, buffer.at + #behind, "\n" .. space)
  else
    buffer:insert("\n" .. space)
  end
end

keys["alt+enter"] = function(editor, buffer) new_line(editor, buffer, true) end

function keys.enter(editor, buffer)
  local row, rows = buffer:row()
  local pasting = editor.pending ~= "" -- without marks around it, or typed ahead
  local whole = editor.options.whole(buffer.text)
  if whole and (rows == 1 or row == rows) then
    local next_line = editor.pending:match "^([^\r\n]*)[\r\n]"
    local goes_on = next_line and next_line:find "^[ \t:.]"
                    and editor.options.goes_on(buffer.text, next_line)
    if not goes_on then return "done" end
    buffer:insert "\n"
  else
    new_line(editor, buffer, not pasting)
  end
end

-- --- completion ---

local function open_menu(editor, buffer)
  local from, list, about, said = editor.options.complete(buffer.text, buffer.at)
  if list and #list == 0 and said then
    editor.notes = Menu.notes(said, editor.screen.columns)
    return
  elseif not list or #list == 0 then
    local line, at = buffer:line()
    if line:sub(1, at):find "^%s*$" then buffer:insert "  " end
    return
  end
  local word = buffer.text:sub(from + 1, buffer.at)
  if #list == 1 then
    if word ~= list[1] then buffer:replace(from, buffer.at, list[1]) end
    editor.notes = Menu.new(list, from, word, about)
      :rows(editor.screen.columns, editor.screen.height)
    table.remove(editor.notes, 1) -- the list itself
    return
  end
  local common = Menu.common(list)
  if #common > #word then
    buffer:replace(from, buffer.at, common)
    word = common
  end
  editor.menu = Menu.new(list, from, word, about)
end

local function cycle(by)
  return function(editor, buffer)
    local menu = editor.menu
    if not menu then return open_menu(editor, buffer) end
    buffer:replace(menu.from, buffer.at, menu:move(by), "complete")
  end
end

keys.tab, keys["shift+tab"] = cycle(1), cycle(-1)

-- --- letters ---

local function insert(_, buffer, text)
  buffer:insert(text, text:find "%s" and "space" or "type")
  local space, old, word = indent.closing(buffer.text:sub(1, buffer.at))
  if space and space ~= old then
    buffer:replace(buffer.at - #word - #old, buffer.at, space .. word)
  end
end

-- The lines of a prompt that were copied with it lose it, and the last newline waits for Enter.
local function paste(_, buffer, text)
  if text:find "^f?> " then
    text = ("\n" .. text):gsub("\nf?>>? ", "\n"):sub(2)
  end
  buffer:mark()
  buffer:insert((text:gsub("\n+$", "")))
end

local menu_keys = {tab = true, ["shift+tab"] = true}

--- Does what a key stands for; what it returns ends the reading.
function M.press(editor, name, text)
  local buffer = editor.buffer
  editor.notes = nil
  if editor.search and editor.search:press(name, text) then return nil end
  if editor.menu then
    local moves = name == "down" and "tab" or name == "up" and "shift+tab"
    if moves and editor.menu.chosen > 0 then name = moves end
    if name == "escape" or name == "ctrl+g" then
      buffer:replace(editor.menu.from, buffer.at, editor.menu.word)
      editor.menu = nil
      return nil
    elseif name == "enter" and editor.menu.chosen > 0 then
      editor.menu = nil
      return nil
    elseif not menu_keys[name] then
      editor.menu = nil
    end
  end
  if name == "tab" and editor.pending ~= "" then return buffer:insert "\t" end -- of a paste
  if name == "paste" then return paste(editor, buffer, text) end
  if keys[name] then return keys[name](editor, buffer) end
  if text and text >= " " then
    if editor.pending ~= "" then buffer:insert(text, "type")
    else insert(editor, buffer, text) end
  end
end


return M
