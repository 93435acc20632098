--- Files of PyTorch (.pt, .pth, .bin): tensors in dictionaries and lists, read without running
-- anything. Both layouts are read: the zip archive of version 1.6 and later, and the older one.
--
--     local state = assert(flare.io.pt.load "resnet18.pth")
--     model:load_state_dict(flare.nn.from_pytorch(state))
local core = require "flare.core"
local fail = require "flare.fail"
local kind = require "flare.io.kind"
local options = require "flare.options"
local Cursor = require "flare.io.cursor"
local pickle = require "flare.io.pickle"
local zip = require "flare.io.zip"

local M = {}

--- What None becomes in the tables that `load` returns.
M.None = pickle.None

local PICKLE = 256 << 20 -- the largest pickle, without its tensors
local sizes = {f64 = 8, i64 = 8, c64 = 8, f32 = 4, i32 = 4, f16 = 2, bf16 = 2, i16 = 2, i8 = 1,
               u8 = 1, bool = 1, c128 = 16}

-- A tensor over its storage: a function for pickle.resolve. `open(storage)` gives a 1-d tensor.
local function maker(open)
  local tensors = {}
  return function(p)
    local s = p.storage
    local name = s.dtype .. " " .. s.key
    tensors[name] = tensors[name] or open(s)
    local all = tensors[name]
    if s.count == 0 then return core.zeros(p.shape, {dtype = s.dtype}) end
    return all:as_strided(p.shape, p.stride, p.offset)
  end
end

-- The archive's members by the part of their names behind the folder.
local function members(c, file)
  local function read(first, n) return file:read(first, n) end
  local entries, message = zip.entries(read, #file)
  if not entries then c:fail("%s", message) end
  local by_name, folder = {}, nil
  for _, e in ipairs(entries) do
    folder = folder or e.name:match "^(.-)data%.pkl$"
  end
  if not folder then c:fail "the archive has no data.pkl: it is no file of torch.save" end
  for _, e in ipairs(entries) do
    if e.name:sub(1, #folder) == folder then by_name[e.name:sub(#folder + 1)] = e end
  end
  return by_name, read
end

local function load_zip(c, file, o)
  local by_name, read = members(c, file)
  local function extract(name, limit)
    local e = by_name[name]
    if not e then c:fail("the archive has no %s", name) end
    local text, message = zip.extract(read, e, limit)
    if not text then c:fail("%s", message) end
    return text
  end
  if by_name.byteorder and extract("byteorder", 64):find "big" then
    c:fail "the tensors are big-endian, which flare does not read"
  end
  local value = pickle.read(Cursor(extract("data.pkl", PICKLE), c.path .. ": data.pkl"))
  local map
  return pickle.resolve(value, maker(function(s)
    local name, bytes = "data/" .. s.key, s.count * sizes[s.dtype]
    local e = by_name[name]
    if not e then c:fail("the archive has no %s", name) end
    if e.size < bytes then
      c:fail("%s has %d bytes, its tensors need %d", name, e.size, bytes)
    end
    if bytes == 0 then return core.zeros(0, {dtype = s.dtype}) end
    local start, message = zip.data_start(read, e)
    if not start then c:fail("%s", message) end
    if not o.map or e.method ~= 0 or s.dtype == "bool" then
      local text = extract(name, math.maxinteger):sub(1, bytes)
      if s.dtype == "bool" then return core.from_bytes(text, "u8", {s.count}):ne(0) end
      return core.from_bytes(text, s.dtype, {s.count})
    end
    map = map or assert(file:map())
    if start + bytes > #map then c:fail "the file became shorter while it was read" end
    return map:tensor(start, s.dtype, {s.count})
  end))
end

local MAGIC = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" -- of the older layout

-- The older layout: pickles of a magic number, a version, sizes of types, the value, a list of
-- storages' keys; then each storage: its count and its bytes.
local function load_old(c)
  local head = c:take(math.min(c.size, 20))
  if not head:find(MAGIC, 1, true) then
    c:fail "not a file of torch.save; flare reads pickles of tensors only"
  end
  c.at = head:find(MAGIC, 1, true) - 1 + #MAGIC
  if c:take(1) ~= "." then c:fail "not a file of torch.save" end
  pickle.read(c)
  pickle.read(c)
  local value, keys = pickle.read(c), pickle.read(c)
  local wanted, read = {}, {}
  pickle.resolve(value, function(p)
    local s = p.storage
    if wanted[s.key] and (wanted[s.key].dtype ~= s.dtype or wanted[s.key].count ~= s.count) then
      c:fail("storage %s has two types", s.key)
    end
    wanted[s.key] = s
    return p
  end)
  if type(keys) ~= "table" then c:fail "it has no list of storages" end
  for _, key in ipairs(keys) do
    local s = wanted[key]
    if not s then c:fail("nothing refers to storage %s", tostring(key):sub(1, 40)) end
    if c:unpack "<i8" ~= s.count then c:fail("storage %s has another size", key) end
    local text = c:take(s.count * sizes[s.dtype], "storage " .. key)
    read[key] = core.from_bytes(text, s.dtype == "bool" and "u8" or s.dtype, {s.count})
    if s.dtype == "bool" then read[key] = read[key]:ne(0) end
  end
  return pickle.resolve(value, maker(function(s)
    return read[s.key] or c:fail("storage %s is missing", s.key)
  end))
end

--- Reads what torch.save wrote: dictionaries, lists and tuples become tables, None becomes
-- `pt.None`, tensors that share memory still do. Objects and functions are refused by name: save
-- `model.state_dict()` in PyTorch, not the model.
-- @param opts {map = true} maps the file into memory instead of copying it; checksums are verified
--   without it only
-- @return the value, or nil and a message
function M.load(path, opts)
  local o = options.check("pt.load", opts, {map = false})
  if type(path) ~= "string" then
    fail("pt.load: the path must be a string, got %s", options.kind(path))
  end
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local head
  head, message = file:read(0, kind.BYTES)
  if not head then
    file:close()
    return nil, message
  end
  local value
  value, message = Cursor.guard(function()
    local c = Cursor(file, path)
    if head:sub(1, 4) == "PK\3\4" then return load_zip(c, file, o) end
    if head:sub(1, 1) ~= "\x80" then
      c:fail("not a file of PyTorch%s", kind.hint(head, path))
    end
    return load_old(c)
  end)
  file:close()
  return value, message
end

return M
