--- Files of tensors in the safetensors format, strictly checked.
--
--     local safetensors = require "flare.io.safetensors"
--     assert(safetensors.save("model.safetensors", model:state_dict()))
--     model:load_state_dict(assert(safetensors.load("model.safetensors")))
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local header = require "flare.io.header"
local options = require "flare.options"

local M = {}

local Reader = class("Reader")

--- Names, dtypes and shapes in the order of the file.
-- @return a list of {name, dtype, shape}
function Reader:entries()
  local list = {}
  for i, e in ipairs(self._entries) do
    list[i] = {name = e.name, dtype = e.dtype, shape = table.move(e.shape, 1, #e.shape, 1, {})}
  end
  return list
end

-- Bytes of a file are 0 or 1 in a good bool tensor; anything else counts as true.
local function as_bool(x, dtype)
  return dtype == "bool" and x:ne(0) or x
end

--- One tensor by its name.
-- @param opts {map = true}: over the file's memory, without copying. The file must not be
--   cut short as long as such a tensor lives (saving over it by this library is fine).
-- @return the tensor, or nil and a message
function Reader:tensor(name, opts)
  local o = options.check("tensor", opts, {map = false})
  local e = self._by_name[name]
  if not e then
    return nil, ('%s: there is no tensor "%s"%s'):format(self.path, tostring(name),
                                                      options.hint(tostring(name), self._by_name))
  end
  local stored = e.dtype == "bool" and "u8" or e.dtype
  local bytes = e.last - e.first
  if bytes == 0 then return core.zeros(e.shape, {dtype = e.dtype}) end
  if o.map then
    if not self._map then
      local map, message = core.file.map(self.path)
      if not map then return nil, message end
      self._map = map
    end
    if #self._map < self._start + e.last then
      return nil, ('%s: "%s" needs %d bytes, the file has %d'):format(
        self.path, name, self._start + e.last, #self._map)
    end
    return as_bool(self._map:tensor(self._start + e.first, stored, e.shape), e.dtype)
  end
  local text, message = core.file.read(self.path, self._start + e.first, bytes)
  if not text then return nil, message end
  if #text ~= bytes then
    return nil, ('%s: "%s" needs %d bytes, the file has %d'):format(self.path, name, bytes, #text)
  end
  return as_bool(core.from_bytes(text, stored, e.shape), e.dtype)
end

--- Forgets the file; tensors over its memory stay good.
function Reader:close()
  if self._map then self._map:close() end
  self._map = nil
end
Reader.__close = Reader.close

--- Reads and checks the header; data are read by reader:tensor(name).
-- @return a reader with the fields path and metadata, or nil and a message
function M.open(path)
  if type(path) ~= "string" then
    fail("safetensors.open: the path must be a string, got %s", type(path))
  end
  local head, message = core.file.read(path, 0, 8)
  if not head then return nil, message end
  local stat
  stat, message = core.file.stat(path)
  if not stat then return nil, message end
  local function bad(problem)
    return nil, ("%s: %s"):format(path, problem)
  end
  local length
  length, message = header.length(head, stat.size)
  if not length then return bad(message) end
  local text
  text, message = core.file.read(path, 8, length)
  if not text then return nil, message end
  if #text ~= length then return bad("the file became shorter while it was read") end
  local entries, metadata = header.parse(text, stat.size - 8 - length)
  if not entries then return bad(metadata) end
  local self = Reader()
  self.path, self.metadata = path, metadata
  self._entries, self._by_name, self._start = entries, {}, 8 + length
  for _, e in ipairs(entries) do self._by_name[e.name] = e end
  return self
end

--- All tensors of a file.
-- @param opts {map = true} as for reader:tensor
-- @return names and tensors, and the file's metadata (names and strings); or nil and a message
function M.load(path, opts)
  local reader, message = M.open(path)
  if not reader then return nil, message end
  local tensors = {}
  for _, e in ipairs(reader._entries) do
    local t, problem = reader:tensor(e.name, opts)
    if not t then return nil, problem end
    tensors[e.name] = t
  end
  reader:close()
  return tensors, reader.metadata
end

--- Writes tensors to a file, atomically: under its name there is the old file or the whole
-- new one. Wide dtypes come first, each group by name, so that every tensor is aligned.
-- @param tensors names and tensors
-- @param metadata names and strings, or nil
-- @return true, or nil and a message
function M.save(path, tensors, metadata)
  if type(path) ~= "string" then
    fail("safetensors.save: the path must be a string, got %s", type(path))
  end
  if type(tensors) ~= "table" then
    fail("safetensors.save: a table of names and tensors is expected, got %s", type(tensors))
  end
  local entries = {}
  for name, t in pairs(tensors) do
    if type(name) ~= "string" or name == "__metadata__" or not utf8.len(name) then
      fail("safetensors.save: %s cannot be a tensor's name", tostring(name))
    end
    if not core.is_tensor(t) then
      fail("safetensors.save: '%s' is a %s, not a tensor", name, type(t))
    end
    entries[#entries + 1] = {name = name, dtype = t.dtype, shape = t.shape, bytes = t:nbytes(),
                             size = t:element_size(), tensor = t}
  end
  table.sort(entries, function(a, b)
    if a.size ~= b.size then return a.size > b.size end
    return a.name < b.name
  end)
  for key, value in pairs(metadata or {}) do
    if type(key) ~= "string" or type(value) ~= "string" then
      fail("safetensors.save: metadata are names and strings")
    end
  end
  local data = {}
  for i, e in ipairs(entries) do data[i] = e.tensor end
  return core.file.write_atomic(path, header.make(entries, metadata), data)
end

return M
