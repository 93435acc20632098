--- A roofline (Williams, Waterman and Patterson, 2009) as SVG: both axes are logarithmic, the area
-- of a point is the operator's share of the time.
local svg = require "flare.dataflow.svg"
local units = require "flare.explain.units"

local WIDTH, HEIGHT, MARGIN, LEFT, BOTTOM = 900, 560, 20, 80, 60
local MOST = 60 -- points

local colours = {compute = "#4878cf", memory = "#e8871e", latency = "#8d99a6", link = "#8e5bb5"}

local function log10(x) return math.log(x, 10) end

-- Whole powers of ten around values.
local function range(low, high)
  local first, last = math.floor(log10(low)), math.ceil(log10(high))
  return first, math.max(last, first + 1)
end

-- Points: sums that have FLOPs and bytes.
local function points_of(replay)
  local list = {}
  for _, s in ipairs(replay:sums()) do
    if s.flops > 0 and s.bytes > 0 and s.time > 0 and #list < MOST then
      list[#list + 1] = {x = s.flops / s.bytes, y = s.flops / s.time, sum = s}
    end
  end
  return list
end

local function limits(points, roofs)
  local low_x, high_x, low_y, high_y = 0.1, 100, math.huge, 0
  for _, peak in pairs(roofs.peaks) do
    high_x, high_y = math.max(high_x, peak / roofs.memory), math.max(high_y, peak)
    low_y = math.min(low_y, peak)
  end
  for _, p in ipairs(points) do
    low_x, high_x = math.min(low_x, p.x), math.max(high_x, p.x)
    low_y, high_y = math.min(low_y, p.y), math.max(high_y, p.y)
  end
  if high_y == 0 then low_y, high_y = 1e9, 1e12 end -- no operator computes
  local x1, x2 = range(low_x, high_x)
  local y1, y2 = range(math.min(low_y, high_y / 1000), high_y)
  return {x1 = x1, x2 = x2, y1 = y1, y2 = y2}
end

-- The name of a point beside it, unless another one is there; the longest times come first.
local function add_label(out, labels, sum, x, y)
  local size = 3 + 22 * math.sqrt(sum.share)
  local width, left = 6.7 * #sum.name, x + size + 4
  if left + width > WIDTH then left = x - size - 4 - width end
  for _, other in ipairs(labels) do
    local beside = left >= other.right or left + width <= other.left
    if math.abs(other.y - y) < 12 and not beside then return end
  end
  labels[#labels + 1] = {y = y, left = left, right = left + width}
  out[#out + 1] = svg.text(left, y + 4, sum.name)
end

return function(replay)
  local points, roofs = points_of(replay), replay.roofs
  local at = limits(points, roofs)
  local function x_of(v)
    return LEFT + (log10(v) - at.x1) / (at.x2 - at.x1) * (WIDTH - LEFT - MARGIN)
  end
  local function y_of(v)
    local low = 10 ^ at.y1
    return HEIGHT - BOTTOM - (log10(math.max(v, low)) - at.y1) / (at.y2 - at.y1)
      * (HEIGHT - BOTTOM - 60)
  end
  local out = {svg.text(MARGIN, 30, ("%s on %s: %s"):format(replay.name, replay.machine,
    units.time(replay.time * 1e6)), 'font-size="16" font-weight="bold"')}
  for k = at.x1, at.x2 do
    out[#out + 1] = svg.line(x_of(10 ^ k), 60, x_of(10 ^ k), HEIGHT - BOTTOM, "#e4e6ea")
    out[#out + 1] = svg.text(x_of(10 ^ k), HEIGHT - BOTTOM + 16, ("%g"):format(10 ^ k),
      'text-anchor="middle"')
  end
  for k = at.y1, at.y2 do
    out[#out + 1] = svg.line(LEFT, y_of(10 ^ k), WIDTH - MARGIN, y_of(10 ^ k), "#e4e6ea")
    out[#out + 1] = svg.text(LEFT - 8, y_of(10 ^ k) + 4, units.flops(10 ^ k),
      'text-anchor="end"')
  end
  out[#out + 1] = svg.text((WIDTH + LEFT) / 2, HEIGHT - 18, "FLOP a byte", 'text-anchor="middle"')
  out[#out + 1] = svg.text(LEFT, 52, "FLOP/s")
  local highest, dtypes = 0, {}
  for dtype, peak in pairs(roofs.peaks) do
    highest, dtypes[#dtypes + 1] = math.max(highest, peak), dtype
  end
  table.sort(dtypes)
  -- the roof of memory begins at the left edge, or where it leaves the bottom
  local low = math.max(10 ^ at.x1, 10 ^ at.y1 / roofs.memory)
  if highest > 0 then
    out[#out + 1] = svg.line(x_of(low), y_of(low * roofs.memory), x_of(highest / roofs.memory),
      y_of(highest), "#222", 'stroke-width="1.5"')
  end
  for _, dtype in ipairs(dtypes) do
    local peak = roofs.peaks[dtype]
    out[#out + 1] = svg.line(x_of(peak / roofs.memory), y_of(peak), WIDTH - MARGIN, y_of(peak),
      "#222", 'stroke-width="1.5"')
    out[#out + 1] = svg.text(WIDTH - MARGIN, y_of(peak) - 5, ("%s %sFLOP/s"):format(dtype,
      units.flops(peak)), 'text-anchor="end"')
  end
  local labels = {}
  for _, p in ipairs(points) do
    local s = p.sum
    out[#out + 1] = ('<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s" fill-opacity="0.7">'
      .. '%s</circle>'):format(x_of(p.x), y_of(p.y), 3 + 22 * math.sqrt(s.share), colours[s.bound],
        svg.title(("%s: %d calls, %s, %.1f %% of the time, bound by %s, %sFLOP/s"):format(s.name,
          s.calls, units.time(s.time * 1e6), 100 * s.share, s.bound, units.flops(p.y))))
    add_label(out, labels, s, x_of(p.x), y_of(p.y))
  end
  return svg.page(WIDTH, HEIGHT, out)
end
