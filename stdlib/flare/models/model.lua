--- The base class of published models: a module with a configuration, which `save` writes to a
-- folder as it is published, and the text models made of it.
local class = require "flare.class"
local configs = require "flare.models.config"
local core = require "flare.core"
local fail = require "flare.fail"
local Module = require "flare.nn.module"
local options = require "flare.options"

local Model = class("Model", Module)

--- models.Model(config): an object of a class derived from it, whose `build(config)` makes the
-- layers. Weights are drawn as those of published models are: normal, with the deviation
-- initializer_range.
function Model:init(given, ...)
  local config = configs.make(getmetatable(self), given)
  self.config = config
  self:build(config, ...)
  for _, p in self:named_parameters() do
    if p:dim() > 1 then core.no_grad(p.normal_, p, 0, config.initializer_range or 0.02) end
  end
end

--- The dtype of the weights, that of most of their elements.
function Model:dtype()
  local counts, best = {}, nil
  for _, p in ipairs(self:parameters()) do
    counts[p.dtype] = (counts[p.dtype] or 0) + p:numel()
    if not best or counts[p.dtype] > counts[best] then best = p.dtype end
  end
  return best or "f32"
end

-- Divides tensors into files of at most `most` bytes, in the order of their names.
local function shards(tensors, most)
  local names, files, bytes = {}, {{}}, 0
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local size = tensors[name]:nbytes()
    if bytes > 0 and bytes + size > most then
      files[#files + 1], bytes = {}, 0
    end
    files[#files][name] = tensors[name]
    bytes = bytes + size
  end
  return files
end

-- Writes the weights, in one file or in several with an index; true, or nil and a message.
-- @param stem of the names of the files
local function save_weights(folder, stem, tensors, most)
  local save = require("flare.io.safetensors").save
  local files, index, total = shards(tensors, most), {}, 0
  local single = ("%s/%s.safetensors"):format(folder, stem)
  if #files == 1 then return save(single, tensors, {format = "pt"}) end
  for k, part in ipairs(files) do
    local file = ("%s-%05d-of-%05d.safetensors"):format(stem, k, #files)
    local ok, message = save(folder .. "/" .. file, part, {format = "pt"})
    if not ok then return nil, message end
    for name, tensor in pairs(part) do
      index[name] = file
      total = total + tensor:nbytes()
    end
  end
  return core.file.write_atomic(single .. ".index.json",
    core.json.encode{metadata = {total_size = total}, weight_map = index})
end

--- Writes the model to a folder that `models.load` and Hugging Face's transformers, or diffusers,
-- read: config.json, generation_config.json where there is one, and weights in safetensors.
-- @param folder is made if it does not exist
-- @param opts {shard = "5GB", the largest file}
-- @return true, or nil and a message
function Model:save(folder, opts)
  local o = options.check("save", opts, {shard = "5GB"})
  if type(folder) ~= "string" then
    fail("save: the folder is a string, got %s", options.kind(folder))
  end
  local most = options.bytes("save", "shard", o.shard)
  local ok, message = true, nil
  if not core.file.exists(folder) then ok, message = core.file.mkdir(folder) end
  if not ok then return nil, message end
  local cls = getmetatable(self)
  local config = configs.published(cls, self.config, self:dtype())
  local tensors = require("flare.models.weights").published(self)
  if ok then
    config.quantization_config, message = require("flare.models.quantized").publish(self, tensors)
    ok = not message
  end
  local stem = cls.library == "diffusers" and "diffusion_pytorch_model" or "model"
  if ok then ok, message = save_weights(folder, stem, tensors, most) end
  if ok then
    ok, message = core.file.write_atomic(folder .. "/config.json", core.json.encode(config))
  end
  if ok and self.generation then
    ok, message = core.file.write_atomic(folder .. "/generation_config.json",
                                         core.json.encode(self.generation))
  end
  if not ok then return nil, message end
  return true
end

--- How many classes a configuration names.
Model.labels = configs.labels

--- Notes the facts of a class that published files depend on.
-- @param facts `type`, the model_type; `defaults` of the configuration; `names`, fields that the
--   class calls otherwise than config.json: {ours = theirs}; `tensors`, rules as in names.lua;
--   `prefix` of the names of tensors that files of the body alone leave out; `ignored`, patterns of
--   tensors in files that the class does not need
-- @return the class
function Model.publish(cls, facts)
  cls.model_type, cls.config_defaults, cls.config_names = facts.type, facts.defaults, facts.names
  cls.tensor_names, cls.tensor_prefix = facts.tensors, facts.prefix
  cls.ignored_tensors = facts.ignored
  local known = {}
  for name, value in pairs(facts.defaults) do
    local plain = type(value) == "number" or type(value) == "string" or type(value) == "boolean"
    if plain then known[name] = value end
  end
  local text = options.describe("", known):gsub("^%((.*)%)$", "%1"):gsub("=", " = ")
  cls.about = {("models.%s({%s})"):format(cls.__name, text),
               "The options are the fields of config.json; these are the defaults."}
  return cls
end

function Model:describe()
  return self.config.model_type or ""
end

return Model
