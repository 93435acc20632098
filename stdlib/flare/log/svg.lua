--- Curves as a self-contained SVG file.
local core = require "flare.core"
local escape = require "flare.escape"
local options = require "flare.options"
local ticks = require "flare.log.ticks"

local colours = {"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2"}
local LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 40

-- A path through the points; NaN interrupts it. Where there are more points than pixels, it has the
-- minimum and maximum of each pixel column.
local function path(s, px, py)
  local parts, pen = {}, false
  local column, low, high, last
  local function flush()
    if column then
      for _, y in ipairs(low == high and {low} or {low, high, last}) do
        parts[#parts + 1] = core.format("%s%.1f %.1f", pen and "L" or "M", column, y)
        pen = true
      end
    end
    column = nil
  end
  for i, y in ipairs(s.y) do
    if y == y and math.abs(y) ~= math.huge then
      local x, at = px(s.x[i]), py(y)
      local here = math.floor(x * 2 + 0.5) / 2
      if here ~= column then
        flush()
        column, low, high = here, at, at
      end
      low, high, last = math.min(low, at), math.max(high, at), at
    else
      flush()
      pen = false
    end
  end
  flush()
  return table.concat(parts)
end

--- flare.log.svg(series, {title = "", xlabel = "step", ylabel = "", width = 640,
--   height = 360, path = file to write})
-- @param series a list of numbers, a table {name = list}, or a list of
--   {name = "loss", x = {...}, y = {...}}
-- @return the SVG's text; with `path` true, or nil and a message
return function(series, opts)
  local o = options.check("log.svg", opts, {title = "", xlabel = "step", ylabel = "",
                                            width = 640, height = 360, path = options.none})
  series = ticks.series(series)
  local x0, x1, y0, y1 = ticks.bounds(series)
  local margin = (y1 - y0) * 0.04
  y0, y1 = y0 - margin, y1 + margin
  local w, h = o.width - LEFT - RIGHT, o.height - TOP - BOTTOM
  local function px(x) return LEFT + (x - x0) / (x1 - x0) * w end
  local function py(y) return TOP + (y1 - y) / (y1 - y0) * h end
  local out = {}
  local function put(format, ...) out[#out + 1] = core.format(format, ...) end
  put('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
      .. 'font-family="sans-serif" font-size="11">', o.width, o.height, o.width, o.height)
  put('<rect width="%d" height="%d" fill="#ffffff"/>', o.width, o.height)
  for _, y in ipairs(ticks.linear(y0, y1, 6)) do
    put('<path d="M%d %.1fH%d" stroke="#e5e7eb"/>', LEFT, py(y), LEFT + w)
    put('<text x="%d" y="%.1f" text-anchor="end" fill="#4b5563">%s</text>', LEFT - 6, py(y) + 4,
        ticks.label(y))
  end
  for _, x in ipairs(ticks.linear(x0, x1, 8)) do
    put('<path d="M%.1f %dv4" stroke="#9ca3af"/>', px(x), TOP + h)
    put('<text x="%.1f" y="%d" text-anchor="middle" fill="#4b5563">%s</text>', px(x), TOP + h + 17,
        ticks.label(x))
  end
  put('<path d="M%d %dV%dH%d" fill="none" stroke="#9ca3af"/>', LEFT, TOP, TOP + h, LEFT + w)
  for i, s in ipairs(series) do
    local colour = colours[(i - 1) % #colours + 1]
    put('<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"/>',
        path(s, px, py), colour)
    if s.name ~= "" then
      put('<path d="M%d %dh16" stroke="%s" stroke-width="3"/>', LEFT + w - 110, TOP + 8 + 15 * i,
          colour)
      put('<text x="%d" y="%d" fill="#111827">%s</text>', LEFT + w - 88, TOP + 12 + 15 * i,
          escape(s.name))
    end
  end
  put('<text x="%d" y="20" font-size="14" fill="#111827">%s</text>', LEFT, escape(o.title))
  put('<text x="%.1f" y="%d" text-anchor="middle" fill="#4b5563">%s</text>', LEFT + w / 2,
      o.height - 6, escape(o.xlabel))
  put('<text x="14" y="%.1f" text-anchor="middle" fill="#4b5563" transform="rotate(-90 14 %.1f)">'
      .. '%s</text>', TOP + h / 2, TOP + h / 2, escape(o.ylabel))
  out[#out + 1] = "</svg>\n"
  local text = table.concat(out, "\n")
  if not o.path then return text end
  return core.file.write_atomic(o.path, text)
end
