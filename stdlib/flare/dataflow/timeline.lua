--- A simulation as SVG: a row of bars for each stream, and the memory of each place over time.
local svg = require "flare.dataflow.svg"
local units = require "flare.explain.units"

local WIDTH, MARGIN, LEFT = 1120, 20, 130
local ROW, GAP = 18, 4
local HEIGHT = 70   -- of a chart of memory
local LEAST = 0.4   -- pixels: shorter bars that touch become one
local MOST = 64     -- rows

local colours = {F = "#4878cf", B = "#e8871e", W = "#2a9d8f", U = "#8e5bb5", L = "#6f9bd1",
  S = "#c9a227", G = "#b5651d", A = "#c0392b"}

local function colour_of(t)
  if t.again then return "#9bb7e0" end
  return colours[t.name:sub(1, 1):upper()] or "#8d99a6"
end

-- The bars of a stream: tasks, with those too short to see joined.
local function bars_of(stream, scale)
  local bars = {}
  for _, t in ipairs(stream.list) do
    local last = bars[#bars]
    local short = (t.stop - t.start) * scale < LEAST
    if short and last and last.short and (t.start - last.stop) * scale < LEAST then
      last.stop, last.count = t.stop, last.count + 1
    else
      bars[#bars + 1] = {start = t.start, stop = t.stop, short = short, count = 1, task = t}
    end
  end
  return bars
end

local function tooltip(bar)
  local t = bar.task
  local time = units.time((bar.stop - bar.start) * 1e6)
  if bar.count > 1 then
    return svg.title(("%d tasks from %s, %s"):format(bar.count, t.name, time))
  end
  return svg.title(("%s: %s from %s%s%s%s"):format(t.name, time, units.time(t.start * 1e6),
    t.flops > 0 and ", " .. units.flops(t.flops) .. " FLOP" or "",
    t.transfer and ", " .. units.bytes(t.transfer) or "",
    t.bound and ", bound by " .. t.bound or ""))
end

local function add_rows(out, s, y, scale)
  for k, stream in ipairs(s.streams) do
    if k > MOST then
      out[#out + 1] = svg.text(MARGIN, y + 13, ("%d streams more"):format(#s.streams - MOST))
      return y + ROW
    end
    out[#out + 1] = svg.text(LEFT - 8, y + 13, ("%d %s"):format(stream.device, stream.name),
      'text-anchor="end"')
    out[#out + 1] = svg.rect(LEFT, y, WIDTH - MARGIN - LEFT, ROW, "#f4f5f7")
    for _, bar in ipairs(bars_of(stream, scale)) do
      out[#out + 1] = svg.rect(LEFT + bar.start * scale, y + 1,
        math.max((bar.stop - bar.start) * scale, 0.2), ROW - 2, colour_of(bar.task), tooltip(bar))
    end
    local after = s.streams[k + 1]
    y = y + ROW + (after and after.device ~= stream.device and GAP or 1)
  end
  return y
end

local function add_memory(out, s, place, y, scale)
  local most = math.max(place.peak, 1)
  local bottom, height = y + 16 + HEIGHT, HEIGHT / most
  out[#out + 1] = svg.text(MARGIN, y + 11, ("%s: peak %s%s, %s"):format(place.name,
    units.bytes(place.peak), place.cap < math.huge and " of " .. units.bytes(place.cap) or "",
    place.held[1] and "largest " .. place.held[1].name or ""), 'fill="#555"')
  local points = {("M%.1f %.1f"):format(LEFT, bottom)}
  for _, step in ipairs(s.memory[place.name]) do
    points[#points + 1] = ("H%.2fV%.1f"):format(LEFT + step[1] * scale, bottom - step[2] * height)
  end
  out[#out + 1] = ('<path d="%sH%.1fV%.1fZ" fill="#6f9bd1"/>'):format(table.concat(points),
    LEFT + s.time * scale, bottom)
  return bottom + 10
end

return function(s)
  local out = {}
  local scale = (WIDTH - MARGIN - LEFT) / math.max(s.time, 1e-12)
  out[1] = svg.text(MARGIN, MARGIN + 12, ("%s on %s: %s, idle %.1f %%, of the peak %.1f %%"):format(
    s.name, s.machine, units.time(s.time * 1e6), 100 * s.bubble, 100 * s.utilisation),
    'font-size="16" font-weight="bold"')
  local y = add_rows(out, s, MARGIN + 26, scale)
  for k = 0, 5 do
    local time = k / 5 * s.time
    out[#out + 1] = svg.text(LEFT + time * scale, y + 14, units.time(time * 1e6),
      'text-anchor="middle" fill="#555"')
  end
  y = y + 24
  for k, place in ipairs(s.places) do
    if k <= MOST then y = add_memory(out, s, place, y, scale) end
  end
  return svg.page(WIDTH, y + MARGIN, out)
end
