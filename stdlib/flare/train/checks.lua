--- What a train.Trainer refuses, before it trains.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local where = "train.Trainer"

local function called(f)
  local meta = type(f) == "table" and getmetatable(f)
  return type(f) == "function" or meta and meta.__call ~= nil
end

local kinds = {model = {"parameters", "a module"},
  optimizer = {"groups", "an optimizer such as optim.AdamW(model)"},
  train = {"epoch", "a data.Loader"}, validate = {"epoch", "a data.Loader"},
  schedule = {"step", "a schedule such as optim.CosineLR(optimizer, {total = n})"},
  scaler = {"unscale_", "an optim.GradScaler"}}

local function check_objects(o)
  for name, what in pairs(kinds) do
    local value = o[name]
    if value ~= nil and (type(value) ~= "table" or value[what[1]] == nil) then
      fail("%s: %s must be %s, got %s", where, name, what[2], options.kind(value))
    end
  end
  for _, name in ipairs {"loss", "step"} do
    if o[name] ~= nil and not called(o[name]) then
      fail("%s: %s must be a function%s, got %s", where, name,
           name == "loss" and ", such as flare.cross_entropy, or a loss layer" or "",
           options.kind(o[name]))
    end
  end
  local log = o.log
  if log ~= nil and type(log) ~= "string" and (type(log) ~= "table" or not log.write) then
    fail("%s: log must be the path of a file or an object with write{step = ...}, got %s", where,
         options.kind(log))
  end
  for _, name in ipairs {"folder", "curve", "monitor"} do
    if o[name] ~= nil then options.text(where, name, o[name]) end
  end
end

local function check_callbacks(list)
  if list == nil then return end
  if type(list) ~= "table" or list[1] == nil and next(list) ~= nil then
    fail("%s: callbacks must be a list, {{step = f}, ...}, got %s", where,
         type(list) == "table" and "a table with '" .. tostring(next(list)) .. "'"
         or options.kind(list))
  end
  local known = {start = 1, step = 1, epoch = 1, finish = 1}
  for k, callback in ipairs(list) do
    if type(callback) ~= "table" then
      fail("%s: callback %d must be a table such as {step = f}, got %s", where, k,
           options.kind(callback))
    end
    for name, f in pairs(getmetatable(callback) and {} or callback) do
      if type(f) == "function" and not known[name] then
        fail("%s: callback %d: there is no event '%s'%s", where, k, tostring(name),
             options.hint(name, known))
      end
    end
  end
end

-- Names of parts beside those that a checkpoint has.
local function check_parts(parts)
  if parts == nil then return end
  local own = {trainer = 1, train = 1, validate = 1, schedule = 1, scaler = 1, model = 1,
               optimizer = 1}
  if type(parts) ~= "table" then
    fail("%s: parts must be a table such as {ema = ema}, got %s", where, options.kind(parts))
  end
  for name, part in pairs(parts) do
    if own[name] then fail("%s: a part cannot be called '%s'", where, name) end
    if type(part) ~= "table" or not part.state_dict then
      fail("%s: part '%s' has no state_dict", where, tostring(name))
    end
  end
end

local function check_numbers(o)
  for _, name in ipairs {"epochs", "steps", "accumulate", "save_every", "patience", "log_every"} do
    if o[name] ~= nil then options.count(where, name, o[name]) end
  end
  local clip = o.clip
  if clip ~= nil and (type(clip) ~= "number" or clip ~= clip or clip < 0) then
    fail("%s: clip must be the greatest norm, a number of at least 0, got %s", where,
         tostring(clip))
  end
  for key, known in pairs {mode = {min = 1, max = 1}, schedule_by = {step = 1, epoch = 1},
                           autocast = {bf16 = 1, f16 = 1}} do
    if o[key] and not known[o[key]] then
      fail("%s: unknown %s '%s'%s", where, key, tostring(o[key]),
           options.hint(tostring(o[key]), known))
    end
  end
end

-- Whether the optimizer has a parameter of the model; dist.ZeRO checks its own.
local function check_parameters(o)
  local there, any = {}, false
  for _, p in ipairs(o.model:parameters()) do there[p], any = true, true end
  for _, group in ipairs(o.optimizer.groups) do
    for _, p in ipairs(group.params or {}) do
      if there[p] then return end
    end
  end
  if any and not o.optimizer.model then
    fail("%s: the optimizer has none of the model's parameters", where)
  end
end

--- Raises an error at the first option that does not fit.
function M.check(o)
  for _, name in ipairs {"model", "optimizer", "train"} do
    if o[name] == nil then fail("%s: %s is needed", where, name) end
  end
  check_objects(o)
  for one, other in pairs {loss = "step", epochs = "steps"} do
    if (o[one] == nil) == (o[other] == nil) then fail("%s: pass %s or %s", where, one, other) end
  end
  check_numbers(o)
  check_callbacks(o.callbacks)
  check_parts(o.parts)
  check_parameters(o)
  if o.save_every and not o.folder then fail("%s: save_every needs a folder", where) end
end

--- Raises an error if what a loss function returned is no loss.
function M.loss(value, name)
  if core.is_tensor(value) and value:numel() == 1 then return value end
  fail("%s: %s must return the loss, a tensor of one element, got %s", where, name,
       core.is_tensor(value) and "one of shape " .. tostring(value.shape) or options.kind(value))
end

return M
