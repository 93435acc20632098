--- Values as notebooks show them: by MIME type, plain text always among them.
local base64 = require "flare.base64".encode
local core = require "flare.core"

local M = {}

local function escaped(text)
  return (text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"}))
end

local MOST = 20 -- rows and columns of a table

-- A matrix or a vector as a table, its first rows and columns.
local function table_of(x)
  local rows = x:dim() == 1 and x:unsqueeze(1) or x
  local height, width = math.min(rows:size(1), MOST), math.min(rows:size(2), MOST)
  local part = rows:narrow(1, 1, height):narrow(2, 1, width):cpu()
  local out = {"<table>"}
  for k, row in ipairs(part:totable()) do
    for i, value in ipairs(row) do
      row[i] = "<td>" .. (math.type(value) == "float" and ("%.5g"):format(value)
                          or tostring(value)) .. "</td>"
    end
    if width < rows:size(2) then row[width + 1] = "<td>&hellip;</td>" end
    out[k + 1] = "<tr>" .. table.concat(row) .. "</tr>"
  end
  if height < rows:size(1) then out[#out + 1] = "<tr><td>&hellip;</td></tr>" end
  out[#out + 1] = ("</table><p>%s %s</p>"):format(x.dtype, escaped(tostring(x.shape)))
  return table.concat(out)
end

local function tensor_html(x)
  local shown = not x.closed and not x.dtype:find "^c%d" and (x:dim() == 1 or x:dim() == 2)
  return shown and x:numel() > 0 and table_of(x:detach()) or nil
end

local PNG = "\x89PNG\r\n\x1a\n"

--- What a value is shown as: {["text/plain"] =, ...}. A value whose metatable has a function
-- __mime says itself what it is, by a table of MIME types and data. Texts that are an SVG or the
-- bytes of a PNG file are shown as pictures.
-- @param text the value in plain text
function M.bundle(value, text)
  local out = {["text/plain"] = text}
  local meta = debug.getmetatable(value)
  local own = type(value) ~= "string" and type(meta) == "table" and rawget(meta, "__mime")
  if type(own) == "function" then
    for mime, data in pairs(own(value)) do out[mime] = data end
  elseif core.is_tensor(value) then
    out["text/html"] = tensor_html(value)
  elseif type(value) == "string" and value:sub(1, 8) == PNG then
    out = {["image/png"] = base64(value), ["text/plain"] = "a PNG image"}
  elseif type(value) == "string" and (value:find "^%s*<svg"
                                      or value:find "^%s*<%?xml[^>]*>%s*<svg") then
    out = {["image/svg+xml"] = value, ["text/plain"] = "an SVG image"}
  end
  return out
end

local Shown = {__name = "shown"}
function Shown.__mime(self) return self.data end
function Shown.__tostring(self) return self.text end

local function shown(data, text) return setmetatable({data = data, text = text}, Shown) end

--- A value that a notebook shows as HTML, Markdown, an SVG, or an image: a tensor as of
-- log.tensorboard's images, or the bytes of a PNG file.
M.kinds = {
  html = function(text) return shown({["text/html"] = text}, "HTML") end,
  markdown = function(text) return shown({["text/markdown"] = text}, text) end,
  svg = function(text) return shown({["image/svg+xml"] = text}, "an SVG image") end,
  image = function(x)
    local bytes = x
    if core.is_tensor(x) then bytes = require "flare.log.png"(require "flare.log.pixels"(x)) end
    return shown({["image/png"] = base64(bytes)}, "an image")
  end,
}

return M
