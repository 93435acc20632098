--- The text that is being edited: a string, the position of the cursor, what was cut, and the
-- states to go back to.
local cells = require "flare.repl.editor.cells"

local Buffer = {}
Buffer.__index = Buffer

local most = 500 -- states that undo keeps

function Buffer.new(text)
  return setmetatable({text = text or "", at = #(text or ""), states = {}, undone = {}, cuts = {}},
                      Buffer)
end

--- Remembers the state before a change. Changes of one kind in a row, such as letters that are
-- typed, are taken back together.
function Buffer:mark(kind)
  if kind and kind == self.kind and self.kind_at == self.at then return end
  local last = self.states[#self.states]
  if not last or last.text ~= self.text then
    self.states[#self.states + 1] = {text = self.text, at = self.at}
    if #self.states > most then table.remove(self.states, 1) end
  end
  self.undone = {}
end

function Buffer:done(kind)
  self.kind, self.kind_at = kind, self.at
end

local function restore(self, from, to)
  local state = table.remove(from)
  while state and state.text == self.text do state = table.remove(from) end
  if not state then return false end
  to[#to + 1] = {text = self.text, at = self.at}
  self.text, self.at, self.kind = state.text, state.at, nil
  return true
end

function Buffer:undo() return restore(self, self.states, self.undone) end
function Buffer:redo() return restore(self, self.undone, self.states) end

--- Another text in place of this one, which undo brings back.
function Buffer:set(text, at)
  self:mark()
  self.text, self.at = text, at or #text
  self:done()
end

--- Replaces the bytes from + 1 .. to by a text; the cursor is behind it.
function Buffer:replace(from, to, text, kind)
  self:mark(kind)
  self.text = self.text:sub(1, from) .. text .. self.text:sub(to + 1)
  self.at = from + #text
  self:done(kind)
end

function Buffer:insert(text, kind) self:replace(self.at, self.at, text, kind) end

-- --- lines ---

--- The bounds of the line that a position is in: the position before its first byte, and its last.
function Buffer:line_bounds(at)
  at = at or self.at
  local from = 0
  local before = self.text:sub(1, at):match ".*()\n"
  if before then from = before end
  local to = (self.text:find("\n", at + 1, true) or #self.text + 1) - 1
  return from, to
end

function Buffer:line()
  local from, to = self:line_bounds()
  return self.text:sub(from + 1, to), self.at - from
end

--- The number of the line that the cursor is in, from 1, and of all lines.
function Buffer:row()
  local _, before = self.text:sub(1, self.at):gsub("\n", "")
  local _, all = self.text:gsub("\n", "")
  return before + 1, all + 1
end

-- --- moving ---

function Buffer:left()
  local line, at = self:line()
  if at == 0 then
    self.at = math.max(0, self.at - 1)
  else
    self.at = self.at - at + cells.step(line, at, -1)
  end
end

function Buffer:right()
  local line, at = self:line()
  if at == #line then
    self.at = math.min(#self.text, self.at + 1)
  else
    self.at = self.at - at + cells.step(line, at, 1)
  end
end

function Buffer:home() self.at = (self:line_bounds()) end
function Buffer:finish() self.at = select(2, self:line_bounds()) end

--- To the line above or below, to the column where the way began; false if there is none.
function Buffer:vertical(by)
  local from, to = self:line_bounds()
  if by < 0 and from == 0 or by > 0 and to == #self.text then return false end
  local line, at = self:line()
  local column = self.column_at == self.at and self.column or cells.column(line, at)
  local target = by < 0 and from - 1 or to + 1
  local first, last = self:line_bounds(target)
  self.at = first + cells.position(self.text:sub(first + 1, last), column)
  self.column, self.column_at = column, self.at
  return true
end

-- The positions of the words before and behind the cursor.
function Buffer:word_left()
  local before = self.text:sub(1, self.at)
  return (before:match "^(.-)[%w_\128-\255]+[^%w_\128-\255]*$" or ""):len()
end

function Buffer:word_right()
  local _, stop = self.text:find("[^%w_\128-\255]*[%w_\128-\255]+", self.at + 1)
  return stop or #self.text
end

-- --- cutting ---

--- Cuts the bytes from + 1 .. to. What is cut in a row is one piece.
function Buffer:cut(from, to)
  if from >= to then return end
  local text = self.text:sub(from + 1, to)
  if self.kind == "cut" and self.kind_at == self.at and self.cuts[1] then
    self.cuts[#self.cuts] = to <= self.at and text .. self.cuts[#self.cuts]
                            or self.cuts[#self.cuts] .. text
  else
    self.cuts[#self.cuts + 1] = text
    if #self.cuts > 60 then table.remove(self.cuts, 1) end
  end
  self:replace(from, to, "")
  self:done "cut"
end

--- Inserts what was cut last.
function Buffer:yank()
  local text = self.cuts[#self.cuts]
  if not text then return end
  local from = self.at
  self:insert(text)
  self:done "yank"
  self.yanked = {from = from, index = #self.cuts}
end

--- After a yank: the piece that was cut before it takes its place.
function Buffer:yank_older()
  if self.kind ~= "yank" or self.kind_at ~= self.at then return end
  local yanked = self.yanked
  yanked.index = (yanked.index - 2) % #self.cuts + 1
  self:replace(yanked.from, self.at, self.cuts[yanked.index])
  self:done "yank"
end

function Buffer:delete_left()
  local line, at = self:line()
  local before = line:sub(1, at)
  if at > 0 and before:find "^ +$" and at % 2 == 0 then -- a step of the indentation
    self:replace(self.at - 2, self.at, "", "delete")
  elseif self.at > 0 then
    local to = self.at
    self:left()
    local from = self.at
    self.at = to
    self:replace(from, to, "", "delete")
  end
end

function Buffer:delete_right()
  local from = self.at
  self:right()
  local to = self.at
  self.at = from
  if to > from then self:replace(from, to, "", "delete") end
end

--- Exchanges the characters around the cursor.
function Buffer:transpose()
  local from, to = self:line_bounds()
  local line = self.text:sub(from + 1, to)
  local at = self.at - from
  if at == #line then at = cells.step(line, at, -1) end
  if at <= 0 then return end
  local before, behind = cells.step(line, at, -1), cells.step(line, at, 1)
  local changed = line:sub(at + 1, behind) .. line:sub(before + 1, at)
  self:replace(from + before, from + behind, changed)
end

--- The word behind the cursor in upper or lower case, or with a capital.
function Buffer:change_case(how)
  local stop = self:word_right()
  local text = self.text:sub(self.at + 1, stop)
  if how == "upper" then text = text:upper()
  elseif how == "lower" then text = text:lower()
  else text = text:lower():gsub("%a", string.upper, 1) end
  self:replace(self.at, stop, text)
end

return Buffer
