--- Words of texts, as Python's str.split and str.lower see them.
local core = require "flare.core"

local M = {}

local spaces = {"[\x1C-\x1F]", "\xC2[\x85\xA0]", "\xE1\x9A\x80",
                "\xE2\x80[\x80-\x8A\xA8\xA9\xAF]", "\xE2\x81\x9F", "\xE3\x80\x80"}

--- A list of what lies between white space, that of Unicode included.
function M.split(text)
  if text:find "[\x1C-\x1F\x80-\xFF]" then
    for _, space in ipairs(spaces) do text = text:gsub(space, " ") end
  end
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word end
  return list
end

local normalizer

--- A text in lower case, that of Unicode.
function M.lower(text)
  if not text:find "[\x80-\xFF]" then return text:lower() end
  normalizer = normalizer or core.text.new {model = {kind = "wordlevel", vocab = {}},
    normalizers = {{kind = "replace", regex = true, text = [[(?<=\p{L})\x{3A3}(?!\p{L})]],
                    content = "\u{3C2}"}, -- a sigma that ends a word
                   {kind = "lowercase"}}}
  return normalizer:normalize(text)
end

return M
