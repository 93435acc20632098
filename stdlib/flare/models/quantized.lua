--- Quantised weights in published folders: the layouts of GPTQ and AWQ, to layers of ours and, for
-- GPTQ, back.
--
-- GPTQ packs the integers of neighbouring inputs into a 32-bit number, lowest bits first: qweight
-- (inputs / 8, outputs), qzeros (groups, outputs / 8), scales (groups, outputs), g_idx, the group
-- of each input. In the format "gptq" a zero is stored less 1, in "gptq_v2" as it is. AWQ packs
-- neighbouring outputs, in the order below: qweight (inputs, outputs / 8).
local core = require "flare.core"
local grid = require "flare.quantize.grid"
local Linear = require "flare.nn.linear"
local names = require "flare.models.names"
local QuantizedLinear = require "flare.nn.quantized_linear"
local walk = require "flare.nn.walk"

local M = {}

local AWQ_ORDER = {0, 2, 4, 6, 1, 3, 5, 7} -- the output that is in the lowest bits, the next, ...

-- What 8-bit integers of ours differ by.
local function offset(bits) return bits == 8 and 128 or 0 end

---------------------------------------------------------------- integers in 32 bits

-- (rows, n) of i32 as (rows, n * per) of i32; `order` is the place of each part.
local function unpack_words(x, bits, order)
  local parts, per = {}, 32 // bits
  for k = 0, per - 1 do
    local place = order and order[k + 1] or k
    parts[place + 1] = x:shift_right(bits * k):bitwise_and((1 << bits) - 1)
  end
  return core.stack(parts, 3):view(x.shape[1], x.shape[2] * per)
end

