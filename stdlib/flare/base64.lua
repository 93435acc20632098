--- Bytes in base 64, as RFC 4648 has it.
local M = {}

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local pairs_of = {} -- two digits for 12 bits
for n = 0, 4095 do
  local high, low = n >> 6, n & 63
  pairs_of[n] = digits:sub(high + 1, high + 1) .. digits:sub(low + 1, low + 1)
end

local value_of = {} -- of a digit's byte
for i = 1, 64 do value_of[digits:byte(i)] = i - 1 end

--- @param bytes a string
-- @return the text, without line breaks
function M.encode(bytes)
  local pad = -#bytes % 3
  local out = (bytes .. ("\0"):rep(pad)):gsub("...", function(three)
    local a, b, c = three:byte(1, 3)
    return pairs_of[a << 4 | b >> 4] .. pairs_of[(b & 15) << 8 | c]
  end)
  return out:sub(1, #out - pad) .. ("="):rep(pad)
end

--- @param text of digits; line breaks are skipped, and padding may be left out
-- @return the bytes, or nil if the text has other characters
function M.decode(text)
  local out, bits, count = {}, 0, 0
  text = text:gsub("[\r\n]", ""):gsub("=+$", "")
  for i = 1, #text do
    local six = value_of[text:byte(i)]
    if not six then return nil end
    bits, count = bits << 6 | six, count + 6
    if count >= 8 then
      count = count - 8
      out[#out + 1] = string.char(bits >> count & 255)
      bits = bits & (1 << count) - 1
    end
  end
  return table.concat(out)
end

return M
