--- One array in a file, as NumPy's save writes it.
--
--     local npy = require "flare.io.npy"
--     assert(npy.save("x.npy", x))        -- numpy.load("x.npy")
--     local y = assert(npy.load "y.npy")  -- numpy.save("y.npy", y)
local core = require "flare.core"
local fail = require "flare.fail"
local header = require "flare.io.npy_header"
local kind = require "flare.io.kind"
local options = require "flare.options"

local M = {}

local function backwards(list)
  local out = {}
  for i, value in ipairs(list) do out[#list + 1 - i] = value end
  return out
end

-- The numbers n, n - 1, ... 1: a permutation that reverses dims.
local function reverse_dims(x, n)
  local order = {}
  for i = 1, n do order[i] = n + 1 - i end
  return x:permute(order)
end

-- Converts to the dtype that flare has: unsigned integers become the next wider signed type.
local function convert(x, h)
  if h.becomes == "bool" then return x:ne(0) end
  if h.becomes == "complex" then return h.big and core.view_as_complex(x) or x end
  if h.becomes == "unsigned" then
    if x:numel() > 0 and x:min():item() < 0 then
      return nil, "unsigned 64-bit numbers above 2^63 - 1 do not fit i64"
    end
    return x
  end
  return h.becomes and core.bitwise_and(x:to(h.becomes), h.mask) or x
end

--- The tensor in a source of bytes (see npy_header.parse; `map` may be a mapped file).
-- @return a tensor, or nil and a message without the file's name
function M.decode(source)
  if type(source) ~= "table" or type(source.read) ~= "function" then
    fail("npy.decode: a table with size and read is expected, got %s", options.kind(source))
  end
  local h, message = header.parse(source)
  if not h then return nil, message end
  local shape = h.fortran and backwards(h.shape) or h.shape
  local n, dtype = #shape, h.dtype
  if h.becomes == "complex" and h.big then -- parts of numbers, which are turned round one by one
    if n == 8 then
      return nil, "8 dims, at most 7 are supported of complex numbers in big-endian order"
    end
    shape = table.move(shape, 1, n, 1, {})
    shape[n + 1] = 2
  elseif h.becomes == "complex" then
    dtype = dtype == "f32" and "c64" or "c128"
  end
  local x
  if h.bytes == 0 then
    x = core.zeros(shape, {dtype = dtype})
  elseif source.map and not h.big then
    if #source.map < h.start + h.bytes then return nil, "the file became shorter" end
    x = source.map:tensor(h.start, dtype, shape)
  else
    local text
    text, message = source.read(h.start, h.bytes)
    if not text then return nil, message end
    if #text ~= h.bytes then return nil, "the file became shorter while it was read" end
    if h.big then -- all bytes backwards are the elements backwards
      x = core.from_bytes(text:reverse(), dtype):flip(1):view(shape)
    else
      x = core.from_bytes(text, dtype, shape)
    end
  end
  x, message = convert(x, h)
  if x and h.fortran then x = reverse_dims(x, n):contiguous() end
  return x, message
end

--- A file as a source of bytes, held open as `file`; `problem` is the last message of the system,
-- with the path.
-- @param where the function's name, for errors
-- @return the source, or nil and a message
function M.source(where, path)
  if type(path) ~= "string" then
    fail("%s: the path must be a string, got %s", where, options.kind(path))
  end
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local source = {size = #file, file = file}
  function source.read(first, n)
    local text, problem = file:read(first, n)
    source.problem = problem
    return text, problem
  end
  return source
end

--- Reads a file.
-- @param opts {map = true}: maps the file into memory instead of copying it, if no conversion is
--   needed. The file must not be truncated as long as the tensor exists.
-- @return the tensor, or nil and a message
function M.load(path, opts)
  local o = options.check("npy.load", opts, {map = false})
  local source, message = M.source("npy.load", path)
  if not source then return nil, message end
  local _ <close> = source.file
  if o.map then
    source.map, message = source.file:map()
    if not source.map then return nil, message end
  end
  local x
  x, message = M.decode(source)
  if source.map then source.map:close() end
  if x then return x end
  if source.problem then return nil, source.problem end
  local head = source.read(0, kind.BYTES) or ""
  return nil, ("%s: %s%s"):format(path, message,
                                  head:sub(1, 6) ~= "\x93NUMPY" and kind.hint(head, path) or "")
end

--- The bytes of a file as pieces: a header and a tensor on the host, in order.
-- @param where the function's name, for errors
-- @param message the reason that a reader returned with nil instead of x; the error has it
function M.encode(where, x, message)
  if not core.is_tensor(x) then
    fail("%s: a tensor is expected, got %s%s", where, options.kind(x), options.reason(x, message))
  end
  if not header.names[x.dtype] then
    fail("%s: NumPy has no %s; save x:to(\"f32\")", where, x.dtype)
  end
  local t = x:detach():to("cpu"):contiguous()
  return header.make(t.dtype, t.shape), t
end

--- Writes a tensor, atomically: at any time the path has the old file or the complete new one.
-- @return true, or nil and a message
function M.save(path, x, message)
  if type(path) ~= "string" then
    fail("npy.save: the path comes first and must be a string, got %s", options.kind(path))
  end
  return core.file.write_atomic(path, M.encode("npy.save", x, message))
end

return M
