--- Converts a GraphProto to a list of steps, checks it while a model is loaded, and runs the steps.
local core = require "flare.core"
local operators = require "flare.onnx.operators"
local refuse = require "flare.onnx.refuse"
local tensor = require "flare.onnx.tensor"
local types = require "flare.onnx.types"
local Node = require "flare.onnx.node"

local M = {}

local max_depth = 32 -- of graphs in graphs, and of functions
local max_steps = 1 << 17 -- of all of them: small files can unfold without end

-- --- loading ---

local function domain_of(name) return name == "ai.onnx" and "" or name or "" end

--- Versions by domain, of a list of OperatorSetIdProto.
function M.opsets(list)
  local versions = {}
  for _, set in ipairs(list or {}) do versions[domain_of(set.domain)] = set.version or 1 end
  return versions
end

-- Fields of an attribute by its type; old files without a type have one field only.
local fields = {"f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs",
                [13] = "tp"}
local empty = {f = 0, i = 0, s = ""}

local function attribute(a, c)
  if (a.name or ""):find "^value_string" then refuse.raise("strings: a constant is of strings") end
  local field = fields[a.type]
  if not field then
    for _, name in pairs(fields) do field = a[name] and name or field end
  end
  local value = field and a[field]
  if value == nil then value = field and empty[field] or {} end
  if field == "t" then
    local x = tensor.read(value, c.files)
    return c.place(x)
  elseif field == "g" then
    return M.compile(value, c, c.names)
  elseif not field or field == "graphs" or field == "tensors" then
    refuse.raise("attributes: '%s' is of type %s", a.name or "", tostring(a.type))
  end
  return value
end

local function attributes(node, c)
  local attr = {}
  for _, a in ipairs(node.attribute or {}) do
    local name = a.name or ""
    if a.ref and a.ref ~= "" then
      attr[name] = c.given and c.given[a.ref]
    else
      attr[name] = attribute(a, c)
    end
  end
  return attr
end

