--- The weights in a folder: safetensors files or those of PyTorch, one or many with an index, as
-- one set of tensors by name.
local class = require "flare.class"
local core = require "flare.core"
local config = require "flare.models.config"
local safetensors = require "flare.io.safetensors"

local M = {}

local SINGLE = {"model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors",
                "diffusion_pytorch_model.bin"}

-- A file of PyTorch with the methods of a safetensors reader. Its tensors map the file.
local Pickled = class("Pickled")

function Pickled:entries()
  local list = {}
  for name, x in pairs(self.tensors) do
    if type(name) == "string" and core.is_tensor(x) then
      list[#list + 1] = {name = name, dtype = x.dtype, stored = "pickled", shape = x.shape}
    end
  end
  return list
end

function Pickled:tensor(name) return self.tensors[name]:contiguous() end

function Pickled:copy(name, to)
  core.no_grad(to.copy_, to, self.tensors[name])
  return true
end

function Pickled:close() self.tensors = {} end

local function open_file(path)
  if path:find "%.safetensors$" then return safetensors.open(path) end
  local tensors, message = require("flare.io.pt").load(path, {map = true})
  if not tensors then return nil, message end
  local self = Pickled()
  self.tensors = type(tensors) == "table" and tensors or {}
  return self
end

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
  local reader, message = open_file(path)
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

-- The name of a file, of a variant, "fp16" in "model.fp16.safetensors".
local function of(variant, name)
  return variant and (name:gsub("%.%w+$", function(ending) return "." .. variant .. ending end))
    or name
end

--- Opens the weights of a folder.
-- @param variant of the files, or nil
-- @return an object with entry, map, copy and close, or nil and a message
function M.open(folder, variant)
  local self, files, map, index = Weights(folder), nil, nil, nil
  for _, name in ipairs(SINGLE) do
    local path = ("%s/%s"):format(folder, of(variant, name .. ".index.json"))
    name = of(variant, name)
    if core.file.exists(path) then
      index = path
      files, map = files_of_index(index)
      if not files then return nil, map end
      break
    elseif core.file.exists(folder .. "/" .. name) then
      files = {name}
      break
    end
  end
  if not files then
    return nil, ("%s: there is no %s%s"):format(folder, of(variant, SINGLE[1]),
                                                    contents(folder))
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
      return nil, ("%s: \"%s\" should be in %s and is not"):format(index, name, file)
    end
  end
  return self
end

return M