-- The other way, lowest bits first.
local function pack_words(x, bits)
  local per = 32 // bits
  local parts, out = x:to "i64":view(x.shape[1], x.shape[2] // per, per), nil
  for k = 0, per - 1 do
    local part = parts:select(3, k + 1):shift_left(bits * k)
    out = out and out:bitwise_or(part) or part
  end
  return out:to "i32"
end

---------------------------------------------------------------- reading

local Weights = {}
Weights.__index = Weights

function Weights:entry(name) return self.entries[name] end

function Weights:map(name)
  local e = self.entries[name]
  return e.make and e.make() or self.inner:map(name)
end

function Weights:copy(name, to)
  local e = self.entries[name]
  if not e.make then return self.inner:copy(name, to) end
  core.no_grad(to.copy_, to, e.make())
  return true
end

function Weights:close() self.inner:close() end
Weights.__close = Weights.close

local function read(inner, name)
  local e = inner:entry(name)
  local x = core.empty(e.shape, {dtype = e.dtype})
  assert(inner:copy(name, x))
  return x
end

-- Columns by their group, where they are not in the order of the groups; else nil.
local function order_of(inner, name)
  if not inner:entry(name) then return end
  local index = read(inner, name):to "i64"
  if index:numel() < 2 or not index:diff():lt(0):any():item() then return end
  return index:argsort()
end

-- The integers of a weight, (outputs, inputs), in the order of its groups.
local function integers(inner, at, how)
  local x = read(inner, at .. ".qweight")
  local q
  if how.awq then
    q = unpack_words(x, how.bits, AWQ_ORDER):t()
  else
    q = unpack_words(x:t():contiguous(), how.bits)
    local order = order_of(inner, at .. ".g_idx")
    if order then q = q:index_select(2, order) end
  end
  return q:contiguous()
end

local function zeros(inner, at, how)
  local z = unpack_words(read(inner, at .. ".qzeros"), how.bits, how.awq and AWQ_ORDER)
  if how.less then z = (z + 1):bitwise_and((1 << how.bits) - 1) end
  return (z:t() - offset(how.bits)):to(grid.formats[how.bits].dtype):contiguous()
end

-- Adds the tensors of a layer of ours in place of those of the file.
local function add(self, name, at, how, sizes)
  local inner, bits = self.inner, how.bits
  local function entry(part, dtype, shape, make)
    self.entries[name .. "." .. part] = {name = name .. "." .. part, dtype = dtype, shape = shape,
                                         stored = dtype:upper(), make = make}
  end
  local dtype = grid.formats[bits].dtype
  entry("weight", dtype, {sizes.outputs, sizes.inputs * bits // 8}, function()
    return grid.pack(integers(inner, at, how) - offset(bits), bits)
  end)
  local scales = inner:entry(at .. ".scales")
  entry("scales", scales.dtype, {sizes.outputs, sizes.groups}, function()
    return read(inner, at .. ".scales"):t():contiguous()
  end)
  entry("zeros", dtype, {sizes.outputs, sizes.groups}, function() return zeros(inner, at, how) end)
  if sizes.ordered then
    entry("order", "i64", {sizes.inputs}, function() return order_of(inner, at .. ".g_idx") end)
  end
  for _, part in ipairs{"qweight", "qzeros", "scales", "g_idx"} do
    if part ~= "scales" or name ~= at then self.entries[at .. "." .. part] = nil end
  end
end

local function message_of(folder, at, text, ...)
  return ("%s: %s: "):format(folder, at) .. text:format(...)
end

-- The sizes of a layer in the file, or nil and what is wrong with them.
local function sizes_of(inner, folder, layer, at, how)
  local per = 32 // how.bits
  local shapes = {}
  for _, part in ipairs{"qweight", "qzeros", "scales"} do
    local e = inner:entry(at .. "." .. part)
    if not e then return nil, message_of(folder, at, "it has qweight but no %s", part) end
    if #e.shape ~= 2 then return nil, message_of(folder, at, "%s must have 2 dims", part) end
    shapes[part] = e.shape
  end
  local groups = shapes.scales[1]
  local want = how.awq and {layer.inputs, layer.outputs // per}
    or {layer.inputs // per, layer.outputs}
  if shapes.qweight[1] ~= want[1] or shapes.qweight[2] ~= want[2]
     or shapes.qzeros[1] ~= groups or shapes.qzeros[2] ~= layer.outputs // per
     or shapes.scales[2] ~= layer.outputs or groups < 1 or layer.inputs % groups ~= 0
     or layer.inputs % per ~= 0 or layer.outputs % per ~= 0 then
    return nil, message_of(folder, at, "its tensors do not fit a layer of %d inputs and %d outputs "
      .. "in groups", layer.inputs, layer.outputs)
  end
  local index = inner:entry(at .. ".g_idx")
  if index and (#index.shape ~= 1 or index.shape[1] ~= layer.inputs) then
    return nil, message_of(folder, at, "g_idx must have %d elements", layer.inputs)
  end
  return {inputs = layer.inputs, outputs = layer.outputs, groups = groups,
          ordered = order_of(inner, at .. ".g_idx") ~= nil}
end

-- A layer in place of an nn.Linear, with tensors of the right shapes, in meta mode.
local function place(entry, sizes, bits)
  local layer, dtype = entry.layer, grid.formats[bits].dtype
  local part = core.meta(function()
    return {weight = core.zeros(sizes.outputs, sizes.inputs * bits // 8, {dtype = dtype}),
            scales = core.zeros(sizes.outputs, sizes.groups, {dtype = "f16"}),
            zeros = core.zeros(sizes.outputs, sizes.groups, {dtype = dtype}),
            order = sizes.ordered and core.zeros(sizes.inputs, {dtype = "i64"}) or nil}
  end)
  entry.holder[entry.key] = QuantizedLinear.holding(layer, part,
    {bits = bits, group = sizes.inputs // sizes.groups, symmetric = false})
end

-- How a configuration says that the weights are stored, or nil and a message.
local function settings_of(folder, config)
  local q = config.quantization_config
  local method, bits = q.quant_method, q.bits or q.w_bit
  if method ~= "gptq" and method ~= "awq" then
    return nil, ("%s/config.json: weights quantised by '%s' are not read (there are: awq, gptq)")
      :format(folder, tostring(method))
  elseif bits ~= 4 and not (bits == 8 and method == "gptq") then
    return nil, ("%s/config.json: %s with %s bits is not read"):format(folder, method,
                                                                       tostring(bits))
  elseif method == "awq" and q.version and q.version:lower() ~= "gemm" then
    return nil, ("%s/config.json: AWQ's version '%s' is not read (there is: gemm)"):format(
      folder, q.version)
  end
  return {awq = method == "awq", bits = bits,
          less = method == "gptq" and q.checkpoint_format ~= "gptq_v2"}
end

--- Replaces the layers of a model whose weights are quantised in the files.
-- @param model made in meta mode
-- @param inner what files.open gave
-- @return weights under the names of the new layers; nil and a message
function M.open(folder, model, config, inner)
  local how, message = settings_of(folder, config)
  if not how then return nil, message end
  local self = setmetatable({inner = inner, folder = inner.folder, entries = {}}, Weights)
  for name, e in pairs(inner.entries) do self.entries[name] = e end
  local list, cls = {}, getmetatable(model)
  walk.visit(model, function(name, layer, _, key, holder)
    if getmetatable(layer) == Linear and holder then
      local at = names.there(cls, name .. ".weight"):gsub("%.weight$", "")
      list[#list + 1] = {at = at, layer = layer, holder = holder, key = key}
    end
  end, "module")
  for _, entry in ipairs(list) do
    if inner:entry(entry.at .. ".qweight") then
      local sizes
      sizes, message = sizes_of(inner, folder, entry.layer, entry.at, how)
      if not sizes then return nil, message end
      add(self, entry.at, entry.at, how, sizes)
      place(entry, sizes, how.bits)
    end
  end
  return self
end

---------------------------------------------------------------- writing

local function as_integers(layer)
  local w = layer.weight
  if layer.bits == 8 then return w:to "i32" + 128 end
  local q = core.stack({w:bitwise_and(15), w:shift_right(4)}, 3):view(layer.outputs, layer.inputs)
  return q:to "i32"
end

-- GPTQ's tensors of a layer.
local function packed(layer)
  local bits, q, index = layer.bits, as_integers(layer), nil
  local z = layer.zeros and layer.zeros:to "i32" + offset(bits)
    or core.full({layer.outputs, layer.inputs // layer.group}, bits == 8 and 128 or 8,
                 {dtype = "i32", device = layer.weight.device})
  local group = core.arange(layer.inputs, {device = layer.weight.device}):floor_div(layer.group)
  if layer.order then
    local back = layer.order:argsort()
    q, index = q:index_select(2, back), group:index_select(1, back):to "i32"
  end
  return {qweight = pack_words(q, bits):t():contiguous(),
          qzeros = pack_words(z:t():contiguous(), bits), scales = layer.scales:t():contiguous(),
          g_idx = index or group:to "i32"}
end

--- Replaces the tensors of quantised layers by those that GPTQ's readers expect.
-- @param tensors of the model by their published names; it is changed
-- @return the quantization_config, or nil if no layer is quantised; nil and a message
function M.publish(model, tensors)
  local cls, config, whole = getmetatable(model), nil, true
  for name, layer in model:named_modules() do
    if getmetatable(layer) == QuantizedLinear then
      local at = names.there(cls, name .. ".weight"):gsub("%.weight$", "")
      whole = whole and layer.group == layer.inputs
      config = config or {quant_method = "gptq", checkpoint_format = "gptq_v2", bits = layer.bits,
                          group_size = layer.group, sym = layer.zeros == nil, desc_act = false}
      if layer.factors then
        return nil, ("save: layer %s has factors of its inputs, by the method awq, which published "
          .. "formats have no place for"):format(name)
      elseif config.bits ~= layer.bits or config.group_size ~= layer.group and not whole then
        return nil, ("save: layer %s has other bits or groups than the layers before"):format(name)
      elseif layer.outputs % (32 // layer.bits) ~= 0 or layer.inputs % (32 // layer.bits) ~= 0 then
        return nil, ("save: the sizes of layer %s are no multiples of %d"):format(name,
                                                                               32 // layer.bits)
      end
      if config.group_size ~= layer.group then config.group_size = -1 end
      config.desc_act = config.desc_act or layer.order ~= nil
      for _, part in ipairs{"weight", "scales", "zeros", "order"} do
        tensors[at .. "." .. part] = nil
      end
      for part, tensor in pairs(packed(layer)) do tensors[at .. "." .. part] = tensor end
    end
  end
  return config
end

return M
