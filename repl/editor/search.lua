--- Ctrl-R and Ctrl-S: the text of the history that holds what is typed, from the latest back.
local cells = require "flare.repl.editor.cells"
local style = require "flare.repl.editor.style"

local Search = {}
Search.__index = Search

function Search.new(editor)
  local buffer = editor.buffer
  return setmetatable({editor = editor, query = "", index = editor.place, by = -1,
                       text = buffer.text, at = buffer.at, states = {}}, Search)
end

-- Shows the entry at an index or the next one in the direction that holds the query.
function Search:find(index)
  local history = self.editor.history
  self.failed = true
  local seen = self.editor.buffer.text
  while history[index] do
    local position = history[index]:find(self.query, 1, true)
    if position and (index == self.index or history[index] ~= seen) then
      self.index, self.failed = index, false
      self.editor.buffer.text, self.editor.buffer.at = history[index], position - 1
      self.editor.place = index
      return
    end
    index = index + self.by
  end
end

function Search:row(columns)
  local words = self.failed and self.query ~= "" and "not found: "
                or self.by > 0 and "search forward: " or "search: "
  return style.paint(cells.cut(words .. self.query, columns - 1), "90")
end

--- Back to what was there when the search began.
function Search:cancel()
  local editor = self.editor
  editor.buffer.text, editor.buffer.at = self.text, self.at
  editor.place = #editor.history + 1
  editor.search = nil
  editor.recalled = nil
end

--- What a key does to the search; false if it ends the search and has its usual meaning.
function Search:press(name, text)
  if name == "ctrl+r" or name == "ctrl+s" then
    self.by = name == "ctrl+r" and -1 or 1
    if self.query == "" and self.editor.last_query then self.query = self.editor.last_query end
    self:find(self.index + self.by)
  elseif name == "backspace" then
    local state = table.remove(self.states)
    if state then
      self.query, self.index, self.failed = state.query, state.index, state.failed
      self.editor.buffer.text, self.editor.buffer.at = state.text, state.at
    end
  elseif name == "ctrl+g" or name == "ctrl+c" then
    self:cancel()
  elseif text and name ~= "paste" or name == "paste" and not text:find "\n" then
    local buffer = self.editor.buffer
    self.states[#self.states + 1] = {query = self.query, index = self.index, text = buffer.text,
                                     at = buffer.at, failed = self.failed}
    self.query = self.query .. text
    self:find(self.editor.history[self.index] and self.index or #self.editor.history)
  else
    self.editor.last_query = self.query ~= "" and self.query or self.editor.last_query
    self.editor.search = nil
    return name == "escape" -- any other key is pressed in the text that was found
  end
  return true
end

return Search
