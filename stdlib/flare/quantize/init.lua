--- Weight-only quantisation of a model: its fully connected layers get weights of 4 or 8 bits.
local core = require "flare.core"
local fail = require "flare.fail"
local Linear = require "flare.nn.linear"
local options = require "flare.options"
local QuantizedLinear = require "flare.nn.quantized_linear"
local walk = require "flare.nn.walk"

local M = {}

---------------------------------------------------------------- which layers

local function is_skipped(name, skip)
  for _, pattern in ipairs(skip) do
    if name == pattern or name:find(pattern) then return true end
  end
end

-- Layers to quantise, with their names and places; those that stay, with the reason.
local function find(model, skip, settings)
  local list, kept, seen = {}, {}, {}
  walk.visit(model, function(name, module, _, key, holder)
    if getmetatable(module) ~= Linear or not holder then return end
    local o, why = QuantizedLinear.settings("quantize", settings, module.inputs)
    if is_skipped(name, skip) then why = "skipped" end
    if why then
      kept[name] = why
    elseif seen[module] then
      table.insert(seen[module].places, {holder, key})
    else
      seen[module] = {name = name, layer = module, o = o, places = {{holder, key}}}
      list[#list + 1] = seen[module]
    end
  end, "module", true)
  return list, kept
end

---------------------------------------------------------------- inputs

-- Notes the sum of the products of a layer's inputs, and their mean magnitude.
local function watch(entry)
  local n = entry.layer.inputs
  local device = entry.layer.weight.device
  entry.products = core.zeros(n, n, {dtype = "f32", device = device})
  entry.size, entry.count = core.zeros(n, {dtype = "f32", device = device}), 0
  return entry.layer:register_forward_pre_hook(function(_, x)
    x = x:detach():to "f32":reshape(-1, n)
    entry.products:addmm_(x:t(), x)
    entry.size:add_(x:abs():sum{dims = {1}})
    entry.count = entry.count + x.shape[1]
  end)
end

-- Runs the model on the data and notes the inputs of the layers.
local function observe(model, list, data)
  local hooks = {}
  for k, entry in ipairs(list) do hooks[k] = watch(entry) end
  local training = model.training
  model:eval()
  local _ <close> = core.no_grad()
  local ok, message = pcall(function()
    if type(data) == "function" then return data(model) end
    for _, batch in ipairs(data) do
      if core.is_tensor(batch) then model(batch) else model(table.unpack(batch)) end
    end
  end)
  for _, hook in ipairs(hooks) do hook.remove() end
  model:train(training)
  if not ok then error(message, 0) end
  for _, entry in ipairs(list) do
    if entry.count == 0 then
      fail("quantize: the data do not reach layer %s; add it to skip", entry.name)
    end
    entry.size:div_(entry.count)
  end
end

---------------------------------------------------------------- errors

-- The weight that a part stands for, in f32.
local function weight_of(part)
  local w = core.dequantize(part.weight, part.scales, part.zeros, "f32")
  if part.order then w = w:index_select(2, part.order:argsort()) end
  return part.factors and w * part.factors or w
end

-- The sum of squares of (a - b) X^T, by the products of the columns of X.
local function squares(w, products) return (w:matmul(products) * w):sum():item() end

local Report = {}
Report.__index = Report

local function decibels(ratio) return ratio == 0 and math.huge or -10 * math.log(ratio, 10) end

function Report:__tostring()
  local lines = {("%-40s %5s %6s %10s %8s %10s"):format("layer", "bits", "group", "error", "SNR dB",
                                                     "outputs")}
  for _, e in ipairs(self) do
    lines[#lines + 1] = ("%-40s %5d %6d %10.5f %8.2f %10s"):format(e.name, e.bits, e.group, e.error,
      e.snr, e.output_error and ("%.5f"):format(e.output_error) or "")
  end
  local kept = {}
  for name, why in pairs(self.kept) do kept[#kept + 1] = ("%s: %s"):format(name, why) end
  table.sort(kept)
  for _, line in ipairs(kept) do lines[#lines + 1] = "not quantised: " .. line end
  return table.concat(lines, "\n")
end

local function compare(entry, weight, part)
  local off = weight - weight_of(part)
  local ratio = (off * off):sum():item() / math.max((weight * weight):sum():item(), 1e-300)
  local e = {name = entry.name, bits = entry.o.bits, group = entry.o.group,
             error = math.sqrt(ratio), snr = decibels(ratio)}
  if entry.products then
    local all = math.max(squares(weight, entry.products), 1e-300)
    e.output_error = math.sqrt(math.max(squares(off, entry.products), 0) / all)
  end
  return e
end

---------------------------------------------------------------- methods

local methods = {}

function methods.rtn(entry, weight)
  return require("flare.quantize.grid").nearest(weight, entry.o)
end

function methods.gptq(entry, weight)
  return require "flare.quantize.gptq"(weight, entry.products, entry.o)
end

function methods.awq(entry, weight)
  return require "flare.quantize.awq"(weight, entry.products, entry.size, entry.o, function(part)
    return squares(weight - weight_of(part), entry.products)
  end)
end

--- Replaces the nn.Linear layers of a model by nn.QuantizedLinear.
-- @param model a module; it is changed
-- @param opts {bits = 4 or 8, group = columns that share a scale (64; with 8 bits the whole row),
--   method = "rtn", round to nearest, "gptq" or "awq", data = inputs of the model, a list of
--   tensors or of lists of arguments, or a function that runs it; gptq and awq need them,
--   skip = {"lm_head"}, names or Lua patterns of layers that stay, symmetric = no zeros (with 8
--   bits by default), scales = "f16", their dtype, act_order = false, for gptq: columns by the size
--   of their inputs, damp = 0.01, for gptq: of the mean diagonal}
-- @return the model, and a report: {name =, bits =, group =, error = relative, snr = in decibels,
--   output_error = with data} for each layer, with tostring; `kept` has the layers that stay
function M.quantize(model, opts)
  local o = options.check("quantize", opts, {bits = 4, group = options.none, method = "rtn",
    data = options.none, skip = {"lm_head"}, symmetric = options.none, scales = "f16",
    act_order = false, damp = 0.01})
  local method = methods[o.method]
  if not method then
    fail("quantize: there is no method '%s'%s", tostring(o.method), options.hint(o.method, methods))
  elseif o.method ~= "rtn" and not o.data then
    fail("quantize: the method '%s' needs data: inputs of the model, such as {tensor, ...}",
         o.method)
  end
  local settings = {bits = o.bits, group = o.group, symmetric = o.symmetric, scales = o.scales}
  local list, kept = find(model, o.skip, settings)
  if #list == 0 then
    fail("quantize: the model has no nn.Linear inside to quantise; nn.QuantizedLinear.from(layer) "
      .. "is for a single layer")
  end
  if o.data then observe(model, list, o.data) end
  local report = setmetatable({kept = kept}, Report)
  local _ <close> = core.no_grad()
  for k, entry in ipairs(list) do
    local layer = entry.layer
    entry.o.act_order, entry.o.damp = o.act_order, o.damp
    local weight = layer.weight:detach():to "f32":contiguous()
    local part = method(entry, weight)
    report[k] = compare(entry, weight, part)
    local new = QuantizedLinear.from(layer, settings, part)
    for _, place in ipairs(entry.places) do place[1][place[2]] = new end
    entry.products, entry.layer = nil, nil
  end
  return model, report
end

return M
