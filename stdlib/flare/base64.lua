--- Bytes in base 64, as RFC 4648 has it.
local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local pairs_of = {} -- two digits for 12 bits
for n = 0, 4095 do
  local high, low = n >> 6, n & 63
  pairs_of[n] = digits:sub(high + 1, high + 1) .. digits:sub(low + 1, low + 1)
end

--- @param bytes a string
-- @return the text, without line breaks
return function(bytes)
  local pad = -#bytes % 3
  local out = (bytes .. ("\0"):rep(pad)):gsub("...", function(three)
    local a, b, c = three:byte(1, 3)
    return pairs_of[a << 4 | b >> 4] .. pairs_of[(b & 15) << 8 | c]
  end)
  return out:sub(1, #out - pad) .. ("="):rep(pad)
end
