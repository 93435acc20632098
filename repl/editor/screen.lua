--- The rows of the terminal that show the text: lines are broken at its width, and what has changed
-- since the last time is written.
local cells = require "flare.repl.editor.cells"
local style = require "flare.repl.editor.style"
local terminal = require "flare.repl.terminal"

local Screen = {}
Screen.__index = Screen

function Screen.new()
  local columns, height = terminal.size(1)
  return setmetatable({columns = columns or 80, height = height or 24, rows = {}, widths = {},
                       row = 1, column = 0, top = 1}, Screen)
end

--- Begins on a new row, if what was printed before did not end its line: as many spaces as there
-- are columns go to the next row unless they began in the first column.
function Screen:begin()
  terminal.write((" "):rep(self.columns) .. "\r\27[K")
  self.rows, self.widths, self.row, self.column, self.top = {}, {}, 1, 0, 1
end

-- --- rows ---

-- Collects pieces of text in rows of a number of columns.
local Rows = {}
Rows.__index = Rows

function Rows:new_row()
  self.list[#self.list + 1] = table.concat(self.parts)
  self.widths[#self.widths + 1] = self.used
  self.parts, self.used = {}, 0
end

function Rows:add(text, code)
  local ends, widths = cells.clusters(text)
  if not ends then
    while text ~= "" do
      if self.used >= self.columns then self:new_row() end
      local part = text:sub(1, self.columns - self.used)
      self.parts[#self.parts + 1] = style.paint(part, code)
      self.used = self.used + #part
      text = text:sub(#part + 1)
    end
    return
  end
  local from, run = 1, {}
  for i, stop in ipairs(ends) do
    if self.used + widths[i] > self.columns then
      self.parts[#self.parts + 1] = style.paint(table.concat(run), code)
      run = {}
      self:new_row()
    end
    local cluster = text:sub(from, stop)
    if cluster:find "^[%c\128-\255]" then cluster = cells.shown(cluster) end
    run[#run + 1] = cluster
    self.used = self.used + widths[i]
    from = stop + 1
  end
  self.parts[#self.parts + 1] = style.paint(table.concat(run), code)
end

-- The cursor stands on a character, so behind the last column it is on the next row.
function Rows:set_cursor()
  if self.used >= self.columns then self:new_row() end
  self.cursor_row, self.cursor_column = #self.list + 1, self.used
end

-- The rows for a text with its prompts and the position of the cursor.
function Screen:lay_out(view)
  local rows = setmetatable({list = {}, widths = {}, parts = {}, used = 0,
                             columns = self.columns}, Rows)
  local text, at = view.text, view.at
  local spans = style.spans(text, view.brackets and at or nil)
  local from, k = 1, 1
  local function plain(first, last, code) -- with the cursor somewhere in it
    if not rows.cursor_row and at >= first - 1 and at < last then
      if at >= first then rows:add(text:sub(first, at), code) end
      rows:set_cursor()
      first = at + 1
    end
    if first <= last then rows:add(text:sub(first, last), code) end
  end
  local number = 0
  while true do
    number = number + 1
    local stop = (text:find("\n", from, true) or #text + 1) - 1
    if number == 1 then rows:add(view.prompt, "1") else rows:add(view.more, "90") end
    local position = from
    while spans[k] and spans[k][2] < from do k = k + 1 end
    local j = k
    while spans[j] and spans[j][1] <= stop do
      local first, last = math.max(spans[j][1], from), math.min(spans[j][2], stop)
      if first > position then plain(position, first - 1) end
      plain(first, last, spans[j][3])
      position = last + 1
      j = j + 1
    end
    if position <= stop then plain(position, stop) end
    if not rows.cursor_row and at <= stop then rows:set_cursor() end
    if stop >= #text then break end
    rows:new_row()
    from = stop + 2
  end
  rows:new_row()
  return rows
end

-- --- writing ---

local function moved(out, from, to)
  if to > from then out[#out + 1] = ("\27[%dB"):format(to - from) end
  if to < from then out[#out + 1] = ("\27[%dA"):format(from - to) end
end

-- Only as many rows as fit, those around the cursor.
local function window(self, rows, room)
  local all, cursor = #rows.list, rows.cursor_row
  if all <= room then
    self.top = 1
    return rows.list, rows.widths, cursor
  end
  if cursor < self.top then self.top = cursor end
  if cursor > self.top + room - 1 then self.top = cursor - room + 1 end
  self.top = math.max(1, math.min(self.top, all - room + 1))
  local list = table.move(rows.list, self.top, self.top + room - 1, 1, {})
  local widths = table.move(rows.widths, self.top, self.top + room - 1, 1, {})
  return list, widths, cursor - self.top + 1
end

--- Shows a view: {text, at, prompt, more, below = lines under the text, brackets}, and the cursor
-- unless `last` is written instead.
function Screen:draw(view, last)
  local below = view.below or {}
  local most = math.max(0, self.height - math.min(3, self.height))
  local count = math.min(#below, most)
  local rows = self:lay_out(view)
  local list, widths, cursor_row = window(self, rows, math.max(1, self.height - count))
  for i = 1, count do
    list[#list + 1], widths[#widths + 1] = below[i], self.columns - 1
  end
  local out, at = {"\27[?25l"}, self.row
  for i, row in ipairs(list) do
    if row ~= self.rows[i] then
      if i > #self.rows and i > 1 then -- a row that is not there yet
        moved(out, at, i - 1)
        out[#out + 1] = "\r\n"
      else
        moved(out, at, i)
        out[#out + 1] = "\r"
      end
      out[#out + 1] = "\27[K" .. row
      at = i
      self.rows[i] = row
    end
  end
  if #self.rows > #list then
    moved(out, at, #list + 1)
    out[#out + 1] = "\r\27[J"
    at = #list + 1
    for i = #self.rows, #list + 1, -1 do self.rows[i] = nil end
  end
  moved(out, at, cursor_row)
  out[#out + 1] = "\r"
  if rows.cursor_column > 0 then out[#out + 1] = ("\27[%dC"):format(rows.cursor_column) end
  out[#out + 1] = last or "\27[?25h"
  terminal.write(table.concat(out))
  self.row, self.column, self.widths = cursor_row, rows.cursor_column, widths
end

--- Leaves the text on the screen and goes to the row below it.
function Screen:finish(view)
  view.at, view.below, view.brackets = #view.text, nil, nil
  self:draw(view, "\r\n")
end

--- After the terminal has got another width: it has broken the rows anew, so the first one is as
-- far above the cursor as they are now.
function Screen:resize()
  local columns, height = terminal.size(1)
  columns, height = columns or self.columns, height or self.height
  local above = self.column // columns
  for i = 1, self.row - 1 do
    above = above + math.max(1, (self.widths[i] + columns - 1) // columns)
  end
  terminal.write((above > 0 and ("\27[%dA"):format(above) or "") .. "\r\27[J")
  self.columns, self.height, self.rows, self.row, self.column = columns, height, {}, 1, 0
end

--- An empty screen, for the text to be drawn in its first row.
function Screen:clear()
  terminal.write "\27[H\27[2J"
  self.rows, self.row, self.column = {}, 1, 0
end

return Screen
