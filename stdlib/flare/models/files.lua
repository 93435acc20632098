--- The weights in a folder: safetensors files, one or many with an index, as one set of tensors by
-- name.
local class = require "flare.class"
local core = require "flare.core"
local config = require "flare.models.config"
local safetensors = require "flare.io.safetensors"

local M = {}

local INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

local Weights = class("Weights")

--- The name, dtype and shape of a tensor, or nil.
function Weights:entry(name) return self.entries[name] end

--- A tensor that maps its file, or nil and a message.
function Weights:map(name)
  return self.readers[name]:tensor(name, {map = true})
end

--- Copies a tensor into another of its shape, on any device and of any dtype, piece by piece.
-- @return true, or nil and a message
function Weights:copy(name, to)
  return self.readers[name]:copy(name, to)
end

--- Closes the files; tensors that map them remain valid.
function Weights:close()
  for _, reader in ipairs(self.open) do reader:close() end
end
Weights.__close = Weights.close

function Weights:init(folder)
  self.folder, self.entries, self.readers, self.open = folder, {}, {}, {}
end

-- Adds a file's tensors; true, or nil and a message.
function Weights:add(path)
  local reader, message = safetensors.open(path)
  if not reader then return nil, message end
  self.open[#self.open + 1] = reader
  for _, e in ipairs(reader:entries()) do
    if self.entries[e.name] then
      return nil, ("%s: the tensor \"%s\" is in another file, too"):format(path, e.name)
    end
    self.entries[e.name], self.readers[e.name] = e, reader
  end
  return true
end

-- The files that an index names, in alphabetical order; nil and a message.
local function files_of_index(path)
  local index, message = config.read(path)
  if not index then return nil, message end
  local seen, files = {}, {}
  if type(index.weight_map) ~= "table" then return nil, path .. ": it has no weight_map" end
  for name, file in pairs(index.weight_map) do
    if type(file) ~= "string" or file:find "[/\\%z]" or file == ".." then
      return nil, ("%s: the file of \"%s\" is not a name in the folder"):format(path,
                                                                           tostring(name))
    end
    if not seen[file] then files[#files + 1] = file end
    seen[file] = true
  end
  table.sort(files)
  return files, index.weight_map
end

-- What is in the folder, for messages.
local function contents(folder)
  local list = core.file.list(folder)
  if not list then return "" end
  table.sort(list)
  if #list == 0 then return "; it has no files" end
  return "; it has " .. table.concat(list, ", ", 1, math.min(#list, 8))
    .. (#list > 8 and (" and %d more"):format(#list - 8) or "")
end

--- Opens the weights of a folder.
-- @return an object with entry, map, copy and close, or nil and a message
function M.open(folder)
  local self, files, map = Weights(folder), {SINGLE}, nil
  if core.file.exists(folder .. "/" .. INDEX) then
    files, map = files_of_index(folder .. "/" .. INDEX)
    if not files then return nil, map end
  elseif not core.file.exists(folder .. "/" .. SINGLE) then
    return nil, ("%s: there is no %s%s"):format(folder, SINGLE, contents(folder))
  end
  for _, file in ipairs(files) do
    local ok, message = self:add(folder .. "/" .. file)
    if not ok then
      self:close()
      return nil, message
    end
  end
  for name, file in pairs(map or {}) do
    if not self.entries[name] then
      self:close()
      return nil, ("%s/%s: \"%s\" should be in %s and is not"):format(folder, INDEX, name, file)
    end
  end
  return self
end

return M
