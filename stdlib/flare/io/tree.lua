--- Trees of values in one file: tables, numbers, strings, booleans and tensors.
--
-- The file is safetensors; its metadata hold the tree as JSON, in which a tensor is
-- {"$tensor": name}, and one checksum over everything: names, types, shapes, the bytes of
-- each tensor, and the tree. A tensor that occurs twice is stored once. Long lists of numbers and
-- long strings are stored as tensors, too: {"$list": name}, {"$text": name}.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local safetensors = require "flare.io.safetensors"

local M = {}

-- Version 2 has "$list", "$text", "$key:..." and c128; files that need none of them are version 1.
local FORMAT, VERSIONS = "flare.tree", {["1"] = true, ["2"] = true}
local DEPTH = 100
local LONG_LIST, LONG_TEXT = 256, 4096

local function is_list(t)
  local n = #t
  local count = 0
  for key in pairs(t) do
    if math.type(key) ~= "integer" or key < 1 or key > n then return false end
    count = count + 1
  end
  return count == n and n > 0
end

-- The path in the tree, for the end of an error.
local function place(path)
  return path == "" and "" or (" (at '%s')"):format(path)
end

-- Why a table is neither a list nor a table of names.
local function check_keys(t, path)
  local position, last, name
  for key in pairs(t) do
    if type(key) == "string" then
      name = key
    elseif math.type(key) == "integer" and key >= 1 then
      position, last = position or key, math.max(last or 1, key)
    else
      fail("save: keys are strings or positions 1, 2, 3 ...; got %s, a %s%s",
           tostring(key), type(key), place(path))
    end
  end
  if position and name then
    fail("save: a table has names or positions, not both: this one has '%s' and %d%s",
         name, position, place(path))
  elseif position then
    local hole = 1
    while t[hole] ~= nil do hole = hole + 1 end
    fail("save: a list must have no holes: position %d is nil, %d is not%s", hole, last,
         place(path))
  end
end

-- The state of a save: `tensors` by their names, `names` by the tensors' ids, and whether the file
-- needs version 2.
local Writer = {}
Writer.__index = Writer

-- A name of its own for the tensor at a path.
function Writer:name(path)
  local name, n = path, 1
  if path == "" or path == "__metadata__" or path:find "\0" or not utf8.len(path) then
    path = "tensor"
    name = path
  end
  while self.tensors[name] do
    n = n + 1
    name = ("%s#%d"):format(path, n)
  end
  return name
end

function Writer:tensor(value, path)
  local id = value.id
  if not self.names[id] then
    self.names[id] = self:name(path)
    self.tensors[self.names[id]] = value
    if value.dtype == "c128" then self.new = true end
  end
  return {["$tensor"] = self.names[id]}
end

function Writer:as_tensor(kind, tensor, path)
  local name = self:name(path)
  self.tensors[name], self.new = tensor, true
  return {[kind] = name}
end

-- JSON has no NaN, no infinities, and only UTF-8.
function Writer:scalar(value, path)
  if type(value) == "number" then
    if value ~= value then return {["$number"] = "nan"} end
    if value == math.huge then return {["$number"] = "inf"} end
    if value == -math.huge then return {["$number"] = "-inf"} end
  elseif type(value) == "string" then
    if #value >= LONG_TEXT then
      return self:as_tensor("$text", core.from_bytes(value, "u8"), path)
    elseif not utf8.len(value) then
      return {["$bytes"] = (value:gsub(".", function(c) return ("%02x"):format(c:byte()) end))}
    end
  end
  return value
end

-- A key of an object: "$" in front is doubled, what JSON cannot have is in hexadecimal digits.
function Writer:key(key)
  if utf8.len(key) and not key:find "\0" then return (key:gsub("^%$", "$$")) end
  self.new = true
  return "$key:" .. key:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
end

-- All integers or all floats: "i64", "f64"; else nil.
local function number_list(list)
  local kind = math.type(list[1])
  for i = 1, kind and #list or 0 do
    if math.type(list[i]) ~= kind then return nil end
  end
  return kind == "integer" and "i64" or kind and "f64"
end

function Writer:encode(value, path, depth)
  if depth > DEPTH then
    fail("save: the tree is nested more than %d deep at '%s...'", DEPTH, path:sub(1, 40))
  end
  local kind = type(value)
  if kind == "number" or kind == "string" or kind == "boolean" then
    return self:scalar(value, path)
  elseif core.is_tensor(value) then
    return self:tensor(value, path)
  elseif kind ~= "table" then
    local name = getmetatable(value)
    fail("save: cannot write a %s (at '%s')", name == "flare.tensor" and "closed tensor"
         or type(name) == "string" and kind == "userdata" and name or kind, path)
  elseif type(value.state_dict) == "function" then
    fail("save: cannot write a %s (at '%s'); write what its state_dict() gives",
         (getmetatable(value) or {}).__name or "module", path)
  end
  local list = is_list(value)
  local dtype = list and #value >= LONG_LIST and number_list(value)
  if dtype then
    return self:as_tensor("$list", core.tensor(value, {dtype = dtype, device = "cpu"}), path)
  elseif not list then
    check_keys(value, path)
  end
  local out = {}
  for key, inner in pairs(value) do
    out[list and key or self:key(key)] = self:encode(
      inner, path == "" and tostring(key) or path .. "." .. tostring(key), depth + 1)
  end
  return out
end