local function function_of(c, domain, name)
  local f = c.functions[domain .. ":" .. name]
  if not f then return nil end
  return function(step)
    local given = {}
    for _, a in ipairs(f.attribute_proto or {}) do given[a.name or ""] = attribute(a, c) end
    for key, value in pairs(step.attr) do given[key] = value end
    local opsets = f.opset_import and M.opsets(f.opset_import) or c.opsets
    local inner = setmetatable({given = given, opsets = opsets}, {__index = c})
    local body = {node = f.node, input = {}, output = {}}
    for k, input in ipairs(f.input or {}) do body.input[k] = {name = input} end
    for k, output in ipairs(f.output or {}) do body.output[k] = {name = output} end
    local graph = M.compile(body, inner, {})
    return function(_, ...)
      return table.unpack(M.call(graph, {}, {...}), 1, #graph.outputs)
    end
  end
end

local function find(step, c)
  local name, domain = step.name, step.domain
  local title = Node.title_of(name, domain, step.version)
  local expand = function_of(c, domain, name)
  if expand then return expand(step) end
  if operators.refused[name] and domain == "" then
    refuse.raise("%s: %s is not supported", operators.refused[name], title)
  end
  local f = operators.find(domain, name)
  if not f and not c.missing[title] then
    c.missing[title], c.missing[#c.missing + 1] = true, title
  end
  return type(f) == "table" and f.load(step) or f
end

-- Checks that every input of a step is defined; notes the last step that uses a name.
local function take(graph, step, number, names)
  local function use(name, what)
    if not names[name] then
      refuse.raise("graph: %s uses '%s', which no node before it defines", what, name)
    end
    graph.last[name] = number
    if not graph.own[name] then graph.outer[name] = true end
  end
  for _, name in ipairs(step.inputs) do
    if name ~= "" then use(name, step.title) end
  end
  for _, value in pairs(step.attr) do
    if type(value) == "table" and value.steps then
      step.nested = true
      for name in pairs(value.outer) do use(name, "a graph in " .. step.title) end
    end
  end
end

local function compile_step(node, number, c)
  c.count.steps = c.count.steps + 1
  if c.count.steps > max_steps then refuse.raise("graph: it has more than %d nodes", max_steps) end
  local domain = domain_of(node.domain)
  local step = setmetatable({
    name = node.op_type or "", domain = domain, version = c.opsets[domain],
    inputs = node.input or {}, outputs = node.output or {},
    device = c.device, random = c.random, progress = c.progress,
  }, Node)
  local label = node.name and node.name ~= "" and (" '%s'"):format(node.name) or ""
  step.title = ("node %d, %s%s"):format(number, step.name, label)
  step.attr = attributes(node, c)
  step.run = find(step, c)
  return step
end

local function value_type(value, what)
  local t = value.type or {}
  if t.sequence then refuse.raise("sequences: %s is a sequence", what()) end
  if t.optional then refuse.raise("sequences: %s is optional", what()) end
  if t.map then refuse.raise("sequences: %s is a map", what()) end
  if t.sparse then refuse.raise("element types: %s is sparse", what()) end
  local entry = {name = value.name or ""}
  if t.tensor then
    entry.dtype = types.dtype(t.tensor.elem_type or 0, what)
    if t.tensor.shape then
      entry.shape = {}
      for k, dim in ipairs(t.tensor.shape.dim or {}) do
        entry.shape[k] = dim.value or dim.param or "?"
      end
    end
  end
  return entry
end

-- " of Conv (...)", the first node that has a name among its inputs or outputs.
local function owner(proto, kind, name, opsets)
  for _, node in ipairs(proto.node or {}) do
    for _, other in ipairs(node[kind] or {}) do
      local domain = domain_of(node.domain)
      if other == name then
        return " of " .. Node.title_of(node.op_type or "", domain, opsets[domain])
      end
    end
  end
  return ""
end

--- The names, dtypes and shapes of a graph's values of a kind: "input" or "output".
function M.signature(proto, kind, opsets)
  local list = {}
  for k, value in ipairs(proto[kind] or {}) do
    list[k] = value_type(value, function()
      local name = value.name or ""
      return ("%s '%s'%s"):format(kind, name, owner(proto, kind, name, opsets))
    end)
  end
  return list
end

--- Checks a GraphProto and makes steps of it.
-- @param c the context: path, opsets, functions, device, place (a function that converts
--   constants), missing (a list of unsupported operators), graphs (a list of all graphs), count
--   (the number of steps so far), progress (a table that holds the running step)
-- @param outer the names that are defined in the enclosing graph
function M.compile(proto, c, outer)
  local names = setmetatable({}, {__index = outer})
  local depth = (c.depth or 0) + 1
  if depth > max_depth then refuse.raise("graph: graphs are nested too deep") end
  c = setmetatable({depth = depth, names = names}, {__index = c})
  local graph = {inputs = {}, outputs = {}, initial = {}, steps = {}, last = {}, own = {},
                 outer = {}}
  local function give(name)
    names[name] = true
    graph.own[name] = true
  end
  if proto.sparse_initializer then refuse.raise("element types: an initializer is sparse") end
  for _, t in ipairs(proto.initializer or {}) do
    if (t.name or "") == "" then refuse.raise("graph: an initializer has no name") end
    graph.initial[t.name] = c.place(tensor.read(t, c.files))
    give(t.name)
  end
  for k, input in ipairs(proto.input or {}) do
    graph.inputs[k] = input.name or ""
    give(input.name or "")
  end
  for number, node in ipairs(proto.node or {}) do
    local step = compile_step(node, number, c)
    take(graph, step, number, names)
    for _, name in ipairs(step.outputs) do
      if name ~= "" then give(name) end
    end
    graph.steps[number] = step
  end
  for k, output in ipairs(proto.output or {}) do
    local name = output.name or ""
    if not names[name] then refuse.raise("graph: no node defines the output '%s'", name) end
    if not graph.own[name] then graph.outer[name] = true end
    graph.outputs[k] = name
    graph.last[name] = nil
  end
  c.graphs[#c.graphs + 1] = graph
  for _, step in ipairs(graph.steps) do step.drop = {} end
  for name, number in pairs(graph.last) do
    local drop = graph.own[name] and graph.steps[number].drop
    if drop then drop[#drop + 1] = name end
  end
  return graph
end

--- Moves the constants of graphs to a device.
-- @param place a function that converts a constant
function M.move(graphs, device, place)
  for _, graph in ipairs(graphs) do
    for name, x in pairs(graph.initial) do graph.initial[name] = place(x) end
    for _, step in ipairs(graph.steps) do
      step.device = device
      for name, value in pairs(step.attr) do
        if core.is_tensor(value) then step.attr[name] = place(value) end
      end
    end
  end
end

-- --- running ---

local function missing(k, name)
  error(("output %d, '%s', is not there"):format(k, name), 0)
end

local function store(outputs, env, ...)
  for k, name in ipairs(outputs) do
    local value = select(k, ...)
    if name ~= "" then
      if value == nil then missing(k, name) end
      env[name] = value
    end
  end
end

-- The name "" stands for an optional input that is left out: nil.
local function run_step(step, env)
  local names, outputs, f = step.inputs, step.outputs, step.run
  local count = #names
  step.progress.step = step
  if step.nested then step.env = env end
  if #outputs == 1 and outputs[1] ~= "" and (count == 1 or count == 2) then -- most of them
    local y
    if count == 1 then y = f(step, env[names[1]]) else y = f(step, env[names[1]], env[names[2]]) end
    if y == nil then missing(1, outputs[1]) end
    env[outputs[1]] = y
  else
    local inputs = {}
    for k = 1, count do inputs[k] = env[names[k]] end
    store(outputs, env, f(step, table.unpack(inputs, 1, count)))
  end
  step.env = nil
  local drop = step.drop
  for k = 1, #drop do env[drop[k]] = nil end
end

--- Runs a graph.
-- @param outer the values of the enclosing graph, by name
-- @param inputs its inputs, in order; those that are nil keep their initial values
-- @return its outputs, in order
function M.call(graph, outer, inputs)
  local env = setmetatable({}, {__index = outer})
  for name, value in pairs(graph.initial) do env[name] = value end
  for k, name in ipairs(graph.inputs) do
    if inputs[k] ~= nil then env[name] = inputs[k] end
  end
  for _, step in ipairs(graph.steps) do run_step(step, env) end
  local outputs = {}
  for k, name in ipairs(graph.outputs) do outputs[k] = env[name] end
  return outputs
end

return M
