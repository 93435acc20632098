--- The list of candidates below the text after Tab, and the description of the one that is chosen.
local cells = require "flare.repl.editor.cells"
local style = require "flare.repl.editor.style"

local Menu = {}
Menu.__index = Menu

--- The longest text that all of them begin with, whole characters.
function Menu.common(list)
  local prefix = list[1]
  for i = 2, #list do
    local other, n = list[i], 0
    while n < #prefix and prefix:byte(n + 1) == other:byte(n + 1) do n = n + 1 end
    prefix = prefix:sub(1, n)
  end
  while not utf8.len(prefix) and prefix ~= "" do prefix = prefix:sub(1, -2) end
  return prefix
end

--- Rows of lines that describe something.
function Menu.notes(lines, columns)
  local out = {}
  for i, line in ipairs(lines) do out[i] = style.paint(cells.cut(line, columns - 1), "90") end
  return out
end

--- @param list the candidates
-- @param from where the word begins that they replace
-- @param word what is there now
-- @param about candidate -> lines that describe it
function Menu.new(list, from, word, about)
  local labels, widest = {}, 0
  for i, text in ipairs(list) do
    local whole = text:find "^%a+:%d+$" -- a device
    labels[i] = not whole and text:match "[^:/?]+[=/ ]*$" or text
    widest = math.max(widest, cells.width(labels[i]))
  end
  return setmetatable({list = list, from = from, word = word, about = about, labels = labels,
                       widest = widest, chosen = 0}, Menu)
end

--- The next candidate, or the one before; what was typed comes after the last one.
function Menu:move(by)
  self.chosen = (self.chosen + by) % (#self.list + 1)
  return self.list[self.chosen] or self.word
end

--- The rows of the list, and below them the lines about what is chosen.
function Menu:rows(columns, height)
  local out = {}
  local per_row = math.max(1, (columns - 1) // (self.widest + 2))
  local all = (#self.list + per_row - 1) // per_row
  local most = math.max(1, math.min(8, height // 3))
  local top = 1
  if self.chosen > 0 then
    local row = (self.chosen - 1) // per_row + 1
    top = math.max(1, math.min(row - most // 2, all - most + 1))
  end
  for row = top, math.min(all, top + most - 1) do
    local parts = {}
    for i = (row - 1) * per_row + 1, math.min(#self.list, row * per_row) do
      local label = cells.cut(self.labels[i], columns - 2)
      local gap = (" "):rep(self.widest + 2 - cells.width(label))
      local chosen = i == self.chosen
      parts[#parts + 1] = (chosen and "\27[7m" .. label .. "\27[0m" or label)
                          .. (i % per_row == 0 and "" or gap)
    end
    out[#out + 1] = table.concat(parts)
  end
  if all > most then
    out[#out + 1] = style.paint(("rows %d to %d of %d"):format(top,
      math.min(all, top + most - 1), all), "90")
  end
  local candidate = self.list[self.chosen] or #self.list == 1 and self.list[1]
  local about = candidate and self.about and self.about(candidate) or {}
  return table.move(Menu.notes(about, columns), 1, #about, #out + 1, out)
end

return Menu
