--- Tensors as pictures in the terminal: curves, histograms, heat maps and images. Where the
-- terminal shows no pixels (graphics.lua), a half block shows two points above each other; without
-- colours the points are letters.
local core = require "flare.core"
local pixels = require "flare.plot.pixels"
local style = require "flare.repl.editor.style"

local M = {}

--- Curves: a vector is one, the rows of a matrix are several.
function M.plot(x, room)
  local series, problem = require "flare.plot".series(x)
  if not series then return nil, problem end
  return require "flare.log.plot"(series, {width = math.max(20, math.min(room.columns - 16, 100))})
end

local eighths = {"\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}",
                 "\u{2589}"}

--- How many elements are in each of up to 20 ranges.
function M.hist(x, room)
  local found, problem = require "flare.plot.counts"(x)
  if not found then return nil, problem end
  local counts, low, high = found.counts, found.low, found.high
  local most, lines, longest = math.max(table.unpack(counts)), {}, math.max(10, room.columns - 24)
  for i, count in ipairs(counts) do
    local edge = low + (high - low) / #counts * (i - 1)
    local parts = math.floor(count / most * longest * 8)
    local bar = ("\u{2588}"):rep(parts // 8) .. (eighths[parts % 8] or "")
    lines[i] = ("%10s %s %d"):format(core.format("%.4g", edge), bar, count)
  end
  lines[#lines + 1] = ("%10s"):format(core.format("%.4g", high))
  if found.rest == 1 then lines[#lines + 1] = "1 element is not finite" end
  if found.rest > 1 then lines[#lines + 1] = ("%d elements are not finite"):format(found.rest) end
  return table.concat(lines, "\n")
end

-- --- points ---

local function true_colours()
  local name = os.getenv "COLORTERM"
  return name == "truecolor" or name == "24bit"
end

-- The code of a colour in front ("38") or behind ("48").
local function code(place, r, g, b)
  if true_colours() then return ("%s;2;%d;%d;%d"):format(place, r, g, b) end
  if math.max(r, g, b) - math.min(r, g, b) < 12 then -- one of 24 greys
    return ("%s;5;%d"):format(place, 232 + math.min(23, r * 24 // 256))
  end
  local function level(v) return (v * 5 + 127) // 255 end
  return ("%s;5;%d"):format(place, 16 + 36 * level(r) + 6 * level(g) + level(b))
end

local ramp = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"}

-- Rows of {r, g, b}, from 0 to 255, as text.
local function points(rows)
  local lines = {}
  if not style.wanted() then
    for y = 1, #rows, 2 do
      local parts = {}
      for x, p in ipairs(rows[y]) do
        parts[x] = ramp[(p[1] * 3 + p[2] * 6 + p[3]) // 10 * 10 // 256 + 1]
      end
      lines[#lines + 1] = (table.concat(parts):gsub(" +$", ""))
    end
    return table.concat(lines, "\n")
  end
  for y = 1, #rows, 2 do
    local parts, last = {}, nil
    for x, top in ipairs(rows[y]) do
      local bottom = rows[y + 1] and rows[y + 1][x]
      local colours = code("38", top[1], top[2], top[3])
                      .. (bottom and ";" .. code("48", bottom[1], bottom[2], bottom[3]) or "")
      parts[#parts + 1] = (colours ~= last and "\27[" .. colours .. "m" or "") .. "\u{2580}"
      last = colours
    end
    lines[#lines + 1] = table.concat(parts) .. "\27[0m"
  end
  return table.concat(lines, "\n")
end

-- Rows and columns of the picture of a tensor with so many: in pixels of the terminal, where small
-- ones are made larger, or in half blocks.
-- @param room {columns =, rows = of the terminal, pixels = whether it may be asked what it shows}
-- @param other rows of the terminal that the picture leaves
local function fit(rows, columns, room, other)
  local protocol, wide, tall
  if room.pixels then protocol, wide, tall = require("flare.repl.graphics").protocol() end
  local most_wide = (room.columns - 1) * (protocol and wide or 1)
  local most_tall = math.max(2, (room.rows - other) * (protocol and tall or 2))
  local by = math.min(most_wide / columns, most_tall / rows)
  if by > 1 then
    local wanted = protocol and math.ceil(256 / math.max(rows, columns)) or 1
    by = math.max(1, math.min(by // 1, wanted))
  end
  local function size(n) return math.max(1, math.floor(n * by)) end
  return size(rows), size(columns), protocol
end

local function shown(x, protocol)
  if protocol then return require("flare.repl.graphics").text(protocol, x) end
  return points(x:totable())
end

--- A matrix by colours, with the values of the darkest and the lightest.
-- @param room see fit
function M.heat(x, room)
  local problem = pixels.problem(x, 1, 2)
  if problem then return nil, problem end
  local tall, wide, protocol = fit(x.ndim == 1 and 1 or x:size(1), x:size(-1), room, 3)
  local colours, low, high = pixels.heat(x, pixels.taker(tall, wide), not style.wanted())
  local legend = low and ("%s (dark) to %s (light)"):format(core.format("%.4g", low),
                                                           core.format("%.4g", high))
                 or "no element is finite"
  return shown(colours, protocol) .. "\n" .. legend
end

--- An image: see flare.plot.pixels.
function M.image(x, room)
  local problem = pixels.problem(x, 2, 3)
  if problem then return nil, problem end
  local shape = x.shape
  local last = x.ndim == 3 and shape[1] ~= 1 and shape[1] ~= 3
  local high, wide = shape[last and 1 or x.ndim - 1], shape[last and 2 or x.ndim]
  local tall, across, protocol = fit(high, wide, room, 2)
  local colours
  colours, problem = pixels.image(x, pixels.taker(tall, across))
  if not colours then return nil, problem end
  return shown(colours, protocol)
end

return M
