--- Draws the SVG that flare writes as pixels: rectangles, paths of straight lines, and texts. It
-- draws at twice the size, and the mean of four points is a pixel.
local core = require "flare.core"
local glyphs = require "flare.plot.glyphs"

local FINE = 2 -- points along the side of a pixel

local function attributes(text)
  local a = {}
  for name, value in text:gmatch '([%w-]+)="([^"]*)"' do a[name] = value end
  return a
end

local function colour_of(text)
  local hex = text and text:match "^#(%x%x%x%x%x%x)$"
  return hex and tonumber(hex, 16)
end

local Canvas = {}
Canvas.__index = Canvas

function Canvas.new(width, height)
  local self = setmetatable({width = width * FINE, height = height * FINE}, Canvas)
  for i = 1, self.width * self.height do self[i] = 0xffffff end
  return self
end

-- In points.
function Canvas:fill(x, y, width, height, colour)
  for row = math.max(0, y), math.min(self.height, y + height) - 1 do
    local base = row * self.width + 1
    for column = math.max(0, x), math.min(self.width, x + width) - 1 do
      self[base + column] = colour
    end
  end
end

local function round(v) return math.floor(v + 0.5) end

-- In pixels, as the three that follow.
function Canvas:rectangle(a)
  local colour = colour_of(a.fill)
  if not colour then return end
  local x, y = (tonumber(a.x) or 0) * FINE, (tonumber(a.y) or 0) * FINE
  local left, top = round(x), round(y)
  self:fill(left, top, round(x + a.width * FINE) - left, round(y + a.height * FINE) - top, colour)
end

function Canvas:line(xa, ya, xb, yb, width, colour)
  local size = math.max(1, round(width * FINE))
  local n = math.max(1, round(math.max(math.abs(xb - xa), math.abs(yb - ya)) * FINE))
  for k = 0, n do
    local x, y = xa + (xb - xa) * k / n, ya + (yb - ya) * k / n
    self:fill(round(x * FINE - size / 2), round(y * FINE - size / 2), size, size, colour)
  end
end

function Canvas:path(a)
  local colour, width = colour_of(a.stroke), tonumber(a["stroke-width"]) or 1
  if not colour then return end
  local x, y = 0, 0
  for letter, numbers in a.d:gmatch "(%a)([^%a]*)" do
    local list = {}
    for number in numbers:gmatch "[-%d.]+" do list[#list + 1] = tonumber(number) end
    local tx, ty = x, y
    if letter == "M" or letter == "L" then tx, ty = list[1], list[2]
    elseif letter == "H" then tx = list[1]
    elseif letter == "V" then ty = list[1]
    elseif letter == "h" then tx = x + list[1]
    elseif letter == "v" then ty = y + list[1] end
    if letter ~= "M" then self:line(x, y, tx, ty, width, colour) end
    x, y = tx, ty
  end
end

local entities = {lt = "<", gt = ">", amp = "&", quot = '"'}

-- The place of a text is the left, middle or right end of its base line.
function Canvas:text(a, text)
  local colour = colour_of(a.fill)
  if not colour or a.transform then return end
  text = text:gsub("&(%a+);", entities):gsub("[\xc0-\xff][\x80-\xbf]*", "?")
  local width = #text * 6 - 1
  local from = tonumber(a.x) - (a["text-anchor"] == "end" and width
               or a["text-anchor"] == "middle" and width / 2 or 0)
  for i = 1, #text do
    for row, bits in ipairs(glyphs(text:sub(i, i))) do
      for column = 0, 4 do
        if bits >> (4 - column) & 1 == 1 then
          self:fill(round((from + (i - 1) * 6 + column) * FINE),
                    round((tonumber(a.y) - 8 + row) * FINE), FINE, FINE, colour)
        end
      end
    end
  end
end

--- @param svg the text
-- @param image {x =, y =, pixels = (height, width, 3)} that is put into the result, or nil
-- @return (height, width, 3) u8
return function(svg, image)
  local width, height = svg:match 'width="(%d+)" height="(%d+)"'
  width, height = math.tointeger(tonumber(width)), math.tointeger(tonumber(height))
  local canvas = Canvas.new(width, height)
  for name, list, rest in svg:gmatch "<(%a+)%s?([^>]*)>([^<]*)" do
    local a = attributes(list)
    if name == "rect" then canvas:rectangle(a)
    elseif name == "path" then canvas:path(a)
    elseif name == "text" then canvas:text(a, rest) end
  end
  local flat = core.tensor(table.move(canvas, 1, #canvas, 1, {}), {dtype = "i64"})
  local parts = {}
  for c, shift in ipairs {16, 8, 0} do
    local points = flat:bitwise_right_shift(shift):bitwise_and(255):to "f32"
    parts[c] = (points:reshape(height, FINE, width, FINE):mean{dims = {2, 4}} + 0.5):floor()
  end
  local x = core.stack(parts, 3):to "u8"
  if image then
    local p = image.pixels
    x:narrow(1, image.y + 1, p:size(1)):narrow(2, image.x + 1, p:size(2)):copy_(p)
  end
  return x
end
