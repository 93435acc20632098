--- One array in a file, as NumPy's save writes it.
--
--     local npy = require "flare.io.npy"
--     assert(npy.save("x.npy", x))        -- numpy.load("x.npy")
--     local y = assert(npy.load "y.npy")  -- numpy.save("y.npy", y)
local core = require "flare.core"
local fail = require "flare.fail"
local header = require "flare.io.npy_header"
local options = require "flare.options"

local M = {}

local function backwards(list)
  local out = {}
  for i, value in ipairs(list) do out[#list + 1 - i] = value end
  return out
end

-- Dims of n sizes the other way round.
local function reverse_dims(x, n)
  local order = {}
  for i = 1, n do order[i] = n + 1 - i end
  return x:permute(order)
end

-- What the file's type becomes: unsigned integers the next wider type that holds them.
local function convert(x, h)
  if h.becomes == "bool" then return x:ne(0) end
  if h.becomes == "complex" then return x end
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
  local h, message = header.parse(source)
  if not h then return nil, message end
  local shape = h.fortran and backwards(h.shape) or h.shape
  local n, complex = #shape, h.becomes == "complex"
  if complex then
    if n == 8 then return nil, "8 dims, at most 7 are supported of complex numbers" end
    shape = table.move(shape, 1, n, 1, {})
    shape[n + 1] = 2
  end
  local x
  if h.bytes == 0 then
    x = core.zeros(shape, {dtype = h.dtype})
  elseif source.map and not h.big then
    if #source.map < h.start + h.bytes then return nil, "the file became shorter" end
    x = source.map:tensor(h.start, h.dtype, shape)
  else
    local text
    text, message = source.read(h.start, h.bytes)
    if not text then return nil, message end
    if #text ~= h.bytes then return nil, "the file became shorter while it was read" end
    if h.big then -- all bytes backwards are the elements backwards
      x = core.from_bytes(text:reverse(), h.dtype):flip(1):view(shape)
    else
      x = core.from_bytes(text, h.dtype, shape)
    end
  end
  if complex then x = core.view_as_complex(x) end
  if h.fortran then x = reverse_dims(x, n):contiguous() end
  return convert(x, h)
end

--- A file as a source of bytes; its `problem` is what the system last said, which has the path.
-- @param where the function's name, for errors
-- @return the source, or nil and a message
function M.source(where, path)
  if type(path) ~= "string" then
    fail("%s: the path must be a string, got %s", where, type(path))
  end
  local head, message = core.file.read(path, 0, 1) -- a folder has a size, too
  if not head then return nil, message end
  local stat
  stat, message = core.file.stat(path)
  if not stat then return nil, message end
  local source = {size = stat.size}
  function source.read(first, n)
    local text, problem = core.file.read(path, first, n)
    source.problem = problem
    return text, problem
  end
  return source
end

--- Reads a file.
-- @param opts {map = true}: over the file's memory, without copying where its bytes are as they
--   are needed. The file must not be cut short as long as the tensor lives.
-- @return the tensor, or nil and a message
function M.load(path, opts)
  local o = options.check("npy.load", opts, {map = false})
  local source, message = M.source("npy.load", path)
  if not source then return nil, message end
  if o.map then
    source.map, message = core.file.map(path)
    if not source.map then return nil, message end
  end
  local x
  x, message = M.decode(source)
  if source.map then source.map:close() end
  if not x then return nil, source.problem or ("%s: %s"):format(path, message) end
  return x
end

--- The bytes of a file as pieces: a header and a tensor on the host, in order.
-- @param where the function's name, for errors
function M.encode(where, x)
  if not core.is_tensor(x) then
    fail("%s: a tensor is expected, got %s", where, type(x))
  end
  if not header.names[x.dtype] then
    fail("%s: NumPy has no %s; save x:to(\"f32\")", where, x.dtype)
  end
  local t = x:detach():to("cpu"):contiguous()
  return header.make(t.dtype, t.shape), t
end

--- Writes a tensor, atomically: under the name there is the old file or the whole new one.
-- @return true, or nil and a message
function M.save(path, x)
  if type(path) ~= "string" then
    fail("npy.save: the path must be a string, got %s", type(path))
  end
  return core.file.write_atomic(path, M.encode("npy.save", x))
end

return M
