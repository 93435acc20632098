-- A terminal in a table: the screen that the bytes of a program make, with colours and the cursor.
-- It knows what xterm and its kin agree on, as far as a prompt may use it.
local Screen = {}
Screen.__index = Screen

function Screen.new(columns, rows)
  local self = setmetatable({columns = columns, rows = rows, row = 1, column = 1, style = {},
                             cells = {}, scrolled = {}, pending = "", modes = {},
                             graphics = {}, asked = {}}, Screen)
  for r = 1, rows do self.cells[r] = {} end
  return self
end

-- Wide characters by the ranges of Unicode's EastAsianWidth.txt (W and F) and its emoji.
local wide = {{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xac00, 0xd7a3},
  {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f1e6, 0x1f1ff},
  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}}
local joining = {{0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x200b, 0x200f}, {0x20d0, 0x20ff},
  {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0x1f3fb, 0x1f3ff}}

local function within(ranges, code)
  for _, range in ipairs(ranges) do
    if code >= range[1] and code <= range[2] then return true end
  end
  return false
end

function Screen:line_feed()
  if self.row < self.rows then
    self.row = self.row + 1
  else
    self.scrolled[#self.scrolled + 1] = table.remove(self.cells, 1)
    self.cells[self.rows] = {}
  end
end

local function put(self, text, width)
  if self.column + width - 1 > self.columns then -- also where the last column was just filled
    self.cells[self.row].wrapped = true
    self.column = 1
    self:line_feed()
  end
  local row = self.cells[self.row]
  for c = #row + 1, self.column - 1 do row[c] = {text = " "} end
  local style = {}
  for key, value in pairs(self.style) do style[key] = value end
  row[self.column] = {text = text, style = style}
  if width == 2 then row[self.column + 1] = {text = "", style = style} end
  self.last = row[self.column]
  self.column = self.column + width
end

local function character(self, text)
  local code = utf8.codepoint(text)
  local last = self.last
  local flag = code >= 0x1f1e6 and code <= 0x1f1ff
  if last and (within(joining, code) or last.joined
               or flag and last.flag and #last.text == 4) then
    last.text = last.text .. text
    last.joined = code == 0x200d
    return
  end
  put(self, text, within(wide, code) and 2 or 1)
  self.last.flag = flag
end

local colours = {"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}

local function select_style(self, numbers)
  local skip = 0
  for i, n in ipairs(#numbers > 0 and numbers or {0}) do
    if skip > 0 then skip = skip - 1
    elseif n == 38 or n == 48 then -- "5;n" of 256 colours, or "2;r;g;b"
      local last = i + (numbers[i + 1] == 5 and 2 or 4)
      self.style[n == 38 and "front" or "behind"] = table.concat(numbers, ";", i + 1, last)
      skip = last - i
    elseif n == 0 then self.style = {}
    elseif n == 1 then self.style.bold = true
    elseif n == 4 then self.style.underline = true
    elseif n == 7 then self.style.reverse = true
    elseif n >= 30 and n <= 37 then self.style.colour = colours[n - 29]
    elseif n == 39 then self.style.colour = nil
    elseif n == 90 then self.style.colour = "grey"
    else error("a style that the emulator does not know: " .. n) end
  end
end

local function erase(row, from, to)
  for c = from, to do
    if row[c] then row[c] = {text = " "} end
  end
end

local function sequence(self, mark, numbers, final)
  local n = numbers[1]
  if mark == "?" then
    self.modes[n] = final == "h"
  elseif final == "A" then self.row = math.max(1, self.row - (n or 1))
  elseif final == "B" then self.row = math.min(self.rows, self.row + (n or 1))
  elseif final == "C" then self.column = math.min(self.columns, self.column + (n or 1))
  elseif final == "D" then self.column = math.max(1, self.column - (n or 1))
  elseif final == "H" then self.row, self.column = n or 1, numbers[2] or 1
  elseif final == "K" then erase(self.cells[self.row], self.column, self.columns)
  elseif final == "J" and n == 2 then
    for r = 1, self.rows do self.cells[r] = {} end
  elseif final == "J" then
    erase(self.cells[self.row], self.column, self.columns)
    for r = self.row + 1, self.rows do self.cells[r] = {} end
  elseif final == "m" then select_style(self, numbers)
  elseif final == "c" then self.asked[#self.asked + 1] = "attributes"
  elseif final == "t" and n == 16 then self.asked[#self.asked + 1] = "cell"
  else error(("a sequence that the emulator does not know: %q"):format(final)) end
end

--- Takes bytes of the program.
function Screen:feed(bytes)
  local text = self.pending .. bytes
  local at = 1
  while at <= #text do
    local letter = text:sub(at, at)
    local size = 1
    if letter == "\27" then
      local kind, data, ends = text:match("^\27([P_])(.-)\27\\()", at)
      local mark, parameters, final, after = text:match("^\27%[(%??)([%d;]*)([%a])()", at)
      if not final and not kind then break end
      if kind then -- sixels, or the protocol of kitty
        self.graphics[#self.graphics + 1] = {kind = kind, data = data}
        after = ends
      else
        local numbers = {}
        for n in parameters:gmatch "%d+" do numbers[#numbers + 1] = tonumber(n) end
        sequence(self, mark, numbers, final)
        if final ~= "m" then self.last = nil end
      end
      size = after - at
    elseif letter == "\r" then self.column, self.last = 1, nil
    elseif letter == "\n" then self:line_feed() self.last = nil
    elseif letter == "\8" then self.column = math.max(1, self.column - 1)
    elseif letter == "\7" then self.bells = (self.bells or 0) + 1
    elseif letter == "\t" then self.column = math.min(self.columns, (self.column + 7) // 8 * 8 + 1)
    else
      local byte = letter:byte()
      size = byte >= 0xf0 and 4 or byte >= 0xe0 and 3 or byte >= 0xc2 and 2 or 1
      if at + size - 1 > #text then break end
      character(self, text:sub(at, at + size - 1))
    end
    at = at + size
  end
  self.pending = text:sub(at)
end

--- The text of a row of the screen, without spaces at its end.
function Screen:line(row)
  local parts = {}
  for c, cell in ipairs(self.cells[row]) do parts[c] = cell.text end
  return (table.concat(parts):gsub(" +$", ""))
end

--- All rows down to the last that is not empty, as a list.
function Screen:lines()
  local list = {}
  for r = 1, self.rows do list[r] = self:line(r) end
  while list[1] and list[#list] == "" do list[#list] = nil end
  return list
end

function Screen:text() return table.concat(self:lines(), "\n") end

--- The style of the first character of a text in the row that shows it last.
function Screen:style_of(text)
  for r = self.rows, 1, -1 do
    local parts, starts = {}, {}
    local at = 1
    for c, cell in ipairs(self.cells[r]) do
      starts[at] = c
      parts[c] = cell.text
      at = at + #cell.text
    end
    local from = table.concat(parts):find(text, 1, true)
    if from then return self.cells[r][starts[from]].style or {} end
  end
end

--- Another size, as a terminal that breaks its lines anew: those above the cursor move, and with
-- them the cursor.
function Screen:resize(columns, rows)
  local all, cursor_row, cursor_column = {}, nil, nil
  for r = 1, self.rows do
    local row = self.cells[r]
    while row[1] and row[#row].text == " " and not (r == self.row and #row < self.column - 1) do
      row[#row] = nil
    end
    local parts = {{}}
    for c, cell in ipairs(row) do
      local part = parts[#parts]
      if #part == columns then
        part = {}
        parts[#parts + 1] = part
      end
      part[#part + 1] = cell
      if r == self.row and c == self.column then
        cursor_row, cursor_column = #all + #parts, #part
      end
    end
    if r == self.row and not cursor_row then
      cursor_row = #all + (self.column - 1) // columns + 1
      cursor_column = (self.column - 1) % columns + 1
    end
    table.move(parts, 1, #parts, #all + 1, all)
  end
  while #all > cursor_row and not all[#all][1] do all[#all] = nil end
  while #all > rows do
    self.scrolled[#self.scrolled + 1] = table.remove(all, 1)
    cursor_row = cursor_row - 1
  end
  for r = #all + 1, rows do all[r] = {} end
  self.cells, self.columns, self.rows = all, columns, rows
  self.row, self.column = cursor_row, cursor_column
end

return Screen
