--- An explanation of a plan as SVG: a bar for each kernel, its time with the floor in it, and
-- memory at each kernel. What does not fit into a label is in the tooltips.
local step = require "flare.profile.step"
local units = require "flare.explain.units"

local WIDTH, MARGIN = 1120, 20
local ROW, ROWS = 18, 250     -- height of a bar's row; rows at most
local BAR, LONGEST = 530, 430 -- where bars begin; the longest one
local MEMORY = 170            -- height of the chart of memory

local colours = {
  product = "#4878cf", convolution = "#2a9d8f", attention = "#8e5bb5", fused = "#e8871e",
  alone = "#d4b106", operator = "#8d99a6",
}
local legend = {
  {"fused", "fused"}, {"alone", "one pointwise operator, reduction or copy"},
  {"product", "product"}, {"convolution", "convolution"}, {"attention", "attention"},
  {"operator", "other operators"},
}

-- What the legend calls a kernel.
local function sort_of(k)
  if k.kind:find "^fused" then return "fused" end
  local alone = k.kind == "pointwise" or k.kind == "reduction" or k.kind == "copy"
  return alone and "alone" or colours[k.kind] and k.kind or "operator"
end

local function escape(text) return (require "flare.escape"(text):gsub("%c", " ")) end

local function cut(text, most) return #text > most and text:sub(1, most - 3) .. "..." or text end

-- The end of a list of lines, which is what differs: without the folders.
local function lines_of(k) return (step.lines(k.launches):gsub("[^%s:]*/", "")) end

