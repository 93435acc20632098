--- Trees of values in one file: tables, numbers, strings, booleans and tensors.
--
-- The file is safetensors; its metadata hold the tree as JSON, in which a tensor is
-- {"$tensor": name}, and one checksum over everything: names, types, shapes, the bytes of
-- each tensor, and the tree. A tensor that occurs twice is stored once.
local core = require "flare.core"
local fail = require "flare.fail"
local safetensors = require "flare.io.safetensors"

local M = {}

local FORMAT, VERSION = "flare.tree", "1"
local DEPTH = 100

local function is_list(t)
  local n = #t
  local count = 0
  for key in pairs(t) do
    if math.type(key) ~= "integer" or key < 1 or key > n then return false end
    count = count + 1
  end
  return count == n and n > 0
end

-- JSON has no NaN, no infinities: those and names that begin with "$" are wrapped.
local function encode(value, path, tensors, names, depth)
  if depth > DEPTH then
    fail("save: the tree is nested more than %d deep at '%s...'", DEPTH, path:sub(1, 40))
  end
  local kind = type(value)
  if kind == "number" then
    if value ~= value then return {["$number"] = "nan"} end
    if value == math.huge then return {["$number"] = "inf"} end
    if value == -math.huge then return {["$number"] = "-inf"} end
    return value
  elseif kind == "string" or kind == "boolean" then
    if kind == "string" and not utf8.len(value) then
      return {["$bytes"] = (value:gsub(".", function(c) return ("%02x"):format(c:byte()) end))}
    end
    return value
  elseif core.is_tensor(value) then
    local id = value.id
    if not names[id] then
      names[id] = path
      tensors[path] = value
    end
    return {["$tensor"] = names[id]}
  elseif kind ~= "table" then
    local name = getmetatable(value)
    fail("save: cannot write a %s (at '%s')", name == "flare.tensor" and "closed tensor"
         or type(name) == "string" and kind == "userdata" and name or kind, path)
  elseif type(value.state_dict) == "function" then
    fail("save: cannot write a %s (at '%s'); write what its state_dict() gives",
         (getmetatable(value) or {}).__name or "module", path)
  end
  local out = {}
  local list = is_list(value)
  for key, inner in pairs(value) do
    if not list and type(key) ~= "string" then
      fail("save: keys are strings or 1, 2, 3 ...; got %s (at '%s')", tostring(key), path)
    end
    local name = list and key or key:gsub("^%$", "$$")
    out[name] = encode(inner, path == "" and tostring(key) or path .. "." .. tostring(key),
                       tensors, names, depth + 1)
  end
  return out
end

local function decode(value, tensors)
  if type(value) ~= "table" then return value end
  local special = next(value)
  if type(special) == "string" and special:find("^%$[^$]") and next(value, special) == nil then
    local inner = value[special]
    if special == "$tensor" then
      return tensors[inner] or error(("the tensor '%s' is missing"):format(tostring(inner)), 0)
    elseif special == "$number" then
      if inner == "nan" then return 0 / 0 end
      return inner == "inf" and math.huge or -math.huge
    elseif special == "$bytes" then
      return (inner:gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))
    end
    error(("unknown kind of value '%s'"):format(special), 0)
  end
  local out = {}
  for key, inner in pairs(value) do
    if type(key) == "string" then key = key:gsub("^%$%$", "$") end
    out[key] = decode(inner, tensors)
  end
  return out
end

-- What the checksum covers, as one text.
local function digest(tensors, tree)
  local names, parts = {}, {}
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local t = tensors[name]
    parts[#parts + 1] = ("%s\0%s\0%s\0%08x\n"):format(name, t.dtype, table.concat(t.shape, ","),
                                                    core.crc32c(t))
  end
  parts[#parts + 1] = tree
  return ("%08x"):format(core.crc32c(table.concat(parts)))
end

--- Writes a tree to a file, atomically.
-- @return true, or nil and a message
function M.save(path, tree)
  if type(path) ~= "string" then fail("save: the path must be a string, got %s", type(path)) end
  if core.is_tensor(tree) then fail "save: a tensor alone goes to a path that ends in .npy" end
  if type(tree) ~= "table" then fail("save: a table is expected, got %s", type(tree)) end
  local tensors = {}
  local json = core.json.encode(encode(tree, "", tensors, {}, 0))
  -- bytes in order and on the host, once for the checksum and for writing
  for name, t in pairs(tensors) do tensors[name] = t:detach():to("cpu"):contiguous() end
  local metadata = {format = FORMAT, version = VERSION, tree = json,
                    crc32c = digest(tensors, json)}
  return safetensors.save(path, tensors, metadata)
end

--- Reads a file that save wrote and verifies its checksum; of any other safetensors file the names
-- and tensors.
-- @return the tree, or nil and a message that names the file and what is wrong
function M.load(path)
  local tensors, metadata = safetensors.load(path)
  if not tensors then return nil, metadata end
  local function bad(format, ...)
    return nil, ("%s: "):format(path) .. format:format(...)
  end
  if metadata.format ~= FORMAT then -- another program's, or ours with its name spoiled
    if not (metadata.tree or metadata.crc32c) then return tensors end
    return bad("the checksum does not match: the file is damaged")
  end
  if metadata.version ~= VERSION then
    return bad("format version %s, this flare reads %s", tostring(metadata.version), VERSION)
  end
  local json = metadata.tree
  if not json or digest(tensors, json) ~= metadata.crc32c then
    return bad("the checksum does not match: the file is damaged")
  end
  local decoded, message = core.json.decode(json)
  if decoded == nil then return bad("%s", message) end
  local ok, tree = pcall(decode, decoded, tensors)
  if not ok then return bad("%s", tree) end
  return tree
end

return M
