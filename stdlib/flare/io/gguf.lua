--- GGUF files, as llama.cpp has them: metadata and tensors, quantised ones in blocks. Tensors come
-- out as f32 or in the float type of the file; blocks are converted while they are read.
--
--     local reader = assert(flare.io.gguf.open "model.gguf")
--     print(reader.metadata["general.architecture"], reader:tensor("output.weight").shape)
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local kind = require "flare.io.kind"
local options = require "flare.options"
local Cursor = require "flare.io.cursor"
local blocks = require "flare.io.gguf_blocks"

local M = {}

local PIECE = 4 << 20 -- bytes of blocks that are converted at once

-- Types that are no blocks: number in files, dtype, bytes.
local plain = {f32 = {0, 4}, f16 = {1, 2}, i8 = {24, 1}, i16 = {25, 2}, i32 = {26, 4},
               i64 = {27, 8}, f64 = {28, 8}, bf16 = {30, 2}}

local by_number = {}
for name, t in pairs(plain) do by_number[t[1]] = {name = name, numbers = 1, bytes = t[2]} end
for name, t in pairs(blocks.types) do
  by_number[t[1]] = {name = name, numbers = t[2], bytes = t[3], blocks = true}
end

-- Types of metadata: number in files, format, bytes.
local scalars = {[0] = {"<I1", 1}, {"<i1", 1}, {"<I2", 2}, {"<i2", 2}, {"<I4", 4}, {"<i4", 4},
                 {"<f", 4}, {"<I1", 1}, [10] = {"<i8", 8}, [11] = {"<i8", 8}, [12] = {"<d", 8}}
local BOOL, STRING, ARRAY = 7, 8, 9

local function read_string(c, what)
  return c:take(c:count("<i8", 1, "the length of " .. what), what)
end

local function read_value(c, type_, depth)
  if type_ == STRING then return read_string(c, "a string") end
  if type_ == ARRAY then
    local inner = c:unpack "<I4"
    if depth > 4 then c:fail "arrays of the metadata are nested too deep" end
    local least = scalars[inner] and scalars[inner][2] or 8
    local list = {}
    for k = 1, c:count("<i8", least, "an array's length") do
      list[k] = read_value(c, inner, depth + 1)
    end
    return list
  end
  local scalar = scalars[type_]
  if not scalar then c:fail("metadata of type %d at byte %d", type_, c.at) end
  local value = c:unpack(scalar[1])
  if type_ == BOOL then return value ~= 0 end
  return value
end

local function read_metadata(c, n)
  local metadata = {}
  for _ = 1, n do
    local key = read_string(c, "a name")
    if metadata[key] ~= nil then c:fail("the metadata has %q twice", key:sub(1, 60)) end
    metadata[key] = read_value(c, c:unpack "<I4", 0)
  end
  return metadata
end

-- One entry of the list of tensors.
local function read_entry(c)
  local name = read_string(c, "a tensor's name")
  local dims, shape = c:unpack "<I4", {}
  if dims > 8 then
    c:fail("tensor %q has %d dims, at most 8 are supported", name:sub(1, 60), dims)
  end
  local elements = 1
  for k = dims, 1, -1 do -- the last size comes first
    local size = c:unpack "<i8"
    if size < 0 or size > 0 and elements > math.maxinteger // 16 // size then
      c:fail("the shape of tensor %q overflows", name:sub(1, 60))
    end
    shape[k], elements = size, elements * size
  end
  local number = c:unpack "<I4"
  local t = by_number[number] or {name = "type " .. number}
  local e = {name = name, shape = shape, stored = t.name, offset = c:unpack "<i8", type = t}
  if t.numbers then
    if elements > 0 and (shape[dims] or 1) % t.numbers ~= 0 then
      c:fail("tensor %q of %s has rows of %d numbers, which are no whole blocks of %d",
             name:sub(1, 60), t.name, shape[dims] or 1, t.numbers)
    end
    e.bytes = elements // t.numbers * t.bytes
    e.dtype = t.blocks and "f32" or t.name
  end
  return e
end

local function check_places(c, entries, start, align)
  for _, e in ipairs(entries) do
    local room = c.size - start
    if e.offset < 0 or e.offset % align ~= 0 then
      c:fail("tensor %q begins at %d, no multiple of %d", e.name:sub(1, 60), e.offset, align)
    elseif e.offset > room or (e.bytes or 0) > room - e.offset then
      c:fail("tensor %q needs bytes %d to %d, the file has %d of data", e.name:sub(1, 60), e.offset,
             e.offset + (e.bytes or 0), math.max(room, 0))
    end
  end
end

