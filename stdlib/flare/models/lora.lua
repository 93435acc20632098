--- Low-rank adapters beside frozen fully connected layers: LoRA (arXiv:2106.09685), beside
-- quantised ones QLoRA (arXiv:2305.14314), and DoRA (arXiv:2402.09353). Files are those of PEFT.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local initialize = require "flare.nn.initialize"
local Linear = require "flare.nn.linear"
local Module = require "flare.nn.module"
local names = require "flare.models.names"
local options = require "flare.options"
local QuantizedLinear = require "flare.nn.quantized_linear"
local walk = require "flare.nn.walk"

---------------------------------------------------------------- an adapted layer

local Adapted = class("LoraLinear", Module)

-- What floats of the base layer are computed in.
local function dtype_of(base)
  return getmetatable(base) == Linear and base.weight.dtype or "f32"
end

local function weight_of(base)
  if getmetatable(base) == Linear then return base.weight:detach():to "f32" end
  return base:dequantize()
end

function Adapted:init(base, o)
  local device, bound = base.weight.device, 1 / math.sqrt(base.inputs)
  self.base_layer, self.scale = base, o.alpha / (o.rank_stabilized and math.sqrt(o.rank) or o.rank)
  self.rate = o.dropout
  local how = {dtype = dtype_of(base), device = device}
  self.lora_A = self:param(initialize.uniform(o.rank, base.inputs, {low = -bound, high = bound})
    :to(how))
  self.lora_B = self:param(core.zeros(base.outputs, o.rank, how))
  if o.dora then
    local rows = weight_of(base):norm{dims = {2}}
    self.lora_magnitude_vector = self:param(rows:to(how.dtype):detach())
  end
end

-- What the adapter adds to the weight, in f32.
function Adapted:delta()
  return self.lora_B:to "f32":matmul(self.lora_A:to "f32") * self.scale
end

local function activate(act, y)
  if act == "none" then return y end
  if act == "gelu_tanh" then return core.gelu(y, "tanh") end
  return core[act](y)
end

function Adapted:forward(x)
  local base = self.base_layer
  local low = self.rate > 0 and self.training and core.dropout(x, self.rate) or x
  local a, b = self.lora_A:to(x.dtype), self.lora_B:to(x.dtype)
  local y
  if getmetatable(base) == Linear then
    y = core.linear(x, base.weight)
  else
    y = base:product(x)
  end
  y = y + core.linear(core.linear(low, a), b) * self.scale
  if self.lora_magnitude_vector then
    -- the norm is a constant for gradients, as in section 4.3 of the paper
    local size = core.no_grad(function()
      return (weight_of(base) + self:delta()):norm{dims = {2}}
    end)
    y = y * (self.lora_magnitude_vector / size:to(self.lora_magnitude_vector.dtype)):to(y.dtype)
  end
  if base.bias then y = y + base.bias end
  return activate(base.act, y)
end

--- The weight with the adapter, in f32.
function Adapted:merged()
  local w = weight_of(self.base_layer) + self:delta()
  if self.lora_magnitude_vector then
    w = w * (self.lora_magnitude_vector:to "f32" / w:norm{dims = {2}}):unsqueeze(2)
  end
  return w:detach()
end

function Adapted:describe()
  return ("rank %d, scale %g"):format(self.lora_A.shape[1], self.scale)
end

---------------------------------------------------------------- the adapters of a model

local Adapter = class("LoraAdapter")

-- Published name of a layer: that of its weight, without ".weight".
local function published(model, name)
  return (names.there(getmetatable(model), name .. ".weight"):gsub("%.weight$", ""))
end

