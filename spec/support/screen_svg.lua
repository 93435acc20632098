--- Draws screens of the emulated terminal, and cells of a notebook, as SVG.
local M = {}

local wide, high, margin = 8.4, 18, 12 -- of a character in pixels; around the text

local named = {black = "#5c6370", red = "#e06c75", green = "#98c379", yellow = "#e5c07b",
  blue = "#61afef", magenta = "#c678dd", cyan = "#56b6c2", white = "#dcdfe4", grey = "#7f848e"}
local front, behind = "#dcdfe4", "#282c34"

local function escaped(text)
  return (text:gsub("[&<>\"]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
                                ['"'] = "&quot;"}))
end

-- A colour of the style: "2;r;g;b", or "5;n" of 256.
local function colour_of(text)
  local r, g, b = text:match "^2;(%d+);(%d+);(%d+)$"
  if r then return ("#%02x%02x%02x"):format(r, g, b) end
  local n = tonumber(text:match "^5;(%d+)$")
  if n >= 232 then return ("#%02x%02x%02x"):format(8 + (n - 232) * 10, 8 + (n - 232) * 10,
                                                   8 + (n - 232) * 10) end
  if n < 16 then return front end
  local function level(k) return k == 0 and 0 or 55 + 40 * k end
  n = n - 16
  return ("#%02x%02x%02x"):format(level(n // 36), level(n // 6 % 6), level(n % 6))
end

-- The colours of a cell: of its text, and of what is behind it, if that is not the screen's.
local function colours(style)
  local text = style.front and colour_of(style.front) or named[style.colour] or front
  local ground = style.behind and colour_of(style.behind)
  if style.reverse then text, ground = ground or behind, text end
  return text, ground
end

-- A row as runs of cells that look alike.
local function runs_of(row)
  local runs = {}
  for c, cell in ipairs(row) do
    local style = cell.style or {}
    local text, ground = colours(style)
    local last = runs[#runs]
    -- a font that lacks one character shall not draw others
    local look = text .. (ground or "") .. tostring(style.bold) .. tostring(style.underline)
      .. tostring(cell.text:byte() and cell.text:byte() < 128)
    if not last or last.look ~= look then
      last = {look = look, from = c, text = {}, front = text, ground = ground, style = style}
      runs[#runs + 1] = last
    end
    last.text[#last.text + 1], last.to = cell.text, c
  end
  return runs
end

local function add_run(out, run, y)
  local x, width = margin + (run.from - 1) * wide, (run.to - run.from + 1) * wide
  if run.ground then
    out[#out + 1] = ('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>'):format(x,
      y - high + 4, width, high, run.ground)
  end
  local text = table.concat(run.text)
  if not text:find "%S" then return end
  out[#out + 1] = ('<text x="%.1f" y="%d" textLength="%.1f" fill="%s"%s%s>%s</text>'):format(x, y,
    width, run.front, run.style.bold and ' font-weight="bold"' or "",
    run.style.underline and ' text-decoration="underline"' or "", escaped(text))
end

local function svg(width, height, ground, parts)
  return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" '
    .. 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" '
    .. 'xml:space="preserve"><rect width="%d" height="%d" rx="6" fill="%s"/>\n%s\n</svg>\n'):format(
    width, height, width, height, width, height, ground, table.concat(parts, "\n"))
end

--- A terminal's rows down to the last that is not empty, with the cursor.
function M.terminal(screen)
  local out, rows = {}, math.max(#screen:lines(), screen.row)
  while screen:line(1) == "" and rows == 0 do rows = 1 end
  for r = 1, rows do
    local y = margin + r * high - 4
    for _, run in ipairs(runs_of(screen.cells[r])) do add_run(out, run, y) end
  end
  return svg(math.ceil(2 * margin + screen.columns * wide), 2 * margin + rows * high, behind, out)
end

-- --- notebooks ---

local left, inner = 74, 690 -- where cells begin, and how wide they are

-- A line as long as it fits, and the rest below it.
local broken
function broken(line)
  local most = inner // wide - 2 | 0
  return #line <= most and line or line:sub(1, most) .. "\n" .. broken(line:sub(most + 1))
end

-- Text lines from y on; where they end.
local function add_text(out, text, y, colour)
  text = text:gsub("[^\n]+", broken)
  for line in (text:gsub("\n$", "") .. "\n"):gmatch "([^\n]*)\n" do
    y = y + high
    if line ~= "" then
      out[#out + 1] = ('<text x="%d" y="%d" fill="%s">%s</text>'):format(left + 8, y - 4, colour,
                                                                        escaped(line))
    end
  end
  return y
end

-- A table of HTML, as Jupyter draws it.
local function add_table(out, html, y)
  for row in html:gmatch "<tr>(.-)</tr>" do
    local k = 0
    y = y + 22
    for cell in row:gmatch "<td>(.-)</td>" do
      k = k + 1
      out[#out + 1] = ('<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text>'):format(
        left + k * 90, y - 6, cell)
    end
  end
  local after = html:match "<p>(.-)</p>"
  if after then
    y = y + high
    out[#out + 1] = ('<text x="%d" y="%d" fill="#222">%s</text>'):format(left + 8, y, after)
  end
  return y + 6
end

-- Width and height of the PNG in base64 text: its first 24 bytes.
local function size_of(text)
  local base64 = require "flare.base64"
  local bytes = base64.decode(text:sub(1, 32))
  return string.unpack(">I4I4", bytes, 17)
end

local function add_bundle(out, bundle, y)
  local picture, png, html = bundle["image/svg+xml"], bundle["image/png"], bundle["text/html"]
  if picture then
    local w, h = picture:match '<svg[^>]-width="(%d+)"', picture:match '<svg[^>]-height="(%d+)"'
    local size = ('x="%d" y="%d"'):format(left + 8, y + 4)
    out[#out + 1] = picture:gsub("^%s*<%?xml[^>]*>%s*", ""):gsub("<svg", "<svg " .. size, 1)
    return y + 8 + tonumber(h or 300), w
  elseif png then
    local w, h = size_of(png)
    out[#out + 1] = ('<image x="%d" y="%d" width="%d" height="%d" image-rendering="pixelated" '
      .. 'href="data:image/png;base64,%s"/>'):format(left + 8, y + 4, w * 3, h * 3, png)
    return y + 8 + h * 3
  elseif html then
    return add_table(out, html, y)
  end
  return add_text(out, bundle["text/plain"], y, "#222")
end

--- Cells with their results: a list of {text =, out = {{text =}, {bundle =}, {problem =}}}.
function M.notebook(cells)
  local out, y = {}, margin
  for k, cell in ipairs(cells) do
    local _, lines = (cell.text .. "\n"):gsub("\n", "")
    out[#out + 1] = ('<rect x="%d" y="%d" width="%d" height="%d" fill="#f5f5f5" stroke="#e0e0e0"/>')
      :format(left, y, inner, lines * high + 10)
    out[#out + 1] = ('<text x="%d" y="%d" fill="#307fc1">[%d]:</text>'):format(margin, y + high, k)
    y = add_text(out, cell.text, y + 4, "#222") + 10
    for _, one in ipairs(cell.out) do
      if one.bundle then y = add_bundle(out, one.bundle, y)
      else y = add_text(out, one.text or one.problem, y, one.problem and "#b3261e" or "#222") end
    end
    y = y + 14
  end
  return svg(left + inner + margin, y + margin, "#ffffff", out)
end

return M
