--- The files that TensorBoard reads: records of TensorFlow's TFRecord format with the messages
-- Event, Summary and GraphDef of its protocol buffers, as far as they are written here.
local core = require "flare.core"

local M = {}

local function varint(n)
  local bytes = {}
  while n < 0 or n > 127 do -- a negative number has ten bytes
    bytes[#bytes + 1] = string.char(n & 127 | 128)
    n = n >> 7
  end
  bytes[#bytes + 1] = string.char(n)
  return table.concat(bytes)
end

-- Fields by their number: an integer, a number of 8 or 4 bytes, bytes or a message. Integers and
-- doubles of 0 are left out, as protobuf's encoders do.
local function int(field, n) return n == 0 and "" or varint(field << 3) .. varint(n) end
local function double(field, x)
  return x == 0 and "" or varint(field << 3 | 1) .. string.pack("<d", x)
end
local function float(field, x) return varint(field << 3 | 5) .. string.pack("<f", x) end
local function bytes(field, text) return varint(field << 3 | 2) .. varint(#text) .. text end

local function doubles(field, list)
  local packed = {}
  for k, x in ipairs(list) do packed[k] = string.pack("<d", x) end
  return bytes(field, table.concat(packed))
end

-- A CRC-32C in the form of these files, which also have CRCs of data that contain CRCs.
local function checksum(text)
  local crc = core.crc32c(text)
  return string.pack("<I4", (crc >> 15 | crc << 17) + 0xa282ead8 & 0xffffffff)
end

--- A record of a file.
function M.record(data)
  local length = string.pack("<I8", #data)
  return length .. checksum(length) .. data .. checksum(data)
end

--- An event. @param what a field of Event: one of the functions below
function M.event(time, step, what)
  return double(1, time) .. int(2, step) .. what
end

--- The first event of a file.
function M.version() return bytes(3, "brain.Event:2") end

--- A session that continues here: readers drop events of earlier sessions from this step on.
function M.start() return bytes(7, int(1, 1)) end

-- A value of a summary.
local function value(tag, rest) return bytes(5, bytes(1, bytes(1, tag) .. rest)) end

function M.scalar(tag, x) return value(tag, float(2, x)) end

--- @param h {min =, max =, count =, sum =, squares =, limits =, counts =}
function M.histogram(tag, h)
  return value(tag, bytes(5, double(1, h.min) .. double(2, h.max) .. double(3, h.count)
    .. double(4, h.sum) .. double(5, h.squares) .. doubles(6, h.limits) .. doubles(7, h.counts)))
end

--- @param channels 1, 3 or 4
function M.image(tag, height, width, channels, png)
  return value(tag, bytes(4, int(1, height) .. int(2, width) .. int(3, channels) .. bytes(4, png)))
end

function M.text(tag, text)
  local plugin = bytes(9, bytes(1, bytes(1, "text")))
  local tensor = int(1, 7) .. bytes(2, bytes(2, int(1, 1))) .. bytes(8, text) -- strings, (1)
  return value(tag .. "/text_summary", bytes(8, tensor) .. plugin)
end

-- The attribute of a node that has the shapes of its results.
local function shape_attr(shape)
  local dims = {}
  for k, n in ipairs(shape) do dims[k] = bytes(2, int(1, n)) end
  local list = bytes(1, bytes(7, table.concat(dims)))
  return bytes(5, bytes(1, "_output_shapes") .. bytes(2, list))
end

--- @param nodes a list of {name =, op =, inputs = names, shape = of the result, or nil}
function M.graph(nodes)
  local out = {}
  for k, node in ipairs(nodes) do
    local parts = {bytes(1, node.name), bytes(2, node.op)}
    for _, input in ipairs(node.inputs) do parts[#parts + 1] = bytes(3, input) end
    parts[#parts + 1] = node.shape and shape_attr(node.shape)
    out[k] = bytes(1, table.concat(parts))
  end
  return bytes(4, table.concat(out) .. bytes(4, int(1, 27))) -- the version of the format
end

return M
