--- Images as PNG files.
local core = require "flare.core"

local kinds = {[1] = 0, [3] = 2, [4] = 6} -- channels: grey, RGB, RGBA

local function chunk(name, data)
  return string.pack(">I4", #data) .. name .. data .. string.pack(">I4", core.crc32(name .. data))
end

-- Adler-32, by sums over a tensor.
local function adler(x)
  local n = #x
  local b = ((core.arange(n, 0, -1, {dtype = "i64"}) * x):sum():item() + n) % 65521
  return string.pack(">I4", b << 16 | (x:sum():item() + 1) % 65521)
end

--- The bytes of a PNG file.
-- @param x (H, W, C) u8 on the CPU, with 1, 3 or 4 channels
return function(x)
  local height, width, channels = x:size(1), x:size(2), x:size(3)
  local head = string.pack(">I4I4", width, height) .. string.char(8, kinds[channels], 0, 0, 0)
  local rows = core.cat({core.zeros({height, 1}, {dtype = "u8"}),
                         x:reshape(height, width * channels)}, 2) -- a row begins with its filter
  local zlib = "\x78\x9c" .. core.deflate(rows:bytes()) .. adler(rows:reshape(-1):to "i64")
  return "\x89PNG\r\n\x1a\n" .. chunk("IHDR", head) .. chunk("IDAT", zlib) .. chunk("IEND", "")
end
