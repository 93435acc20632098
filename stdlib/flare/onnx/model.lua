--- A model read from an ONNX file: its inputs and outputs, and running it.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Files = require "flare.onnx.files"
local graph = require "flare.onnx.graph"
local Node = require "flare.onnx.node"
local options = require "flare.options"
local refuse = require "flare.onnx.refuse"
local schema = require "flare.onnx.schema"

local Model = class("Model")
Model.__keeps = true

local newest = 28 -- version of the operators that this was written by

-- Converts a constant: moves it to the device, and f32 to the dtype of the options. Outputs
-- may be views of them, and no operator writes to them.
local function placer(o)
  return function(x)
    if o.dtype and x.dtype == "f32" then x = x:to(o.dtype) end
    local moved = x:to(o.device)
    if moved.dtype == "i64" and x:dim() < 2 and x:numel() <= 64 and o.device ~= "cpu" then
      Node.remember(moved, Node:list(x))
    end
    return moved:protect()
  end
end

local function read(path, o)
  local files, message = Files.open(path)
  if not files then return nil, message end
  local _ <close> = files
  local proto
  proto, message = core.protobuf(files.main, schema.Model)
  if not proto then return nil, files:explain(message) end
  if not proto.graph then
    refuse.raise("%s", files:explain "this is no ONNX model: it has no graph")
  end
  local c = {
    files = files, opsets = graph.opsets(proto.opset_import), functions = {}, missing = {},
    graphs = {}, count = {steps = 0}, progress = {},
    device = o.device, place = placer(o), random = o.random,
  }
  if (proto.ir_version or 0) < 3 and not c.opsets[""] then c.opsets[""] = 1 end
  for _, f in ipairs(proto.functions or {}) do
    local domain = f.domain == "ai.onnx" and "" or f.domain or ""
    c.functions[domain .. ":" .. (f.name or "")] = f
  end
  local inputs = graph.signature(proto.graph, "input", c.opsets)
  local outputs = graph.signature(proto.graph, "output", c.opsets)
  if (c.opsets[""] or 1) > newest + 3 then
    refuse.raise("operators: version %d of the operators is not known, %d is", c.opsets[""],
                 newest)
  end
  local main = graph.compile(proto.graph, c, {})
  if #c.missing > 0 then
    refuse.raise("operators: there is no %s", table.concat(c.missing, ", no "))
  end
  return {graph = main, inputs = inputs, outputs = outputs, opsets = c.opsets,
          progress = c.progress, graphs = c.graphs}
end

--- Reads a model; see flare.onnx.load.
function Model.load(path, o)
  local parts, message = refuse.catch(read, path, o)
  if not parts then
    if message:sub(1, #path) ~= path then message = path .. ": " .. message end
    return nil, message
  end
  local self = Model()
  self._graph, self._device, self._dtype = parts.graph, o.device, o.dtype
  self._progress, self._graphs = parts.progress, parts.graphs
  self.path, self.outputs, self.opsets = path, parts.outputs, parts.opsets
  self.inputs, self._all = {}, parts.inputs
  for _, entry in ipairs(parts.inputs) do
    if not parts.graph.initial[entry.name] then self.inputs[#self.inputs + 1] = entry end
  end
  return self
end

local function describe(entry)
  local sizes = {}
  for k, size in ipairs(entry.shape or {}) do sizes[k] = tostring(size) end
  return ("%s (%s)"):format(entry.dtype or "?", entry.shape and table.concat(sizes, ", ") or "...")
end

-- Checks one input and moves it to the model's device.
local function accept(self, entry, value)
  if not core.is_tensor(value) then
    if type(value) ~= "table" and type(value) ~= "number" and type(value) ~= "boolean" then
      fail("run: input '%s' must be a tensor, got %s", entry.name, options.kind(value))
    end
    value = core.tensor(value, {dtype = entry.dtype})
  end
  local dtype = entry.dtype
  local own = dtype == "f32" and self._dtype or dtype
  if dtype and value.dtype ~= dtype and value.dtype ~= own then
    fail("run: input '%s' must be %s, got %s: x:to(\"%s\") converts", entry.name, describe(entry),
         value.dtype, dtype)
  end
  local fits = not entry.shape or #entry.shape == value:dim()
  for d, size in ipairs(fits and entry.shape or {}) do
    fits = fits and (type(size) ~= "number" or size == value.shape[d])
  end
  if not fits then
    fail("run: input '%s' must be %s, got shape %s", entry.name, describe(entry),
         tostring(value.shape))
  end
  if own then value = value:to(own) end
  return value:to(self._device)
end

local function by_name(self, inputs)
  local given, known = {}, {}
  for _, entry in ipairs(self._all) do known[entry.name] = entry end
  for key, value in pairs(inputs) do
    local name = type(key) == "table" and key.name or key
    if not known[name] then
      fail("run: there is no input '%s'%s", tostring(name), options.hint(tostring(name), known))
    end
    given[name] = value
  end
  return given
end

local function in_order(self, inputs)
  local given = {}
  for k in pairs(inputs) do
    if math.type(k) ~= "integer" or k < 1 or k > #self.inputs then
      fail("run: there is no input %s: the model takes %d", tostring(k), #self.inputs)
    end
    given[self.inputs[k].name] = inputs[k]
  end
  return given
end

--- Computes the outputs.
-- @param inputs a list of tensors in the graph's order, a table by name, or the only tensor
-- @return a list of tensors in the graph's order, on the model's device
function Model:run(inputs)
  if core.is_tensor(inputs) then inputs = {inputs} end
  if inputs == nil then inputs = {} end
  if type(inputs) ~= "table" then
    fail("run: the inputs must be a table of tensors, got %s", options.kind(inputs))
  end
  local named = next(inputs) ~= nil and inputs[1] == nil and math.type(next(inputs)) == nil
  local given = (named and by_name or in_order)(self, inputs)
  for _, entry in ipairs(self.inputs) do
    if given[entry.name] == nil then
      fail("run: input '%s' is missing: %s", entry.name, describe(entry))
    end
  end
  local list = {}
  for k, entry in ipairs(self._all) do
    local value = given[entry.name]
    if value ~= nil then list[k] = accept(self, entry, value) end
  end
  self._progress.step = nil
  local ok, results = pcall(graph.call, self._graph, {}, list)
  if ok then return Node.forget(results) end
  local step = self._progress.step
  fail("%s: %s%s", self.path, refuse.text(results), step and " (in " .. step.title .. ")" or "")
end

--- Moves the model to a device, as `device` of flare.onnx.load does.
-- @return the model
function Model:to(device)
  device = core.zeros({0}, {device = device}).device
  graph.move(self._graphs, device, placer{device = device})
  self._device = device
  return self
end

--- One line for each input and output.
function Model:__tostring()
  local lines = {("flare.onnx model %s"):format(self.path)}
  for _, kind in ipairs {"inputs", "outputs"} do
    for _, entry in ipairs(self[kind]) do
      lines[#lines + 1] = ("  %s %s: %s"):format(kind:sub(1, -2), entry.name, describe(entry))
    end
  end
  return table.concat(lines, "\n")
end

return Model
