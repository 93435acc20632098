--- Pictures of tensors as files: curves, histograms, heat maps and images, as SVG or PNG by the
-- ending of the file's name. They are the methods x:plot(file), x:hist, x:heat and x:image.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local pixels = require "flare.plot.pixels"
local ticks = require "flare.log.ticks"

local M = {}

local function base64(x) return require "flare.base64".encode(require "flare.log.png"(x)) end

-- --- what they show, as SVG ---

local head = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
             .. 'font-family="sans-serif" font-size="11">'

local draw = {} -- function(x) -> SVG, and its image for pixels; or nil and what is wrong

--- The rows of a tensor as series for log.plot and log.svg: a vector is one, the rows of a matrix
-- are several.
-- @return the series, or nil and what is wrong
function M.series(x)
  local problem = pixels.problem(x, 1, 2)
  if problem then return nil, problem end
  local _ <close> = core.no_grad()
  local rows = x:detach():to("cpu"):to("f64")
  if x.ndim == 1 then return rows:totable() end
  local list = {}
  for i, row in ipairs(rows:totable()) do list[i] = {name = "row " .. i, y = row} end
  return list
end

function draw.plot(x)
  local series, problem = M.series(x)
  if not series then return nil, problem end
  return require "flare.log.svg"(series, {xlabel = ""})
end

function draw.hist(x)
  local found, problem = require "flare.plot.counts"(x)
  if not found then return nil, problem end
  local out = {}
  local function put(...) out[#out + 1] = core.format(...) end
  local left, top, width, height = 56, 16, 568, 300
  local most = math.max(table.unpack(found.counts))
  local bar = width / #found.counts
  put(head, 640, 360, 640, 360)
  put '<rect width="640" height="360" fill="#ffffff"/>'
  for _, count in ipairs(ticks.linear(0, most, 6)) do
    local y = top + height * (1 - count / most)
    put('<path d="M%d %.1fH%d" stroke="#e5e7eb"/>', left, y, left + width)
    put('<text x="%d" y="%.1f" text-anchor="end" fill="#4b5563">%s</text>', left - 6, y + 4,
        ticks.label(count))
  end
  for i, count in ipairs(found.counts) do
    put('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#2563eb"/>',
        left + bar * (i - 1) + 0.5, top + height * (1 - count / most), bar - 1,
        height * count / most)
  end
  local low, high = found.low, found.high
  local edges = high > low and ticks.linear(low, high, 8) or {low}
  for _, edge in ipairs(edges) do
    local part = high > low and (edge - low) / (high - low) or 0.5
    put('<path d="M%.1f %dv4" stroke="#9ca3af"/>', left + part * width, top + height)
    put('<text x="%.1f" y="%d" text-anchor="middle" fill="#4b5563">%s</text>', left + part * width,
        top + height + 17, ticks.label(edge))
  end
  put('<path d="M%d %dH%d" stroke="#9ca3af"/>', left, top + height, left + width)
  if found.rest > 0 then
    put('<text x="%d" y="352" text-anchor="end" fill="#4b5563">%d not finite</text>', left + width,
        found.rest)
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end

local picture = '<image x="%d" y="%d" width="%d" height="%d" style="image-rendering:pixelated" '
                .. 'href="data:image/png;base64,%s"/>'

-- As many pixels for an element as make a small matrix easy to see.
local function zoom(x)
  local height, width = x:size(-2), x.ndim > 1 and x:size(-1) or 1
  if x.ndim == 1 then height, width = 1, x:numel() end
  local by = math.max(1, 480 // math.max(height, width))
  return height * by, width * by, height, width
end

function draw.heat(x)
  local problem = pixels.problem(x, 1, 2)
  if problem then return nil, problem end
  local height, width, rows, columns = zoom(x)
  local shown, low, high = pixels.heat(x, pixels.taker(height, width))
  local left, top, tall = 40, 10, math.max(height, 60)
  local right = left + width
  local out = {}
  local function label(x_, y, anchor, text)
    out[#out + 1] = ('<text x="%d" y="%d" text-anchor="%s" fill="#4b5563">%s</text>'):format(x_, y,
                                                                                anchor, text)
  end
  local function box(x_, y, w, h, colour)
    out[#out + 1] = ('<rect x="%d" y="%d" width="%d" height="%d" fill="#%02x%02x%02x"/>'):format(x_,
                                                       y, w, h, table.unpack(colour))
  end
  out[1] = head:format(right + 90, top + tall + 24, right + 90, top + tall + 24)
  box(0, 0, right + 90, top + tall + 24, {255, 255, 255})
  out[#out + 1] = picture:format(left, top, width, height, base64(shown))
  label(left - 5, top + 8, "end", 1)
  if rows > 1 then label(left - 5, top + height, "end", rows) end
  label(left, top + height + 14, "start", 1)
  if columns > 1 then label(right, top + height + 14, "end", columns) end
  if low then
    local bar = pixels.heat(core.linspace(1, 0, tall):reshape(tall, 1))
    for y, colour in ipairs(bar:reshape(tall, 3):totable()) do
      box(right + 14, top + y - 1, 12, 1, colour)
    end
    label(right + 31, top + 8, "start", core.format("%.4g", high))
    label(right + 31, top + tall, "start", core.format("%.4g", low))
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n"), {x = left, y = top, pixels = shown}
end

function draw.image(x)
  local shown, problem = pixels.image(x)
  if not shown then return nil, problem end
  local height, width = shown:size(1), shown:size(2)
  local svg = head:format(width, height, width, height) .. "\n"
              .. picture:format(0, 0, width, height, base64(shown)) .. "\n</svg>\n"
  return svg, {x = 0, y = 0, pixels = shown}
end

-- --- pictures without a file ---

-- What x:plot() returns: a notebook shows it, and so does the prompt.
local Picture = {__name = "picture"}

function Picture.__mime(self) return {["image/svg+xml"] = self.svg} end

function Picture.__tostring(self)
  return ("a picture of %s; x:%s(\"x.svg\") writes it to a file"):format(tostring(self.x.shape),
                                                                        self.kind)
end

-- --- files ---

--- The bytes of a file with a picture of a tensor.
-- @param kind "plot", "hist", "heat" or "image"
-- @param path the name of the file: it ends in .svg or .png
-- @return the bytes, or nil and what is wrong
function M.bytes(kind, x, path)
  local ending = path:lower():match "%.(%w+)$"
  if ending ~= "svg" and ending ~= "png" then
    return nil, ("the name of a file that ends in .svg or .png is expected, got '%s'"):format(path)
  end
  local svg, image = draw[kind](x)
  if not svg then return nil, image end
  if ending == "svg" then return svg end
  return require "flare.log.png"(kind == "image" and image.pixels
                                 or require "flare.plot.raster"(svg, image))
end

for kind in pairs(draw) do
  M[kind] = function(x, path)
    if path == nil then
      local svg, problem = draw[kind](x)
      if not svg then fail("%s: %s", kind, problem) end
      return setmetatable({svg = svg, kind = kind, x = x}, Picture)
    end
    if type(path) ~= "string" then
      fail('%s: the name of a file is expected, as in x:%s "x.svg" or "x.png", got %s', kind, kind,
           options.kind(path))
    end
    local bytes, problem = M.bytes(kind, x, path)
    if not bytes then fail("%s: %s", kind, problem) end
    return core.file.write_atomic(path, bytes)
  end
end

return M
