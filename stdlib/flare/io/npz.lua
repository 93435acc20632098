--- Several arrays in a file, as NumPy's savez and savez_compressed write them: a zip archive
-- of .npy files.
--
--     local npz = require "flare.io.npz"
--     assert(npz.save("all.npz", {weight = w, bias = b}, {compress = true}))
--     local tensors = assert(npz.load "all.npz")
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local npy = require "flare.io.npy"
local options = require "flare.options"
local zip = require "flare.io.zip"

local M = {}

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

--- Reads the directory; arrays are read by reader:tensor(name).
-- @param opts {limit = bytes}: the most that one compressed array may become, else 4 GiB
-- @return a reader with the field path, or nil and a message
function M.open(path, opts)
  local o = options.check("npz.open", opts, {limit = 1 << 32})
  local source, message = npy.source("npz.open", path)
  if not source then return nil, message end
  local entries
  entries, message = zip.entries(source.read, source.size)
  if not entries then return nil, source.problem or ("%s: %s"):format(path, message) end
  local self = Reader()
  self.path, self._source, self._limit, self._by_name = path, source, o.limit, {}
  for _, e in ipairs(entries) do
    if e.name:sub(-4) ~= ".npy" then
      return nil, ("%s: member '%s' is not an .npy file"):format(path, e.name)
    end
    self._by_name[e.name:sub(1, -5)] = e
  end
  self._entries = entries
  return self
end

--- All arrays of a file.
-- @param opts as for open
-- @return names and tensors, or nil and a message
function M.load(path, opts)
  local reader, message = M.open(path, opts)
  if not reader then return nil, message end
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
  local list = {}
  for key, t in pairs(tensors) do
    local name = key
    if math.type(key) == "integer" then name = ("arr_%d"):format(key - 1) end
    if type(name) ~= "string" or name == "" or not utf8.len(name) or name:find "^/"
       or name:find "[%z\\]" or ("/" .. name .. "/"):find("/../", 1, true) then
      fail("npz.save: %s cannot be an array's name", tostring(key))
    end
    list[#list + 1] = {name = name, tensor = t}
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- Writes tensors, atomically: under the name there is the old file or the whole new one.
-- @param tensors names and tensors, or a list
-- @param opts {compress = true}: as savez_compressed
-- @return true, or nil and a message
function M.save(path, tensors, opts)
  local o = options.check("npz.save", opts, {compress = false})
  if type(path) ~= "string" then
    fail("npz.save: the path must be a string, got %s", type(path))
  end
  if type(tensors) ~= "table" then
    fail("npz.save: a table of names and tensors is expected, got %s", type(tensors))
  end
  local members = {}
  for i, item in ipairs(named(tensors)) do
    local head, t = npy.encode(("npz.save: '%s'"):format(item.name), item.tensor)
    local m = {name = item.name .. ".npy"}
    if o.compress then
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
  return core.file.write_atomic(path, zip.pack(members))
end

return M
