--- The IDX format of MNIST and similar data sets, plain or gzipped: magic number, sizes, big-endian
-- data.
local core = require "flare.core"
local kind_of = require "flare.io.kind"

local M = {}

-- Type byte of the magic: dtype and bytes of an element.
local types = {[0x08] = {"u8", 1}, [0x09] = {"i8", 1}, [0x0B] = {"i16", 2},
               [0x0C] = {"i32", 4}, [0x0D] = {"f32", 4}, [0x0E] = {"f64", 8}}

local function content(path)
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local _ <close> = file
  local head
  head, message = file:read(0, 2)
  if not head then return nil, message end
  if head == "\x1f\x8b" then return core.gunzip(file) end
  return file:read()
end

--- Reads a file.
-- @param path of an idx file, gzipped or not
-- @return a tensor of the file's shape and type, or nil and a message
function M.read(path)
  local text, message = content(path)
  if not text then return nil, message end
  local function bad(format, ...)
    return nil, ("%s: "):format(path) .. format:format(...)
  end
  if #text < 4 then return bad("not an idx file: %d bytes, the magic needs 4", #text) end
  local zero1, zero2, code, ndim = text:byte(1, 4)
  if zero1 ~= 0 or zero2 ~= 0 then
    return bad("not an idx file: it begins with %02x %02x, not with 00 00%s", zero1, zero2,
               kind_of.hint(text:sub(1, kind_of.BYTES), path))
  end
  local kind = types[code]
  if not kind then return bad("unknown idx type 0x%02x", code) end
  if ndim < 1 or ndim > 8 then return bad("%d dims, expected 1 to 8", ndim) end
  local start = 4 + 4 * ndim
  if #text < start then
    return bad("the header of %d dims needs %d bytes, the file has %d", ndim, start, #text)
  end
  local shape, total = {}, kind[2]
  for i = 1, ndim do
    shape[i] = string.unpack(">I4", text, 1 + 4 * i)
    -- each product is checked against what a file can hold, so that it cannot wrap around
    if shape[i] > 0 and total > math.maxinteger // shape[i] then
      return bad("the shape overflows")
    end
    total = total * shape[i]
  end
  if #text - start ~= total then
    return bad("%s of (%s) needs %d bytes, the file has %d", kind[1], table.concat(shape, ", "),
               total, #text - start)
  end
  local data = text:sub(start + 1)
  if kind[2] == 1 then return core.from_bytes(data, kind[1], shape) end
  -- reversing all bytes gives little-endian elements in reverse order
  local count = total // kind[2]
  local backwards = core.from_bytes(data:reverse(), kind[1], {count})
  return backwards:flip(1):view(shape)
end

--- Class labels, which files count from 0, as i64 counted from 1.
-- @return a tensor (n), or nil and a message
function M.labels(path)
  local labels, message = M.read(path)
  if not labels then return nil, message end
  if labels:dim() ~= 1 then
    return nil, ("%s: labels have 1 dim, this file has %d"):format(path, labels:dim())
  end
  return labels:to("i64") + 1
end

--- Images and their labels.
-- @return images (n, 1, height, width) as f32 in 0..1 and labels (n), or nil and a message
function M.pairs(images, labels)
  local x, message = M.read(images)
  if not x then return nil, message end
  if x:dim() ~= 3 then
    return nil, ("%s: images have 3 dims, this file has %d"):format(images, x:dim())
  end
  local y
  y, message = M.labels(labels)
  if not y then return nil, message end
  if #x ~= #y then
    return nil, ("%s has %d images, %s has %d labels"):format(images, #x, labels, #y)
  end
  return (x:to("f32") / 255):unsqueeze(2), y
end

return M
