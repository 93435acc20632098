--- Files of tensors in the safetensors format, strictly checked.
--
--     local safetensors = require "flare.io.safetensors"
--     assert(safetensors.save("model.safetensors", model:state_dict()))
--     model:load_state_dict(assert(safetensors.load("model.safetensors")))
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local header = require "flare.io.header"
local kind = require "flare.io.kind"
local options = require "flare.options"

local M = {}

local PIECE = 4 << 20 -- bytes that are read at once

local Reader = class("Reader")

--- Names, dtypes and shapes in the order of the file.
-- @return a list of {name, dtype, shape, stored}: `dtype` is what reader:tensor gives, `stored`
--   what the file has ("U16" is read as i32); of a type that flare cannot read both are the file's
function Reader:entries()
  local list = {}
  for i, e in ipairs(self._entries) do
    list[i] = {name = e.name, dtype = e.dtype, stored = e.stored,
               shape = table.move(e.shape, 1, #e.shape, 1, {})}
  end
  return list
end

function Reader:__tostring()
  return ("safetensors reader: %s, %d tensors%s"):format(self.path, #self._entries,
                                                        self._file and "" or ", closed")
end

-- Converts a tensor that was read: bytes of bool other than 0 count as true; unsigned integers
-- become the next wider signed type.
local function convert(x, e)
  if e.dtype == "bool" then return x:ne(0) end
  if e.mask == -1 then
    if x:numel() > 0 and x:min():item() < 0 then
      return nil, "unsigned 64-bit numbers above 2^63 - 1 do not fit i64"
    end
    return x
  end
  return e.mask and core.bitwise_and(x:to(e.dtype), e.mask) or x
end

-- The entry of a name; nil and a message.
local function find(self, name)
  if not self._file then return nil, ("%s: the reader is closed"):format(self.path) end
  local e = self._by_name[name]
  if e then return e end
  return nil, ('%s: there is no tensor "%s"%s'):format(self.path, tostring(name),
                                                    options.hint(tostring(name), self._by_name))
end

local function unsupported(self, e)
  return ('%s: unsupported dtype "%s" for tensor "%s"'):format(self.path, e.stored:sub(1, 40),
                                                             e.name)
end

-- n bytes of a tensor from byte `at` on; nil and a message.
local function read_bytes(self, e, at, n)
  local text, message = self._file:read(self._start + e.first + at, n)
  if not text then return nil, message end
  if #text ~= n then return nil, self.path .. ": the file became shorter while it was read" end
  return text
end

--- One tensor by its name.
-- @param opts {map = true}: maps the file into memory instead of copying it. The file must not be
--   truncated as long as such a tensor exists; save over it by this library is safe.
-- @return the tensor, or nil and a message
function Reader:tensor(name, opts)
  local o = options.check("tensor", opts, {map = false})
  local e, message = find(self, name)
  if not e then return nil, message end
  if not e.reads then return nil, unsupported(self, e) end
  local bytes = e.last - e.first
  if bytes == 0 then return core.zeros(e.shape, {dtype = e.dtype}) end
  local function short(size)
    return nil, ('%s: "%s" needs %d bytes, the file has %d'):format(self.path, name, bytes, size)
  end
  local x
  if o.map then
    if not self._map then
      self._map, message = self._file:map()
      if not self._map then return nil, message end
    end
    if #self._map < self._start + e.last then
      return short(math.max(#self._map - self._start - e.first, 0))
    end
    x = self._map:tensor(self._start + e.first, e.reads, e.shape)
  else
    local text
    text, message = self._file:read(self._start + e.first, bytes)
    if not text then return nil, message end
    if #text ~= bytes then return short(#text) end
    x = core.from_bytes(text, e.reads, e.shape)
  end
  x, message = convert(x, e)
  if not x then return nil, ('%s: "%s": %s'):format(self.path, name, message) end
  return x
end

--- Copies a tensor into another of its shape, of any dtype and on any device, piece by piece:
-- memory holds no more than a few MiB of it twice.
-- @return true, or nil and a message
function Reader:copy(name, to)
  options.tensor("copy", "the destination", to)
  local e, message = find(self, name)
  if not e then return nil, message end
  if not e.reads then return nil, unsupported(self, e) end
  if table.concat(e.shape, ",") ~= table.concat(to.shape, ",") then
    fail("copy: '%s' is (%s), the destination is (%s)", name, table.concat(e.shape, ", "),
         table.concat(to.shape, ", "))
  end
  local _ <close> = core.no_grad()
  local bytes, rows = e.last - e.first, e.shape[1] or 1
  if bytes == 0 then return true end
  local row = bytes // rows
  local step = math.max(1, PIECE // row)
  for at = 1, rows, step do
    local n = math.min(step, rows - at + 1)
    local text, problem = read_bytes(self, e, (at - 1) * row, n * row)
    if not text then return nil, problem end
    local shape = {table.unpack(e.shape)}
    if shape[1] then shape[1] = n end
    local piece
    piece, problem = convert(core.from_bytes(text, e.reads, shape), e)
    if not piece then return nil, ('%s: "%s": %s'):format(self.path, name, problem) end
    (e.shape[1] and to:narrow(1, at, n) or to):copy_(piece)
  end
  return true
end

--- The CRC-32C of a tensor's bytes as they are in the file, read piece by piece.
-- @return an integer, or nil and a message
function Reader:crc32c(name)
  local e, message = find(self, name)
  if not e then return nil, message end
  local crc = 0
  for at = e.first, e.last - 1, PIECE do
    local n = math.min(PIECE, e.last - at)
    local text, problem = read_bytes(self, e, at - e.first, n)
    if not text then return nil, problem end
    crc = core.crc32c(text, crc)
  end
  return crc
end

--- Closes the file; tensors that map it remain valid.
function Reader:close()
  if self._map then self._map:close() end
  if self._file then self._file:close() end
  self._map, self._file = nil, nil
end
Reader.__close = Reader.close

-- The header of an open file; nil and a message.
local function read_header(file, path)
  local function bad(problem)
    return nil, ("%s: %s"):format(path, problem)
  end
  local head, message = file:read(0, kind.BYTES)
  if not head then return nil, message end
  -- all such files have '{' after the length; otherwise it is another format, and its first bytes
  -- are not a length
  if head:byte(9) ~= 0x7b then
    local what = kind.describe(head, path)
    if #head < 8 then
      return bad(("header too small (%d bytes, need 8)%s"):format(
        #head, what and "; the file is " .. what or ""))
    elseif what then
      return bad("this is not a safetensors file; it is " .. what)
    elseif #head > 8 then
      return bad "not a safetensors file: invalid header: it does not begin with '{'"
    end
  end
  local length
  length, message = header.length(head, #file)
  if not length then return bad(message) end
  local text
  text, message = file:read(8, length)
  if not text then return nil, message end
  if #text ~= length then return bad("the file became shorter while it was read") end
  local entries, metadata = header.parse(text, #file - 8 - length)
  if not entries then return bad(metadata) end
  return entries, metadata, 8 + length
end

--- Reads and checks the header; reader:tensor(name) reads data. The reader keeps the file open, so
-- a file that replaces it under its name has no effect.
-- @return a reader with the fields path and metadata, or nil and a message
function M.open(path)
  if type(path) ~= "string" then
    fail("safetensors.open: the path must be a string, got %s", options.kind(path))
  end
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local entries, metadata, start = read_header(file, path)
  if not entries then
    file:close()
    return nil, metadata
  end
  local self = Reader()
  self.path, self.metadata, self._file = path, metadata, file
  self._entries, self._by_name, self._start = entries, {}, start
  for _, e in ipairs(entries) do self._by_name[e.name] = e end
  return self
end

--- All tensors of a file.
-- @param opts {map = true} as for reader:tensor
-- @return names and tensors, and the file's metadata (names and strings); or nil and a message
function M.load(path, opts)
  local reader, message = M.open(path)
  if not reader then return nil, message end
  local _ <close> = reader
  local tensors, others = {}, "; reader:tensor(name) of safetensors.open(path) reads the others"
  for _, e in ipairs(reader._entries) do -- before any data are read
    if not e.reads then return nil, select(2, reader:tensor(e.name)) .. others end
  end
  for _, e in ipairs(reader._entries) do
    local t, problem = reader:tensor(e.name, opts)
    if not t then return nil, problem end
    tensors[e.name] = t
  end
  return tensors, reader.metadata
end

-- Names and tensors as entries of a header: wide dtypes first, each group by name.
local function list_entries(tensors)
  local entries = {}
  for name, t in pairs(tensors) do
    if type(name) ~= "string" or name == "__metadata__" or not utf8.len(name)
       or name:find "\0" then
      fail("safetensors.save: %s cannot be a tensor's name",
           type(name) == "string" and ("%q"):format(name) or tostring(name))
    end
    if not core.is_tensor(t) then
      fail("safetensors.save: '%s' is a %s, not a tensor", name, type(t))
    end
    local dtype = t.dtype
    if not header.names[dtype] then
      fail("safetensors.save: '%s' is %s, which the format does not have", name, dtype)
    end
    entries[#entries + 1] = {name = name, dtype = dtype, shape = t.shape, bytes = t:nbytes(),
                             size = t:element_size(), tensor = t}
  end
  table.sort(entries, function(a, b)
    if a.size ~= b.size then return a.size > b.size end
    return a.name < b.name
  end)
  return entries
end

--- Writes tensors to a file, atomically: at any time the path has the old file or the complete new
-- one. Wide dtypes come first, each group by name, so that every tensor is aligned.
-- @param tensors names and tensors
-- @param metadata names and strings, or nil
-- @return true, or nil and a message
function M.save(path, tensors, metadata)
  if type(path) ~= "string" then
    fail("safetensors.save: the path comes first and must be a string, got %s", options.kind(path))
  end
  if type(tensors) ~= "table" then
    fail("safetensors.save: a table of names and tensors is expected, got %s",
      options.kind(tensors))
  end
  local entries = list_entries(tensors)
  for key, value in pairs(metadata or {}) do
    if type(key) ~= "string" or type(value) ~= "string" then
      fail("safetensors.save: metadata are names and strings")
    elseif not utf8.len(key) or key:find "\0" or not utf8.len(value) then
      fail("safetensors.save: the metadata '%s' must be UTF-8, its name without zero bytes",
           ("%q"):format(key))
    end
  end
  local data = {}
  for i, e in ipairs(entries) do data[i] = e.tensor end
  local head, problem = header.make(entries, metadata)
  if not head then fail("save: %s could not be read back: %s", path, problem) end
  return core.file.write_atomic(path, head, data)
end

return M
