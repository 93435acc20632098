--- Loading a folder as it is published: config.json, the weights, generation_config.json.
local configs = require "flare.models.config"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- The class of a configuration, or nil and a message. Files of diffusers have its name under
-- _class_name, others under architectures; `as` is another name or nil.
local function class_of(path, config, as)
  local models, names = require "flare.models", config.architectures
  local name = as or type(names) == "table" and names[1] or config._class_name
  if type(name) ~= "string" then return nil, path .. ": it has no architectures" end
  local known = require "flare.models.index"
  local class = known[name] and models[name]
  if type(class) == "table" and class.config_defaults then return class end
  return nil, ("%s: the architecture %s is not known%s"):format(path, name,
                                                               options.hint(name, known))
end

-- The table of a folder's config.json, or nil and a message. A folder of a pipeline has none.
local function config_of(folder)
  local config, message = configs.read(folder .. "/config.json")
  local pipeline = not config and configs.read(folder .. "/model_index.json")
  if not pipeline then return config, message end
  local parts = {}
  for name in pairs(pipeline) do
    if core.file.exists(("%s/%s"):format(folder, name)) then parts[#parts + 1] = name end
  end
  table.sort(parts)
  return nil, ("%s: it is a pipeline, whose parts are loaded one by one%s"):format(folder,
    #parts > 0 and ": " .. table.concat(parts, ", ") or "")
end

-- The scheduler of a folder, or nil and a message.
local function load_scheduler(path, as)
  local config, message = configs.read(path)
  if not config then return nil, message end
  local class
  class, message = class_of(path, config, as)
  if not class then return nil, message end
  local ok, made = pcall(class, config)
  if ok then return made end
  return nil, ("%s: %s"):format(path, (tostring(made):gsub("^[^\n:]+:%d+: ", "")))
end

-- Fields that say how many modules are made.
local repeats = {num_hidden_layers = true, n_layer = true, encoder_layers = true,
  decoder_layers = true, num_experts = true, num_local_experts = true, depths = true,
  num_layers = true, layers_per_block = true, transformer_layers_per_block = true}

-- A message if a configuration asks for more modules than the files have tensors, or nil: a module
-- has one at least, and a wrong number should not take memory.
local function too_many(config, limit)
  for name, value in pairs(config) do
    local n = repeats[name] and (type(value) == "table" and value or {value}) or {}
    for _, count in ipairs(n) do
      if type(count) == "number" and count > limit then
        return ("%s is %s, the files have %d tensors"):format(name, tostring(count), limit)
      end
    end
    local nested = type(value) == "table" and tostring(name):find "_config$"
    local inner = nested and too_many(value, limit)
    if inner then return ("%s: %s"):format(name, inner) end
  end
end

-- The model that a configuration describes, without values; nil and a message.
local function build(folder, class, config, weights)
  local n = 0
  for _ in pairs(weights.entries) do n = n + 1 end
  local problem = too_many(config, n)
  local ok, model
  if not problem then ok, model = pcall(core.meta, class, config) end
  if ok then return model end
  problem = problem or tostring(model):gsub("^[^\n:]+:%d+: ", "") -- the line of the caller
  return nil, ("%s: the configuration makes no model: %s"):format(folder, problem)
end

--- Loads a model from a folder in Hugging Face's layout: config.json, generation_config.json, and
-- weights in safetensors or in pytorch_model.bin, one file or several with an index; or from a GGUF
-- file, whose blocks become f32 unless `dtype` says otherwise. The model is in evaluation mode. A
-- folder with scheduler_config.json gives a scheduler of diffusion.
-- On the CPU its tensors map the files: pages are read when they are first used, and no second
-- copy exists. Do not truncate such a file while the model is in use; replacing it is safe.
-- @param folder a path of a folder, or of a .gguf file
-- @param opts `dtype` of floating tensors, by default as stored; `device`, by default that of new
--   tensors; `map = false` copies the weights instead; `strict = false` ignores tensors in the
--   files that are none of the model; `as`, the name of a class in place of that in the files;
--   `variant` of the files, such as "fp16" for model.fp16.safetensors
-- @return the model, or nil and a message, which lists what is missing, unknown or of another
--   shape
function M.load(folder, opts)
  local o = options.check("models.load", opts, {dtype = options.none, device = options.none,
                                                as = options.none, variant = options.none,
                                                map = true, strict = true})
  if type(folder) ~= "string" then
    fail("models.load: the folder is a string, got %s", options.kind(folder))
  end
  local config, message, weights
  if folder:find "%.gguf$" then
    config, weights = require("flare.models.gguf").open(folder)
    if not config then return nil, weights end
  else
    local scheduler = folder .. "/scheduler_config.json"
    if core.file.exists(scheduler) then return load_scheduler(scheduler, o.as) end
    config, message = config_of(folder)
    if not config then return nil, message end
  end
  local class
  class, message = class_of(folder .. "/config.json", config, o.as)
  if class and not weights then
    weights, message = require("flare.models.files").open(folder, o.variant)
  end
  local _ <close> = weights
  if not class or not weights then return nil, message end
  local model
  model, message = build(folder, class, config, weights)
  if not model then return nil, message end
  if type(config.quantization_config) == "table" then
    weights, message = require("flare.models.quantized").open(folder, model, config, weights)
    if not weights then return nil, message end
  end
  local ok
  o.device = o.device or core.zeros(0).device
  ok, message = require("flare.models.weights").fill(model, weights, o)
  if not ok then return nil, message end
  local path = folder .. "/generation_config.json"
  if core.file.exists(path) then
    model.generation, message = configs.read(path)
    if not model.generation then return nil, message end
  end
  return model:eval()
end

return M