-- All that is known of a kernel, a line for each of its launches.
local function tooltip(k)
  local out = {("%d: %s %s"):format(k.number, k.kind, k.shapes)}
  for _, x in ipairs(k.launches) do
    out[#out + 1] = ("%s  %s%s%s"):format(x.op, x.line, x.backward and " (backward)" or "",
      x.again and " (computed again)" or "")
  end
  out[#out + 1] = ("%s read, %s written (%s kept), %s FLOP"):format(units.bytes(k.read),
    units.bytes(k.written), units.bytes(k.kept), units.flops(k.flops))
  out[#out + 1] = ("%s%s"):format(units.time(k.time),
    k.floor and (", floor %s"):format(units.time(k.floor)) or "")
  out[#out + 1] = units.bytes(k.live) .. " in tensors"
  out[#out + 1] = "begins since " .. k.apart
  for i, line in ipairs(out) do out[i] = escape(line) end
  return "<title>" .. table.concat(out, "&#10;") .. "</title>"
end

local function text_at(x, y, text, attributes)
  return ('<text x="%.1f" y="%.1f"%s>%s</text>'):format(x, y,
    attributes and " " .. attributes or "", escape(text))
end

local function rect(x, y, width, height, fill, inside)
  return ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s'):format(x, y,
    math.max(width, 0), height, fill, inside and ">" .. inside .. "</rect>" or "/>")
end

-- The kernels that get a row: all, or the longest ones, in order.
local function shown(e)
  local list = table.move(e.kernels, 1, #e.kernels, 1, {})
  if #list > ROWS then
    table.sort(list, function(a, b) return a.time > b.time end)
    for i = #list, ROWS + 1, -1 do list[i] = nil end
    table.sort(list, function(a, b) return a.number < b.number end)
  end
  return list
end

local function add_head(out, e, y)
  local title = ("%d launches in %d kernels, %s; eager: %d kernels, %s"):format(e.launches,
    #e.kernels, units.time(e.time), e.eager.launches, units.time(e.eager.time))
  out[#out + 1] = text_at(MARGIN, y, title, 'font-size="16" font-weight="bold"')
  local sums = ("%s read and written, eager: %s; memory at most %s, eager: %s"):format(
    units.bytes(e.bytes), units.bytes(e.eager.bytes), units.bytes(e.memory.peak),
    units.bytes(e.eager.peak))
  out[#out + 1] = text_at(MARGIN, y + 20, sums)
  local x, there = MARGIN, {}
  for _, k in ipairs(e.kernels) do there[sort_of(k)] = true end
  for _, item in ipairs(legend) do
    if there[item[1]] then
      out[#out + 1] = rect(x, y + 32, 10, 10, colours[item[1]])
      out[#out + 1] = text_at(x + 15, y + 41, item[2])
      x = x + 35 + 6.7 * #item[2]
    end
  end
  out[#out + 1] = text_at(BAR, y + 62,
    "time; the dark part of a bar is the floor", 'fill="#555"')
  return y + 70
end

local function add_bars(out, e, y)
  local list, longest = shown(e), 1e-9
  for _, k in ipairs(list) do longest = math.max(longest, k.time) end
  for i, k in ipairs(list) do
    local top = y + (i - 1) * ROW
    local length = k.time / longest * LONGEST
    local low = math.min((k.floor or 0) / longest * LONGEST, LONGEST)
    out[#out + 1] = "<g>" .. tooltip(k)
    out[#out + 1] = rect(MARGIN, top, WIDTH - 2 * MARGIN, ROW, i % 2 == 1 and "#f4f5f7" or "#fff")
    out[#out + 1] = text_at(MARGIN + 28, top + 13, tostring(k.number), 'text-anchor="end"')
    out[#out + 1] = text_at(MARGIN + 38, top + 13, cut(k.operators, 38))
    out[#out + 1] = text_at(BAR - 12, top + 13, cut(lines_of(k), 28),
      'text-anchor="end" fill="#555"')
    out[#out + 1] = rect(BAR, top + 3, length, ROW - 6, colours[sort_of(k)])
    if k.floor then
      out[#out + 1] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#000" '
        .. 'fill-opacity="0.4"/>'):format(BAR, top + 6, math.min(low, length), ROW - 12)
      out[#out + 1] = rect(BAR + low, top + 3, 1, ROW - 6, "#000")
    end
    out[#out + 1] = text_at(BAR + math.max(length, low) + 6, top + 13, units.time(k.time)
      .. (k.ratio and (", %.0f%%"):format(100 * k.ratio) or ""))
    out[#out + 1] = "</g>"
  end
  y = y + #list * ROW
  if #list < #e.kernels then
    y = y + ROW
    out[#out + 1] = text_at(MARGIN + 38, y - 5, ("the %d longest of %d kernels"):format(#list,
      #e.kernels), 'fill="#555"')
  end
  return y
end

-- Steps of the value `key` of each kernel as an area above `bottom`.
local function area(e, key, left, each, bottom, scale, fill)
  local points = {("M%.1f %.1f"):format(left, bottom)}
  for i, k in ipairs(e.kernels) do
    points[#points + 1] = ("V%.1fH%.1f"):format(bottom - k[key] * scale, left + i * each)
  end
  return ('<path d="%sV%.1fZ" fill="%s"/>'):format(table.concat(points), bottom, fill)
end

local function add_memory(out, e, y)
  local left, n, m = MARGIN + 70, math.max(#e.kernels, 1), e.memory
  local most, bottom = math.max(m.peak, 1), y + 40 + MEMORY
  local each, scale = (WIDTH - MARGIN - left) / n, MEMORY / most
  out[#out + 1] = text_at(MARGIN, y + 24, ("memory in tensors on %s at each kernel; light: for the "
    .. "time of a kernel"):format(m.device), 'fill="#555"')
  for k = 0, 4 do
    local at = bottom - k / 4 * MEMORY
    out[#out + 1] = rect(left, at, WIDTH - MARGIN - left, 1, "#ddd")
    out[#out + 1] = text_at(left - 8, at + 4, units.bytes(most * k // 4), 'text-anchor="end"')
  end
  out[#out + 1] = area(e, "peak", left, each, bottom, scale, "#c6d8ee")
  out[#out + 1] = area(e, "live", left, each, bottom, scale, "#6f9bd1")
  local every = math.max(1, math.ceil(n / 30))
  for i, k in ipairs(e.kernels) do
    local x = left + (i - 1) * each
    out[#out + 1] = rect(x, bottom - MEMORY, each, MEMORY, "transparent", tooltip(k))
    if (i - 1) % every == 0 then
      out[#out + 1] = text_at(x + each / 2, bottom + 15, tostring(i), 'text-anchor="middle"')
    end
  end
  y = bottom + 40
  if m.kernel then
    local k = e.kernels[m.kernel]
    local x = left + (m.kernel - 0.5) * each
    out[#out + 1] = ('<circle cx="%.1f" cy="%.1f" r="3.5" fill="#c0392b"/>'):format(x,
      bottom - k.peak * scale)
    out[#out + 1] = text_at(MARGIN, y, ("peak: %s at kernel %d, %s, %s"):format(units.bytes(m.peak),
      m.kernel, cut(k.operators, 60), cut(lines_of(k), 50)), 'fill="#c0392b"')
    y = y + 18
  end
  for _, h in ipairs(m.holders) do
    out[#out + 1] = text_at(left, y, h.bytes, 'text-anchor="end"')
    out[#out + 1] = text_at(left + 10, y, h.line)
    y = y + 16
  end
  return y
end

return function(e)
  local out = {}
  local y = add_head(out, e, MARGIN + 12)
  y = add_bars(out, e, y)
  y = add_memory(out, e, y)
  local head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
    .. 'viewBox="0 0 %d %d" font-family="ui-monospace, Menlo, Consolas, monospace" '
    .. 'font-size="11" fill="#222">'):format(WIDTH, y // 1, WIDTH, y // 1)
  table.insert(out, 1, head)
  table.insert(out, 2, rect(0, 0, WIDTH, y, "#fff"))
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end
