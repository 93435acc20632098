--- The WAV format: chunks of a RIFF file, and samples of integers and floats.
local core = require "flare.core"
local kind_of = require "flare.io.kind"

local M = {}

-- Code of the format, the tail of the identifiers that stand for codes in the extensible one, and
-- formats that are refused by name.
local INTEGERS, FLOATS, EXTENSIBLE = 1, 3, 0xfffe
local TAIL = "\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
local others = {[2] = "Microsoft's ADPCM", [6] = "A-law", [7] = "mu-law", [0x11] = "IMA ADPCM",
                [0x31] = "GSM 6.10", [0x55] = "MP3", [0x161] = "Windows Media Audio"}

local function to_floats(x, dtype, scale) return x:to(dtype) / scale end

-- Samples of each format by its code and bits, as floats from -1 to 1.
local decoders = {
  [INTEGERS] = {
    [8] = function(text, dtype)
      return to_floats(core.from_bytes(text, "u8", {#text}):to(dtype) - 128, dtype, 128)
    end,
    [16] = function(text, dtype)
      return to_floats(core.from_bytes(text, "i16", {#text // 2}), dtype, 1 << 15)
    end,
    [24] = function(text, dtype) -- as the upper bytes of 32 bits
      local n = #text // 3
      local bytes = core.from_bytes(text, "u8", {n, 3})
      local wide = core.cat({core.zeros({n, 1}, {dtype = "u8"}), bytes}, 2):bytes()
      return to_floats(core.from_bytes(wide, "i32", {n}), dtype, 1 << 31)
    end,
    [32] = function(text, dtype)
      return to_floats(core.from_bytes(text, "i32", {#text // 4}), dtype, 1 << 31)
    end,
  },
  [FLOATS] = {
    [32] = function(text, dtype) return core.from_bytes(text, "f32", {#text // 4}):to(dtype) end,
    [64] = function(text, dtype) return core.from_bytes(text, "f64", {#text // 8}):to(dtype) end,
  },
}

-- The chunks "fmt " and "data"; nil and a message.
local function chunks(bytes)
  local format, at = nil, 13
  while at + 7 <= #bytes do
    local name, size = bytes:sub(at, at + 3), string.unpack("<I4", bytes, at + 4)
    local first = at + 8
    if name == "data" then
      if not format then return nil, "there is no format (fmt) in front of the samples" end
      -- what writes to a pipe cannot know the size
      if size == 0xffffffff then size = #bytes - first + 1 end
      if size > #bytes - first + 1 then return nil, "the data end too early" end
      return format, bytes:sub(first, first + size - 1)
    elseif size > #bytes - first + 1 then
      return nil, "the data end too early"
    elseif name == "fmt " then
      if size < 16 then return nil, ("a format (fmt) of %d bytes"):format(size) end
      format = bytes:sub(first, first + size - 1)
    end
    at = first + size + size % 2
  end
  return nil, "the data end too early"
end

-- Code, channels, rate, bytes of a frame, and bits of a sample; nil and a message.
local function read_format(text)
  local code, channels, rate, _, frame, bits = string.unpack("<I2I2I4I4I2I2", text)
  if code == EXTENSIBLE then
    if #text < 40 or text:sub(27, 40) ~= TAIL then
      return nil, "its extensible format is unknown"
    end
    code = string.unpack("<I2", text, 25)
  end
  local decoder = decoders[code] and decoders[code][bits]
  if not decoder then
    local name = others[code] or code == INTEGERS and ("integers of %d bits"):format(bits)
      or code == FLOATS and ("floats of %d bits"):format(bits) or ("format 0x%04x"):format(code)
    return nil, name .. " are not read; integers of 8, 16, 24, 32 bits and floats of 32, 64 are"
  end
  if channels < 1 or rate < 1 or frame ~= channels * bits // 8 then
    return nil, ("%d channels of %d bits at %d Hz in frames of %d bytes"):format(channels, bits,
                                                                                rate, frame)
  end
  return decoder, channels, rate, frame
end

--- Decodes the bytes of a file.
-- @return a tensor (channels, time) of dtype and the rate in Hz, or nil and a message
function M.decode(bytes, dtype)
  if #bytes < 12 or bytes:sub(1, 4) ~= "RIFF" or bytes:sub(9, 12) ~= "WAVE" then
    return nil, "not a WAV file" .. kind_of.hint(bytes:sub(1, kind_of.BYTES), "")
  end
  local format, data = chunks(bytes)
  if not format then return nil, "not a good WAV file: " .. data end
  local decoder, channels, rate, frame = read_format(format)
  if not decoder then return nil, "not a good WAV file: " .. channels end
  local n = #data // frame
  if n == 0 then return core.zeros({channels, 0}, {dtype = dtype}), rate end
  local x = decoder(data:sub(1, n * frame), dtype)
  return x:view(n, channels):transpose(1, 2):contiguous(), rate
end

-- Bytes of a sample, code, and the bytes of floats (n) from -1 to 1.
local function integers(bits, dtype)
  local top = 1 << (bits - 1)
  return {bits // 8, INTEGERS, function(x)
    local y = (x:to "f64" * top):round():clamp(-top, top - 1)
    if bits == 8 then return (y + 128):to "u8" end
    return y:to(dtype)
  end}
end
local encoders = {
  u8 = integers(8), i16 = integers(16, "i16"), i24 = integers(24, "i32"),
  i32 = integers(32, "i32"),
  f32 = {4, FLOATS, function(x) return x:to "f32" end},
  f64 = {8, FLOATS, function(x) return x:to "f64" end},
}
M.formats = encoders

--- The bytes of a file.
-- @param x floats (channels, time) on the host
-- @return a string, or nil and a message
function M.encode(x, rate, format)
  local channels, time = x:size(1), x:size(2)
  local size, code, convert = table.unpack(encoders[format])
  local body = size * channels * time
  if body > 0xffffff00 then return nil, "a WAV file has at most 4 GiB" end
  if x:isnan():any():item() then return nil, "there are samples that are NaN" end
  local y = convert(x:transpose(1, 2):contiguous():view(-1))
  if size == 3 and body > 0 then
    y = core.from_bytes(y:bytes(), "u8", {channels * time, 4}):narrow(2, 1, 3):contiguous()
  end
  local extra = code == FLOATS and string.pack("<I2c4I4I4", 0, "fact", 4, time) or ""
  local head = string.pack("<I2I2I4I4I2I2", code, channels, rate, rate * size * channels,
                           size * channels, 8 * size)
  local rest = string.pack("<c4I4", "fmt ", code == FLOATS and 18 or 16) .. head .. extra
    .. string.pack("<c4I4", "data", body) .. (body > 0 and y:bytes() or "") .. ("\0"):rep(body % 2)
  return string.pack("<c4I4", "RIFF", 4 + #rest) .. "WAVE" .. rest
end

return M
