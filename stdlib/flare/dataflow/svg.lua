--- Elements of SVG as text.
local M = {}

local escapes = {["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;", ['"'] = "&quot;"}

function M.escape(text) return (text:gsub('[<>&"]', escapes):gsub("%c", " ")) end

--- What a browser shows when the pointer rests on an element.
function M.title(text) return "<title>" .. M.escape(text) .. "</title>" end

--- Text at x, y. @param attributes further ones, as text
function M.text(x, y, text, attributes)
  return ('<text x="%.1f" y="%.1f"%s>%s</text>'):format(x, y,
    attributes and " " .. attributes or "", M.escape(text))
end

--- A rectangle. @param inside elements in it, such as a title
function M.rect(x, y, width, height, fill, inside)
  return ('<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" fill="%s"%s'):format(x, y,
    math.max(width, 0), height, fill, inside and ">" .. inside .. "</rect>" or "/>")
end

function M.line(x1, y1, x2, y2, colour, attributes)
  return ('<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" fill="none"%s/>'):format(x1, y1, x2, y2,
    colour, attributes and " " .. attributes or "")
end

--- A picture of elements.
function M.page(width, height, elements)
  return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
    .. 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#222">\n'
    .. '<rect width="%d" height="%d" fill="#fff"/>\n%s\n</svg>\n'):format(width, height // 1, width,
    height // 1, width, height // 1, table.concat(elements, "\n"))
end

return M
