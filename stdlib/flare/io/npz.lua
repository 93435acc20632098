--- Several arrays in a file, as NumPy's savez and savez_compressed write them: a zip archive
-- of .npy files.
--
--     local npz = require "flare.io.npz"
--     assert(npz.save("all.npz", {weight = w, bias = b}, {compress = true}))
--     local tensors = assert(npz.load "all.npz")
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local kind = require "flare.io.kind"
local npy = require "flare.io.npy"
local options = require "flare.options"
local zip = require "flare.io.zip"

local M = {}

local LIMIT = 1 << 32 -- bytes that one compressed array may become

local Reader = class("Reader")

--- The names, in the order of the file.
function Reader:names()
  local list = {}
  for i, e in ipairs(self._entries) do list[i] = e.name:sub(1, -5) end
  return list
end

--- One tensor by its name.
-- @return the tensor, or nil and a message
function Reader:tensor(name)
  local e = self._by_name[name]
  if not e then
    return nil, ("%s: there is no array '%s'%s"):format(self.path, tostring(name),
                                                      options.hint(tostring(name), self._by_name))
  end
  local source = self._source
  if not source then return nil, ("%s: the reader is closed"):format(self.path) end
  source.problem = nil
  local text, message = zip.extract(source.read, e, self._limit)
  if not text then return nil, source.problem or ("%s: %s"):format(self.path, message) end
  local x
  x, message = npy.decode{size = #text, read = function(first, n)
    return text:sub(first + 1, first + n)
  end}
  if not x then return nil, ("%s: member '%s': %s"):format(self.path, e.name, message) end
  return x
end

function Reader:__tostring()
  return ("npz reader: %s, %d arrays%s"):format(self.path, #self._entries,
                                               self._source and "" or ", closed")
end

--- Closes the file.
function Reader:close()
  if self._source then self._source.file:close() end
  self._source = nil
end
Reader.__close = Reader.close

-- The entries of a source; nil and a message.
local function read_entries(source, path)
  local entries, message = zip.entries(source.read, source.size)
  if not entries and source.problem then return nil, source.problem end
  if not entries then
    local head = source.read(0, kind.BYTES) or ""
    local hint = (head:sub(1, 2) ~= "PK" or head:find "data%.pkl") and kind.hint(head, path) or ""
    return nil, ("%s: %s%s"):format(path, message, hint)
  end
  for _, e in ipairs(entries) do
    if e.name:sub(-4) ~= ".npy" then
      return nil, ("%s: member '%s' is not an .npy file%s"):format(
        path, e.name, kind.hint(source.read(0, kind.BYTES) or "", path))
    end
  end
  return entries
end

--- Reads the directory; the reader keeps the file open. Arrays are read by reader:tensor(name).
-- @param opts {limit = bytes}: the largest size of a decompressed array, by default 4 GiB
-- @return a reader with the field path, or nil and a message
function M.open(path, opts)
  local o = options.check("npz.open", opts, {limit = LIMIT})
  local source, message = npy.source("npz.open", path)
  if not source then return nil, message end
  local entries
  entries, message = read_entries(source, path)
  if not entries then
    source.file:close()
    return nil, message
  end
  local self = Reader()
  self.path, self._source, self._limit, self._by_name = path, source, o.limit, {}
  for _, e in ipairs(entries) do self._by_name[e.name:sub(1, -5)] = e end
  self._entries = entries
  return self
end

--- All arrays of a file.
-- @param opts as for open
-- @return names and tensors, or nil and a message
function M.load(path, opts)
  local reader, message = M.open(path, opts)
  if not reader then return nil, message end
  local _ <close> = reader
  local tensors = {}
  for _, name in ipairs(reader:names()) do
    local t, problem = reader:tensor(name)
    if not t then return nil, problem end
    tensors[name] = t
  end
  return tensors
end

-- A list's elements are arr_0, arr_1 ... as NumPy calls them; names in alphabetical order.
local function named(tensors)
  local list, seen = {}, {}
  for key, t in pairs(tensors) do
    local name = key
    if math.type(key) == "integer" then name = ("arr_%d"):format(key - 1) end
    local ok, why = type(name) == "string" and name ~= "", nil
    if ok then ok, why = zip.check_name(name .. ".npy") end
    if not ok then
      fail("npz.save: %s cannot be an array's name%s",
           type(key) == "string" and ("%q"):format(key:sub(1, 80)) or tostring(key),
           why and ": " .. why or "")
    elseif seen[name] then
      fail("npz.save: two arrays would have the name %s: [%d] and '%s'", name,
           tonumber(name:match "%d+$") + 1, name)
    end
    seen[name] = true
    list[#list + 1] = {name = name, tensor = t}
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- Writes tensors, atomically: at any time the path has the old file or the complete new one.
-- @param tensors names and tensors, or a list
-- @param opts {compress = true}: as savez_compressed
-- @return true, or nil and a message
function M.save(path, tensors, opts)
  if type(path) ~= "string" then
    fail("npz.save: the path comes first and must be a string, got %s", options.kind(path))
  end
  if type(tensors) ~= "table" then
    fail("npz.save: a table of names and tensors is expected, got %s%s", options.kind(tensors),
         options.reason(tensors, opts))
  end
  local o = options.check("npz.save", opts, {compress = false})
  local members = {}
  for i, item in ipairs(named(tensors)) do
    local head, t = npy.encode(("npz.save: '%s'"):format(item.name), item.tensor)
    local m = {name = item.name .. ".npy"}
    if o.compress and #head + t:nbytes() <= LIMIT then -- more than that load would refuse
      local text, crc, size = core.deflate(head, t)
      if not text then return nil, ("%s: %s"):format(path, crc) end
      m.pieces, m.bytes, m.crc, m.size, m.deflated = {text}, #text, crc, size, true
    else
      local crc, message = core.crc32(head)
      if not crc then return nil, ("%s: %s"):format(path, message) end
      m.pieces, m.bytes, m.crc = {head, t}, #head + t:nbytes(), core.crc32(t, crc)
    end
    members[i] = m
  end
  local pieces, problem = zip.pack(members)
  if not pieces then fail("npz.save: %s could not be read back: %s", path, problem) end
  return core.file.write_atomic(path, pieces)
end

return M
