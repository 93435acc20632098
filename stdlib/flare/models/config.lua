--- Configurations of published models: config.json as a table, with the defaults of its class.
--
-- `null` in a file, and in a table of defaults, is false in a configuration: a field that was set
-- to nothing, as opposed to one that the file leaves out. The metatable of a configuration has the
-- names of these fields, so that they are written as null again.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local json = core.json
local M = {null = json.null}

-- Fields that every class has, by the library that reads its files. Those of generation and of
-- training programs are not among them.
local common = {
  transformers = {tie_word_embeddings = true, initializer_range = 0.02, architectures = json.null,
                  model_type = "", dtype = json.null, num_labels = json.null, id2label = json.null,
                  bos_token_id = json.null, eos_token_id = json.null, pad_token_id = json.null},
  diffusers = {},
}

-- Whether a table is a published configuration, or that of another class: those may have fields
-- that a class does not know.
local function is_published(given)
  if (getmetatable(given) or {}).__name == "configuration" then return true end
  return given.model_type ~= nil or given.architectures ~= nil or given._class_name ~= nil
end

--- The configuration of a class: `given` over the defaults. Names in `config_names` are those that
-- the class uses for fields that files call otherwise, such as hidden_size for n_embd.
-- @param class with the fields config_defaults and config_names (or nil)
-- @param given a table of fields; without model_type and architectures, a name that the class does
--   not know is an error
function M.make(class, given)
  local where = class.__name
  given = given or {}
  if type(given) ~= "table" then
    fail("%s: a table of options is expected, got %s", where, options.kind(given))
  end
  local known, out, nulls = {}, {}, {}
  local function put(name, value)
    nulls[name] = value == json.null or nil
    out[name] = value ~= json.null and value
  end
  local shared = common[class.library or "transformers"]
  for _, defaults in ipairs{shared, class.config_defaults or {}} do
    for name, value in pairs(defaults) do
      known[name] = value
      put(name, value)
    end
  end
  -- other classes of the library that reads a file may not know a field that was not given
  for name in pairs(nulls) do nulls[name] = "left out" end
  local of = (getmetatable(given) or {}).nulls or {}
  for name, value in pairs(given) do
    if known[name] == nil and not is_published(given) then
      fail("%s: unknown option '%s'%s", where, tostring(name), options.hint(tostring(name), known))
    end
    local default = known[name]
    put(name, value)
    if value == false and default ~= nil and type(default) ~= "boolean" then
      nulls[name] = of[name] or true
    end
  end
  for name, there in pairs(class.config_names or {}) do
    if out[there] ~= nil then out[name] = out[there] end
  end
  return setmetatable(out, {__name = "configuration", nulls = nulls})
end

--- How many classes a configuration names: num_labels, or the entries of id2label.
function M.labels(config)
  if config.num_labels then return config.num_labels end
  local n = 0
  for _ in pairs(config.id2label or {}) do n = n + 1 end
  return n > 0 and n or 2
end

--- The configuration as it is written to config.json.
-- @param dtype of the weights, in flare's words
function M.published(class, config, dtype)
  local out, nulls = {}, getmetatable(config).nulls
  for name, value in pairs(config) do
    if value ~= false or not nulls[name] then
      out[name] = value
    elseif nulls[name] ~= "left out" then
      out[name] = json.null
    end
  end
  for name, there in pairs(class.config_names or {}) do
    if out[there] ~= nil then out[name] = nil end
  end
  if class.library == "diffusers" then
    out._class_name = class.__name
    return out
  end
  local long = {f32 = "float32", f64 = "float64", f16 = "float16", bf16 = "bfloat16"}
  out.torch_dtype, out.dtype = nil, long[dtype]
  out.architectures, out.model_type = {class.__name}, class.model_type
  return out
end

--- A table of a folder's JSON file, or nil and a message.
function M.read(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local value
  value, message = json.decode(text)
  if value == nil then return nil, ("%s: %s"):format(path, message) end
  if type(value) ~= "table" or value == json.null or value[1] ~= nil then
    return nil, path .. ": not a JSON object"
  end
  return value
end

return M