local function is_target(name, targets)
  if type(targets) == "string" then return name:find(targets) ~= nil end
  for _, target in ipairs(targets) do
    if name == target or name:sub(-#target - 1) == "." .. target then return true end
  end
end

-- Layers that can have an adapter: {name, layer, holder, key}.
local function layers_of(model)
  local list = {}
  walk.visit(model, function(name, module, _, key, holder)
    local cls = getmetatable(module)
    if holder and (cls == Linear or cls == QuantizedLinear) then
      list[#list + 1] = {name = name, layer = module, holder = holder, key = key}
    elseif cls == Adapted then
      fail("lora: the model has adapters; adapter:merge() or adapter:remove() first")
    end
  end, "module")
  return list
end

local defaults = {rank = 8, alpha = 16, targets = {"q_proj", "v_proj"}, dropout = 0, dora = false,
                  rank_stabilized = false}

--- The parameters of the adapters, for an optimizer.
function Adapter:parameters()
  local list = {}
  for _, entry in ipairs(self.entries) do
    for _, p in ipairs{"lora_A", "lora_B", "lora_magnitude_vector"} do
      if entry.adapted[p] then list[#list + 1] = entry.adapted[p] end
    end
  end
  return list
end

--- The number of elements of all parameters.
function Adapter:count()
  local n = 0
  for _, p in ipairs(self:parameters()) do n = n + p:numel() end
  return n
end

--- Puts the adapters into the weights: the layers are nn.Linear again, those of a quantised model
-- too, and the model can be saved.
-- @return the model
function Adapter:merge()
  if self.merged then fail("merge: the adapters are merged already") end
  local _ <close> = core.no_grad()
  for _, entry in ipairs(self.entries) do
    local base = entry.layer
    local weight = entry.adapted:merged():to(dtype_of(base))
    local new = core.meta(Linear, base.inputs, base.outputs,
                          {bias = base.bias ~= nil, act = base.act})
    new.weight = new:param(weight)
    if base.bias then new.bias = new:param(base.bias:detach()) end
    new:freeze()
    new.training = base.training
    entry.holder[entry.key] = new
  end
  self.merged = true
  return self.model
end

--- Takes the adapters out of the weights again; these are what they were.
-- @return the model
function Adapter:unmerge()
  for _, entry in ipairs(self.entries) do entry.holder[entry.key] = entry.adapted end
  self.merged = false
  return self.model
end

--- Removes the adapters; the layers are what they were before.
-- @return the model
function Adapter:remove()
  for _, entry in ipairs(self.entries) do entry.holder[entry.key] = entry.layer end
  self.entries = {}
  return self.model
end

-- PEFT's names of an entry's tensors.
local function tensors_of(self, entry)
  local at = "base_model.model." .. published(self.model, entry.name)
  local out = {[at .. ".lora_A.weight"] = entry.adapted.lora_A,
               [at .. ".lora_B.weight"] = entry.adapted.lora_B}
  out[at .. ".lora_magnitude_vector"] = entry.adapted.lora_magnitude_vector
  return out
end

--- Writes adapter_config.json and adapter_model.safetensors, which PEFT reads.
-- @param folder is made if it does not exist
-- @return true, or nil and a message
function Adapter:save(folder)
  local o, tensors, targets, seen = self.options, {}, {}, {}
  for _, entry in ipairs(self.entries) do
    for name, tensor in pairs(tensors_of(self, entry)) do tensors[name] = tensor:detach() end
    local last = published(self.model, entry.name):match "[^.]+$"
    if not seen[last] then seen[last], targets[#targets + 1] = true, last end
  end
  table.sort(targets)
  local config = {peft_type = "LORA", task_type = "CAUSAL_LM", r = o.rank, lora_alpha = o.alpha,
    lora_dropout = o.dropout, target_modules = targets, use_dora = o.dora,
    use_rslora = o.rank_stabilized, bias = "none", fan_in_fan_out = false,
    init_lora_weights = true, inference_mode = true, modules_to_save = core.json.null,
    base_model_name_or_path = core.json.null}
  local ok, message = true, nil
  if not core.file.exists(folder) then ok, message = core.file.mkdir(folder) end
  if ok then
    ok, message = require("flare.io.safetensors").save(folder .. "/adapter_model.safetensors",
                                                       tensors, {format = "pt"})
  end
  if ok then
    ok, message = core.file.write_atomic(folder .. "/adapter_config.json", core.json.encode(config))
  end
  if not ok then return nil, message end
  return true
end

local M = {}

-- Adds adapters to the layers for which wants(name in files, name) is true.
local function attach(model, o, wants)
  local entries = {}
  for _, entry in ipairs(layers_of(model)) do
    if wants(published(model, entry.name), entry.name) then entries[#entries + 1] = entry end
  end
  if #entries == 0 then return nil end
  model:freeze()
  for _, entry in ipairs(entries) do
    entry.adapted = Adapted(entry.layer, o)
    entry.adapted.training = entry.layer.training
    entry.holder[entry.key] = entry.adapted
  end
  local self = Adapter()
  self.model, self.options, self.entries, self.merged = model, o, entries, false
  return self
end

--- Adds adapters to a model and freezes everything else: models.lora(model, {rank = 8}). An
-- optimizer gets adapter:parameters().
-- @param model a module; layers of it are replaced
-- @param opts {rank = 8, alpha = 16: the product of the adapter's matrices is scaled by
--   alpha / rank, targets = {"q_proj", "v_proj"}: last parts of layers' names, or a Lua pattern,
--   dropout = 0: of the adapter's inputs in training, dora = false: magnitudes of the rows are
--   learned apart, rank_stabilized = false: scaled by alpha / sqrt(rank)}
-- @return the adapter: parameters, count, merge, unmerge, remove, save
function M.attach(model, opts)
  local o = options.check("models.lora", opts, defaults)
  options.count("models.lora", "rank", o.rank)
  if type(o.dropout) ~= "number" or o.dropout < 0 or o.dropout >= 1 then
    fail("models.lora: dropout must be a number from 0 to below 1, got %s", tostring(o.dropout))
  end
  local self = attach(model, o, function(there, name)
    return is_target(there, o.targets) or is_target(name, o.targets)
  end)
  if self then return self end
  local last = {}
  for _, entry in ipairs(layers_of(model)) do
    last[published(model, entry.name):match "[^.]+$"] = true
  end
  local wanted = type(o.targets) == "table" and tostring(o.targets[1]) or tostring(o.targets)
  fail("models.lora: no fully connected layer is named %s%s", wanted, options.hint(wanted, last))
end

-- PEFT's configuration as our options, or nil and a message.
local function options_of(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local config
  config, message = core.json.decode(text)
  if type(config) ~= "table" then return nil, ("%s: %s"):format(path, message or "no object") end
  if config.peft_type ~= "LORA" then
    return nil, ("%s: adapters of the type '%s' are not read"):format(path,
                                                                     tostring(config.peft_type))
  elseif math.type(config.r) ~= "integer" or type(config.lora_alpha) ~= "number" then
    return nil, path .. ": r and lora_alpha must be numbers"
  elseif config.fan_in_fan_out == true or config.bias and config.bias ~= "none" then
    return nil, path .. ": fan_in_fan_out and biases are not read"
  end
  return {rank = config.r, alpha = config.lora_alpha, dropout = config.lora_dropout or 0,
          dora = config.use_dora == true, rank_stabilized = config.use_rslora == true}
end

-- Copies a tensor of the file, if it is there and of the right shape; else gives a message.
local function fill(tensors, name, to)
  local from = tensors[name] or tensors[name .. ".weight"]
  if not from then return name .. " is missing" end
  if from.shape ~= to.shape then
    return ("%s is %s, %s fits"):format(name, tostring(from.shape), tostring(to.shape))
  end
  to:copy_(from)
end

--- Adds the adapters of a folder that PEFT or adapter:save wrote.
-- @param model the model that they were made for
-- @param folder adapter_config.json and adapter_model.safetensors
-- @return the adapter, or nil and a message
function M.load(model, folder)
  local o, message = options_of(folder .. "/adapter_config.json")
  if not o then return nil, message end
  local tensors
  tensors, message = require("flare.io.safetensors").load(folder .. "/adapter_model.safetensors")
  if not tensors then return nil, message end
  local there, n = {}, 0
  for name in pairs(tensors) do
    local layer = name:match "^base_model%.model%.(.*)%.lora_A%.weight$"
    if layer then there[layer], n = true, n + 1 end
  end
  local self = attach(model, o, function(name) return there[name] end)
  if not self or #self.entries ~= n then
    local found = self and #self.entries or 0
    if self then self:remove() end
    return nil, ("%s: %d of its %d layers are in the model"):format(folder, found, n)
  end
  local _ <close> = core.no_grad()
  for _, entry in ipairs(self.entries) do
    for name, to in pairs(tensors_of(self, entry)) do
      message = fill(tensors, name, to)
      if message then
        self:remove()
        return nil, folder .. ": " .. message
      end
    end
  end
  return self
end

return setmetatable(M, {__call = function(_, ...) return M.attach(...) end})