local function read_header(file, path)
  local c = Cursor(file, path)
  if c.size < 4 or c:take(4) ~= "GGUF" then
    c:fail("not a GGUF file%s", kind.hint(file:read(0, kind.BYTES) or "", path))
  end
  local version = c:unpack "<I4"
  if version ~= 2 and version ~= 3 then
    c:fail(version > 0xffff and "version %d: the file is big-endian, which flare does not read"
      or "version %d, flare reads 2 and 3", version)
  end
  local count = c:count("<i8", 24, "the number of tensors")
  local metadata = read_metadata(c, c:count("<i8", 13, "the number of metadata"))
  local align = metadata["general.alignment"] or 32
  if math.type(align) ~= "integer" or align < 1 or align > 1 << 20 then
    c:fail("general.alignment is %s", tostring(align))
  end
  local entries, by_name = {}, {}
  for k = 1, count do
    local e = read_entry(c)
    if by_name[e.name] then c:fail("the tensor %q is there twice", e.name:sub(1, 60)) end
    entries[k], by_name[e.name] = e, e
  end
  local start = (c.at + align - 1) // align * align
  check_places(c, entries, start, align)
  return {metadata = metadata, entries = entries, by_name = by_name, start = start}
end

local Reader = class("Reader")

--- Names, types and shapes in the order of the file.
-- @return a list of {name, dtype, shape, stored}: `stored` is the type in the file, such as q4_k
function Reader:entries()
  local list = {}
  for k, e in ipairs(self._head.entries) do
    list[k] = {name = e.name, dtype = e.dtype or e.stored, stored = e.stored,
               shape = table.move(e.shape, 1, #e.shape, 1, {})}
  end
  return list
end

local function find(self, name)
  if not self._file then return nil, self.path .. ": the reader is closed" end
  local e = self._head.by_name[name]
  if not e then
    return nil, ('%s: there is no tensor "%s"%s'):format(self.path, tostring(name),
      options.hint(tostring(name), self._head.by_name))
  elseif not e.bytes then
    return nil, ('%s: tensor "%s" is of %s, which flare does not read'):format(self.path, name,
                                                                            e.stored)
  end
  return e
end

-- n bytes of a tensor from byte `at` on, or nil and a message.
local function bytes_of(self, e, at, n)
  local text, message = self._file:read(self._head.start + e.offset + at, n)
  if not text then return nil, message end
  if #text ~= n then return nil, self.path .. ": the file became shorter while it was read" end
  return text
end

--- Copies a tensor into another of its shape, of any dtype and on any device, piece by piece.
-- @return true, or nil and a message
function Reader:copy(name, to)
  options.tensor("copy", "the destination", to)
  local e, message = find(self, name)
  if not e then return nil, message end
  if table.concat(e.shape, ",") ~= table.concat(to.shape, ",") then
    fail("copy: '%s' is (%s), the destination is (%s)", name, table.concat(e.shape, ", "),
         table.concat(to.shape, ", "))
  end
  local _ <close> = core.no_grad()
  local rows = e.shape[1] or 1
  if e.bytes == 0 then return true end
  local row = e.bytes // rows
  if e.type.blocks and row % e.type.bytes ~= 0 then rows, row = 1, e.bytes end -- one dim of blocks
  local step = math.max(1, PIECE // row)
  for at = 1, rows, step do
    local n = math.min(step, rows - at + 1)
    local text, problem = bytes_of(self, e, (at - 1) * row, n * row)
    if not text then return nil, problem end
    local x = e.type.blocks and blocks.read(e.stored, text)
      or core.from_bytes(text, e.stored, {#text // e.type.bytes})
    if rows == 1 then
      to:copy_(x:view(e.shape))
    else
      local part = to:narrow(1, at, n)
      part:copy_(x:view(part.shape))
    end
  end
  return true
end

--- One tensor by its name: in its own dtype, or in f32 if it is quantised.
-- @param opts `map = true` maps a tensor that is not quantised instead of copying it; see
--   safetensors
-- @return the tensor, or nil and a message
function Reader:tensor(name, opts)
  local o = options.check("tensor", opts, {map = false})
  local e, message = find(self, name)
  if not e then return nil, message end
  if o.map and not e.type.blocks and e.bytes > 0 then
    if not self._map then
      self._map, message = self._file:map()
      if not self._map then return nil, message end
    end
    local first = self._head.start + e.offset
    if #self._map < first + e.bytes then
      return nil, self.path .. ": the file became shorter while it was read"
    end
    return self._map:tensor(first, e.stored, e.shape)
  end
  local x = core.empty(e.shape, {dtype = e.dtype})
  local ok, problem = self:copy(name, x)
  if not ok then return nil, problem end
  return x
end

--- Closes the file; tensors that map it remain valid.
function Reader:close()
  if self._map then self._map:close() end
  if self._file then self._file:close() end
  self._map, self._file = nil, nil
end
Reader.__close = Reader.close

function Reader:__tostring()
  return ("GGUF reader: %s, %d tensors%s"):format(self.path, #self._head.entries,
                                                 self._file and "" or ", closed")
end

--- Reads and checks the header; reader:tensor(name) reads data.
-- @return a reader with the fields path and metadata, or nil and a message
function M.open(path)
  if type(path) ~= "string" then
    fail("gguf.open: the path must be a string, got %s", options.kind(path))
  end
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local head
  head, message = Cursor.guard(read_header, file, path)
  if not head then
    file:close()
    return nil, message
  end
  local self = Reader()
  self.path, self.metadata, self._head, self._file = path, head.metadata, head, file
  return self
end

--- All tensors of a file.
-- @return names and tensors, and the metadata; or nil and a message
function M.load(path, opts)
  local reader, message = M.open(path)
  if not reader then return nil, message end
  local _ <close> = reader
  local tensors = {}
  for _, e in ipairs(reader:entries()) do
    tensors[e.name], message = reader:tensor(e.name, opts)
    if not tensors[e.name] then return nil, message end
  end
  return tensors, reader.metadata
end

---------------------------------------------------------------- writing

local function string_text(s) return string.pack("<s8", s) end

-- A value of the metadata as its type and its bytes.
local function value_text(where, value)
  if type(value) == "string" then return STRING, string_text(value) end
  if type(value) == "boolean" then return BOOL, value and "\1" or "\0" end
  if math.type(value) == "integer" then
    if value >= 0 and value <= 0xffffffff then return 4, string.pack("<I4", value) end
    return 11, string.pack("<i8", value)
  end
  if type(value) == "number" then return 6, string.pack("<f", value) end
  if type(value) ~= "table" or #value == 0 then
    fail("gguf.save: the metadata '%s' is a %s; strings, numbers, booleans and lists of them are "
      .. "written", where, options.kind(value))
  end
  local parts, first = {}, nil
  for k, each in ipairs(value) do
    local number, text = value_text(where, each)
    first = first or number
    if number ~= first then fail("gguf.save: the list '%s' has values of several types", where) end
    parts[k] = text
  end
  return ARRAY, string.pack("<I4i8", first, #value) .. table.concat(parts)
end

-- The type of a tensor in the file and what is written of it.
local function stored(name, x, types)
  local as = type(types) == "table" and types[name] or type(types) == "string" and types or nil
  if as and blocks.types[as] and not blocks.writes(as) then
    fail("gguf.save: %s is read but not written%s", as, options.hint(as, blocks.writable()))
  end
  if as and blocks.writes(as) then
    if x:dim() > 0 and x:size(-1) % 32 == 0 and x:numel() > 0 then
      return blocks.types[as][1], blocks.write(as, x:to "cpu")
    end
    if type(types) == "table" then
      fail("gguf.save: '%s' has rows of %d numbers, no multiple of 32", name, x:size(-1))
    end
    as = "f32"
  end
  as = as or x.dtype
  if not plain[as] then
    fail("gguf.save: '%s' as %s, which cannot be written%s", name, as, options.hint(as, plain))
  end
  return plain[as][1], x:to(as)
end

--- Writes tensors and metadata to a file, atomically.
-- @param tensors names and tensors
-- @param metadata names and values: strings, numbers, booleans, lists of one of these
-- @param opts `types`: the type of each tensor by its name, or one for all that it fits: q8_0,
--   q4_0, q4_1, q5_0, q5_1, f32, f16, bf16; by default tensors keep their dtype
-- @return true, or nil and a message
function M.save(path, tensors, metadata, opts)
  local o = options.check("gguf.save", opts, {types = options.none})
  if type(path) ~= "string" or type(tensors) ~= "table" then
    fail("gguf.save: a path and a table of names and tensors are expected")
  end
  local names, head, infos, data, at = {}, {}, {}, {}, 0
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  local keys = {}
  for key in pairs(metadata or {}) do
    if key ~= "general.alignment" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for k, key in ipairs(keys) do
    local number, text = value_text(key, metadata[key])
    head[k] = string_text(key) .. string.pack("<I4", number) .. text
  end
  for _, name in ipairs(names) do
    local x = options.tensor("gguf.save", name, tensors[name]):detach()
    local number, written = stored(name, x, o.types)
    local sizes = {}
    for k = x:dim(), 1, -1 do sizes[#sizes + 1] = string.pack("<i8", x:size(k)) end
    infos[#infos + 1] = string_text(name) .. string.pack("<I4", x:dim()) .. table.concat(sizes)
      .. string.pack("<I4i8", number, at)
    local padding = -written:nbytes() % 32
    data[#data + 1], data[#data + 2] = written, ("\0"):rep(padding)
    at = at + written:nbytes() + padding
  end
  local text = "GGUF" .. string.pack("<I4i8i8", 3, #names, #keys) .. table.concat(head)
    .. table.concat(infos)
  return core.file.write_atomic(path, text .. ("\0"):rep(-#text % 32), data)
end

return M
