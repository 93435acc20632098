--- PNG and JPEG images as tensors (channels, height, width) of u8.
--
-- libpng and libjpeg-turbo decode the samples; what they mean is decided here: palettes, samples of
-- 16 bits, transparency, cyan-magenta-yellow-black, the orientation that a camera notes.
local core = require "flare.core"
local fail = require "flare.fail"
local kind_of = require "flare.io.kind"
local luminance = require "flare.data.luminance"
local options = require "flare.options"

local M = {}

local PNG, JPEG = "\x89PNG\r\n\x1a\n", "\xff\xd8\xff"

-- The orientation, 1 to 8, in an EXIF block; 1 if it has none.
local function orientation(exif)
  local order = ({["II*\0"] = "<", ["MM\0*"] = ">"})[exif and exif:sub(1, 4)]
  if not order or #exif < 8 then return 1 end
  local at = string.unpack(order .. "I4", exif, 5) + 1
  if at + 1 > #exif then return 1 end
  local count = string.unpack(order .. "I2", exif, at)
  for entry = at + 2, math.min(at + 2 + 12 * (count - 1), #exif - 11), 12 do
    local tag, kind, _, value = string.unpack(order .. "I2I2I4I2", exif, entry)
    if tag == 0x112 then return kind == 3 and value >= 1 and value <= 8 and value or 1 end
  end
  return 1
end

-- An image (channels, height, width) as its orientation says that it is to be seen.
local function upright(x, turn)
  if turn >= 5 then x = x:transpose(2, 3) end
  if turn == 2 or turn == 3 or turn == 6 or turn == 7 then x = x:flip(3) end
  if turn == 3 or turn == 4 or turn == 7 or turn == 8 then x = x:flip(2) end
  return x
end

-- The EXIF block of a JPEG file, or nil, where its pixels begin, and how many its bytes can hold:
-- Huffman codes have a bit at least for each block of 8 x 8 samples, of up to 4 x 4 pixels each.
local function segments(bytes)
  local at, exif, room = 3, nil, #bytes * 8 * 64 * 16
  while at + 3 <= #bytes and bytes:byte(at) == 0xff do
    local mark = bytes:byte(at + 1)
    if mark == 0xff then
      at = at + 1 -- padding
    elseif mark == 0x01 or mark >= 0xd0 and mark <= 0xd8 then
      at = at + 2
    else
      if mark == 0xda then break end
      -- arithmetic coding has no such bound
      if mark >= 0xc9 and mark <= 0xcf and mark ~= 0xcc then room = math.maxinteger end
      local size = string.unpack(">I2", bytes, at + 2)
      if mark == 0xe1 and not exif and bytes:sub(at + 4, at + 9) == "Exif\0\0" then
        exif = bytes:sub(at + 10, at + 1 + size)
      end
      at = at + 2 + size
    end
  end
  return exif, at, room
end

-- Red, green, blue of (height, width, 4) cyan, magenta, yellow, black. All programs that write such
-- files store 255 for no ink, as Adobe's do; Pillow and torchvision read them so, too.
local function from_inks(x)
  x = x:to "i32"
  -- to the nearest of 255 parts; there are no ties
  return ((x:narrow(3, 1, 3) * x:narrow(3, 4, 1) + 127):floor_div(255)):to "u8"
end

-- The samples (height, width, channels), whether they have 16 bits, and the orientation.
local function decode_jpeg(bytes, limit)
  local exif, pixels, room = segments(bytes)
  local x, message = core.jpeg_decode(bytes, limit, room)
  if not x then return nil, message end
  if message and message:find "premature end" or not bytes:find("\xff\xd9", pixels, true) then
    return nil, "the data end too early"
  end
  if x:size(3) == 4 then x = from_inks(x) end
  return x, false, orientation(exif)
end

local function decode_png(bytes, limit)
  local x, depth, exif = core.png_decode(bytes, limit)
  if not x then return nil, depth end
  if depth == 16 then
    local h, w, n = x:size(1), x:size(2), x:size(3)
    local parts = x:view(h, w, n // 2, 2):to "i32"
    x = parts:select(4, 1) * 256 + parts:select(4, 2)
  end
  return x, depth == 16, orientation(exif)
end

-- Samples (channels, height, width) with `wanted` channels: 1 grey, 2 grey and alpha, 3 red, green,
-- blue, 4 with alpha. White is `most`.
local function with_channels(x, wanted, most)
  local n = #x
  if n == wanted then return x end
  local alpha = n % 2 == 0 and x:narrow(1, n, 1) or nil
  local colours = alpha and x:narrow(1, 1, n - 1) or x
  if wanted < 3 and n >= 3 then
    colours = luminance(colours, 1)
  elseif wanted >= 3 and n < 3 then
    colours = colours:expand(3, x:size(2), x:size(3))
  end
  if wanted % 2 == 1 then return colours end
  alpha = alpha or core.full({1, x:size(2), x:size(3)}, most, {dtype = x.dtype})
  return core.cat({colours, alpha}, 1)
end

local DEFAULTS = {channels = options.none, bits = 8, orient = true, limit = 1 << 28}

local function check(where, opts)
  local o = options.check(where, opts, DEFAULTS)
  if o.channels and not ({true, true, true, true})[o.channels] then
    fail("%s: channels must be 1 (grey), 2 (grey, alpha), 3 (red, green, blue) or 4 (with alpha), "
         .. "got %s", where, tostring(o.channels))
  end
  if o.bits ~= 8 and o.bits ~= 16 then
    fail("%s: bits must be 8 or 16, got %s", where, tostring(o.bits))
  end
  options.count(where, "limit", o.limit)
  return o
end

local function decode(bytes, o, where)
  local name, decoder
  if bytes:sub(1, #PNG) == PNG then
    name, decoder = "PNG", decode_png
  elseif bytes:sub(1, #JPEG) == JPEG then
    name, decoder = "JPEG", decode_jpeg
  else
    return nil, ("%snot a PNG or JPEG image%s"):format(where and where .. ": " or "",
                   kind_of.hint(bytes:sub(1, kind_of.BYTES), where or ""))
  end
  local x, deep, turn = decoder(bytes, o.limit)
  if not x then
    local built = deep:find("built without", 1, true)
    return nil, (where and where .. ": " or "") .. (built and "" or "not a good " .. name
                  .. " image: ") .. deep
  end
  x = x:permute(3, 1, 2)
  x = with_channels(x, o.channels or #x, deep and 65535 or 255)
  if deep and o.bits == 8 then
    x = ((x * 255 + 32767):floor_div(65535)):to "u8"
  elseif not deep and o.bits == 16 then
    x = x:to "i32" * 257
  end
  if o.orient then x = upright(x, turn) end
  return x:contiguous()
end

--- Decodes the bytes of a PNG or JPEG file.
-- @param bytes a string
-- @param opts {channels =, bits = 8, orient = true, limit = 2^28}: channels 1 (grey), 2 (grey,
--   alpha), 3 (red, green, blue) or 4 (with alpha), left out: those of the file, where a palette
--   counts as red, green, blue and inks (CMYK) are converted to them. bits = 16: i32 from 0 to
--   65535; with 8, samples of 16 bits are rounded. orient: turns the image as its EXIF block says.
--   limit: pixels at most.
-- @return a tensor (channels, height, width) of u8, or nil and a message
function M.decode(bytes, opts)
  local o = check("images.decode", opts)
  if type(bytes) ~= "string" then
    fail("images.decode: the bytes of a file are expected, got %s", options.kind(bytes))
  end
  return decode(bytes, o)
end

--- Reads a PNG or JPEG file.
-- @param opts those of images.decode
-- @return a tensor (channels, height, width) of u8, or nil and a message
function M.read(path, opts)
  local o = check("images.read", opts)
  if type(path) ~= "string" then
    fail("images.read: the path must be a string, got %s", options.kind(path))
  end
  local bytes, message = core.file.read(path)
  if not bytes then return nil, message end
  return decode(bytes, o, path)
end

-- A tensor as samples (height, width, channels), on the host, and its sizes.
local function samples(where, x, bits)
  if not core.is_tensor(x) or x:dim() < 2 or x:dim() > 3 or x:numel() == 0 then
    fail("%s: an image (channels, height, width) is expected, got %s", where,
         core.is_tensor(x) and "a tensor " .. tostring(x.shape) or options.kind(x))
  end
  local most = bits == 16 and 65535 or 255
  x = x:detach():to "cpu"
  if x:dim() == 2 then x = x:unsqueeze(1) end
  if x.dtype:find "^b?f%d" then
    x = (x:to "f64" * most):clamp(0, most):round()
  elseif x.dtype == "bool" or x.dtype:find "^c" then
    fail("%s: samples are u8, other integers from 0 to %d or floats from 0 to 1, got %s", where,
         most, x.dtype)
  elseif x.dtype ~= "u8" and (x:lt(0):any():item() or x:gt(most):any():item()) then
    fail("%s: samples must be from 0 to %d", where, most)
  elseif x.dtype == "u8" and bits == 16 then
    x = x:to "i32" * 257
  end
  local n, h, w = x:size(1), x:size(2), x:size(3)
  x = x:permute(2, 3, 1)
  if bits == 16 then
    x = x:to "i32"
    x = core.stack({x:floor_div(256), x:remainder(256)}, 4)
  end
  return x:to "u8":contiguous(), w, h, n
end

--- The bytes of a PNG or JPEG file.
-- @param x a tensor (channels, height, width) or (height, width): u8, other integers from 0 to 255,
--   or floats from 0 to 1. PNG takes 1 to 4 channels, JPEG 1 or 3.
-- @param format "png" or "jpeg"
-- @param opts PNG: {bits = 8, level = 6}, with 16 bits integers are from 0 to 65535, level is
--   zlib's; JPEG: {quality = 75, sampling = "4:2:0"}, sampling of the colours, or "4:2:2", "4:4:4"
-- @return a string, or nil and a message
function M.encode(x, format, opts)
  local where = "images.encode"
  if format == "png" then
    local o = options.check(where, opts, {bits = 8, level = 6})
    if o.bits ~= 8 and o.bits ~= 16 then
      fail("%s: bits must be 8 or 16, got %s", where, tostring(o.bits))
    end
    if options.count(where, "level", o.level, 0) > 9 then
      fail("%s: level must be 0 to 9, got %d", where, o.level)
    end
    local y, w, h, n = samples(where, x, o.bits)
    if n > 4 then fail("%s: a PNG image has 1 to 4 channels, got %d", where, n) end
    return core.png_encode(y, w, h, n, o.bits, o.level)
  elseif format == "jpeg" then
    local o = options.check(where, opts, {quality = 75, sampling = "4:2:0"})
    if options.count(where, "quality", o.quality) > 100 then
      fail("%s: quality must be 1 to 100, got %d", where, o.quality)
    end
    if not ({["4:4:4"] = 1, ["4:2:2"] = 1, ["4:2:0"] = 1})[o.sampling] then
      fail("%s: sampling must be \"4:4:4\", \"4:2:2\" or \"4:2:0\", got %s", where, o.sampling)
    end
    local y, w, h, n = samples(where, x, 8)
    if n ~= 1 and n ~= 3 then
      fail("%s: a JPEG image has 1 or 3 channels, got %d; x:narrow(1, 1, 3) drops alpha", where, n)
    end
    return core.jpeg_encode(y, w, h, n, o.quality, o.sampling)
  end
  fail("%s: the format must be \"png\" or \"jpeg\", got %s", where, tostring(format))
end

--- Writes a PNG or JPEG file, by the path's ending (.png, .jpg, .jpeg), atomically.
-- @param x, opts as for images.encode
-- @return true, or nil and a message
function M.write(path, x, opts)
  local formats = {png = "png", jpg = "jpeg", jpeg = "jpeg"}
  local format = type(path) == "string" and formats[(path:match "%.(%w+)$" or ""):lower()]
  if not format then
    fail("images.write: the path must end in .png, .jpg or .jpeg, got %s", tostring(path))
  end
  local bytes, message = M.encode(x, format, opts)
  if not bytes then return nil, ("%s: %s"):format(path, message) end
  return core.file.write_atomic(path, bytes)
end

return M
