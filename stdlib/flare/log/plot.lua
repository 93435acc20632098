--- Curves in the terminal, drawn with braille characters: 2 x 4 points in each.
local options = require "flare.options"
local ticks = require "flare.log.ticks"

-- Bits of the points of a braille character, by row and column (Unicode U+2800).
local BITS = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

local function canvas(width, height)
  local rows = {}
  for r = 1, height do
    rows[r] = {}
    for c = 1, width do rows[r][c] = 0 end
  end
  return rows
end

local function set(rows, x, y)
  local r, c = y // 4 + 1, x // 2 + 1
  local row = rows[r]
  if row and row[c] then row[c] = row[c] | BITS[y % 4 + 1][x % 2 + 1] end
end

-- A straight line of points, both ends included.
local function line(rows, xa, ya, xb, yb)
  local n = math.max(math.abs(xb - xa), math.abs(yb - ya), 1)
  for k = 0, n do
    set(rows, math.floor(xa + (xb - xa) * k / n + 0.5), math.floor(ya + (yb - ya) * k / n + 0.5))
  end
end

--- flare.log.plot(series, {width = 64, height = 12, title = ""})
-- @param series as for flare.log.svg
-- @return the text of several lines
return function(series, opts)
  local o = options.check("log.plot", opts, {width = 64, height = 12, title = ""})
  series = ticks.series(series)
  local x0, x1, y0, y1 = ticks.bounds(series)
  local w, h = math.max(o.width, 8), math.max(o.height, 2)
  local rows = canvas(w, h)
  for _, s in ipairs(series) do
    local px, py
    for i, y in ipairs(s.y) do
      if y == y and math.abs(y) ~= math.huge then
        local cx = math.floor((s.x[i] - x0) / (x1 - x0) * (w * 2 - 1) + 0.5)
        local cy = math.floor((y1 - y) / (y1 - y0) * (h * 4 - 1) + 0.5)
        line(rows, px or cx, py or cy, cx, cy)
        px, py = cx, cy
      else
        px, py = nil, nil
      end
    end
  end
  local labels, widest = {}, 0
  for r = 1, h do
    -- the value at the upper edge of the row; first, last and every fourth are shown
    if r == 1 or r == h or (r - 1) % 4 == 0 then
      local value = r == h and y0 or y1 - (y1 - y0) * (r - 1) / h
      labels[r] = ("%.4g"):format(value)
      widest = math.max(widest, #labels[r])
    end
  end
  local out = {}
  if o.title ~= "" then out[1] = (" "):rep(widest + 2) .. o.title end
  for r = 1, h do
    local cells = {}
    for c = 1, w do cells[c] = rows[r][c] == 0 and " " or utf8.char(0x2800 + rows[r][c]) end
    local label = labels[r] or ""
    local text = (" "):rep(widest - #label) .. label .. (labels[r] and " ┤" or " │")
                 .. table.concat(cells)
    out[#out + 1] = (text:gsub("%s+$", ""))
  end
  local left, right = ticks.label(x0), ticks.label(x1)
  out[#out + 1] = (" "):rep(widest + 1) .. "└" .. ("─"):rep(w)
  local gap = (" "):rep(math.max(w - #left - #right, 1))
  out[#out + 1] = (" "):rep(widest + 2) .. left .. gap .. right
  return table.concat(out, "\n")
end
