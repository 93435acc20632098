-- Reads PNG files as flare writes them, with what RFC 2083 asks a reader to check.
local core = require "flare".core

local function adler(bytes)
  local a, b = 1, 0
  for i = 1, #bytes do
    a = (a + bytes:byte(i)) % 65521
    b = (b + a) % 65521
  end
  return b << 16 | a
end

local channels_of = {[0] = 1, [2] = 3, [6] = 4}

--- @return {width =, height =, channels =, at = function(x, y) -> the channels, from 0}
return function(bytes)
  assert(bytes:sub(1, 8) == "\x89PNG\r\n\x1a\n", "no signature")
  local at, data, head, last = 9, {}, nil, nil
  while at <= #bytes do
    local size = string.unpack(">I4", bytes, at)
    local body = bytes:sub(at + 4, at + 7 + size)
    assert(string.unpack(">I4", bytes, at + 8 + size) == core.crc32(body), "checksum")
    last = body:sub(1, 4)
    if last == "IHDR" then head = body:sub(5) end
    if last == "IDAT" then data[#data + 1] = body:sub(5) end
    at = at + 12 + size
  end
  assert(last == "IEND")
  local width, height, depth, kind, method, filter, lace = string.unpack(">I4I4BBBBB", head)
  assert(depth == 8 and method == 0 and filter == 0 and lace == 0)
  local channels = assert(channels_of[kind])
  local stream = table.concat(data)
  local stride = 1 + width * channels
  local rows = assert(core.inflate(stream:sub(3, -5), stride * height))
  assert(string.unpack(">I4", stream, #stream - 3) == adler(rows), "Adler-32")
  return {width = width, height = height, channels = channels, at = function(x, y)
    assert(rows:byte(y * stride + 1) == 0, "a filter that is not read here")
    local from = y * stride + 2 + x * channels
    return rows:byte(from, from + channels - 1)
  end}
end