local function unhex(text)
  return (text:gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function decode(value, tensors)
  if type(value) ~= "table" then return value end
  local special = next(value)
  if type(special) == "string" and special:find "^%$[^$]" and not special:find "^%$key:"
     and next(value, special) == nil then
    local inner = value[special]
    if type(inner) ~= "string" then
      error(("'%s' must be followed by a string"):format(special), 0)
    elseif special == "$number" then
      if inner == "nan" then return 0 / 0 end
      return inner == "inf" and math.huge or -math.huge
    elseif special == "$bytes" then
      return unhex(inner)
    elseif special ~= "$tensor" and special ~= "$list" and special ~= "$text" then
      error(("unknown kind of value '%s'"):format(special), 0)
    end
    local t = tensors[inner] or error(("the tensor '%s' is missing"):format(inner), 0)
    if special == "$tensor" then return t end
    if special == "$list" and t:dim() ~= 1 then error("a list has more than one dim", 0) end
    return special == "$list" and t:totable() or t:bytes()
  end
  local out = {}
  for key, inner in pairs(value) do
    if type(key) == "string" then
      key = key:find "^%$key:" and unhex(key:sub(6)) or key:gsub("^%$%$", "$")
    end
    out[key] = decode(inner, tensors)
  end
  return out
end

-- The text that the checksum covers.
-- @param parts a list of {name, dtype, shape, crc}
local function digest(parts, tree)
  table.sort(parts, function(a, b) return a.name < b.name end)
  local lines = {}
  for i, part in ipairs(parts) do
    lines[i] = ("%s\0%s\0%s\0%08x\n"):format(part.name, part.dtype,
                                             table.concat(part.shape, ","), part.crc)
  end
  lines[#lines + 1] = tree
  return ("%08x"):format(core.crc32c(table.concat(lines)))
end

local function digest_tensors(tensors, tree)
  local parts = {}
  for name, t in pairs(tensors) do
    parts[#parts + 1] = {name = name, dtype = t.dtype, shape = t.shape, crc = core.crc32c(t)}
  end
  return digest(parts, tree)
end

--- Writes a tree to a file, atomically.
-- @param message the reason that a reader returned with nil instead of a tree; the error has it
-- @return true, or nil and a message
function M.save(path, tree, message)
  if type(path) ~= "string" then
    fail("save: the path comes first and must be a string, got %s", options.kind(path))
  end
  if core.is_tensor(tree) then fail "save: a single tensor needs a path that ends in .npy" end
  if type(tree) ~= "table" then
    fail("save: a table is expected, got %s%s", options.kind(tree), options.reason(tree, message))
  end
  local writer = setmetatable({tensors = {}, names = {}}, Writer)
  local json = core.json.encode(writer:encode(tree, "", 0))
  -- bytes in order and on the host, once for the checksum and for writing
  local tensors = writer.tensors
  for name, t in pairs(tensors) do tensors[name] = t:detach():to("cpu"):contiguous() end
  local metadata = {format = FORMAT, version = writer.new and "2" or "1", tree = json,
                    crc32c = digest_tensors(tensors, json)}
  return safetensors.save(path, tensors, metadata)
end

local function damaged(path)
  return nil, path .. ": the checksum does not match: the file is damaged"
end

-- Whether a file with these metadata is a tree; nil and a message.
local function check_format(path, metadata)
  if metadata.format ~= FORMAT then -- another program's, or ours with its name spoiled
    if not (metadata.tree or metadata.crc32c) then return false end
    return damaged(path)
  end
  if not VERSIONS[metadata.version] then
    return nil, ("%s: format version %s, this flare reads 1 and 2"):format(
      path, tostring(metadata.version))
  end
  if not metadata.tree then return damaged(path) end
  return true
end

--- Verifies a file that save wrote: sizes, checksum, tree.
-- @return true, or nil and a message
function M.verify(path)
  local reader, message = safetensors.open(path)
  if not reader then return nil, message end
  local _ <close> = reader
  local metadata = reader.metadata
  local ours, problem = check_format(path, metadata)
  if not ours then return nil, problem or path .. ": not a file of flare.save" end
  local parts = reader:entries()
  for _, part in ipairs(parts) do
    part.crc, message = reader:crc32c(part.name)
    if not part.crc then return nil, message end
  end
  if digest(parts, metadata.tree) ~= metadata.crc32c then return damaged(path) end
  local tree
  tree, message = core.json.decode(metadata.tree)
  if tree == nil then return nil, ("%s: %s"):format(path, message) end
  return true
end

--- Reads a file that save wrote and verifies its checksum; for any other safetensors file, returns
-- a table of its tensors by name.
-- @return the tree, or nil and a message that names the file and what is wrong
function M.load(path)
  if type(path) ~= "string" then
    fail("load: the path must be a string, got %s", options.kind(path))
  end
  local tensors, metadata = safetensors.load(path)
  if not tensors then return nil, metadata end
  local ours, problem = check_format(path, metadata)
  if ours == nil then return nil, problem end
  if not ours then return tensors end
  local json = metadata.tree
  if digest_tensors(tensors, json) ~= metadata.crc32c then return damaged(path) end
  local decoded, message = core.json.decode(json)
  if decoded == nil then return nil, ("%s: %s"):format(path, message) end
  local ok, tree = pcall(decode, decoded, tensors)
  if ok and type(tree) ~= "table" then ok, tree = false, "there is no table in it" end
  if not ok then return nil, ("%s: %s"):format(path, tostring(tree)) end
  return tree
end

return M
