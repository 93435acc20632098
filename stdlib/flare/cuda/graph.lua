--- flare.cuda.graph: captures what a function launches as a CUDA graph, which runs as one launch.
local core = require "flare.core"
local fail = require "flare.fail"

-- Calls before the capture and the one that it makes itself, in which kernels are chosen for good.
local WARM = 2

local graph = {}
graph.__index = graph
graph.__name = "flare.cuda.graph"

-- Of the first tensor, or the default device.
local function device_of(n, inputs)
  for i = 1, n do
    if core.is_tensor(inputs[i]) then return inputs[i].device end
  end
  return core.empty(0).device
end

-- Memory for the inputs of every call, with the values of the examples.
local function own_inputs(n, examples)
  local own = {}
  for i = 1, n do
    local x = examples[i]
    if core.is_tensor(x) then
      own[i] = x:detach():clone()
      if x.requires_grad then own[i]:requires_grad_(true) end
    else
      own[i] = x
    end
  end
  return own
end

-- A result without history; tables are copied. Adds the tensors to `list`.
local function plain(value, list)
  if core.is_tensor(value) then
    local x = value:detach()
    list[#list + 1] = x
    return x
  elseif type(value) == "table" and getmetatable(value) == nil then
    local copy = {}
    for k, v in pairs(value) do copy[k] = plain(v, list) end
    return copy
  end
  return value
end

--- A function that does what `f` does on the GPU, with a single launch by the host. f runs three
-- times as it is, so that kernels are compiled and autotuned; then once more, when its launches are
-- captured and not run. `g(...)` copies its inputs to those of the capture, runs the launches and
-- returns the results of the capture.
-- Results are the same tensors each time: the next call overwrites them. They have no history;
-- gradients are computed inside f. Lua code of f does not run again: branches, numbers and shapes
-- are those of the capture.
-- f cannot read values (`item`, `tolist`, printing, operators whose result's shape depends on
-- values), write values from the host, compute on the CPU, draw random numbers, use numbers that
-- change from call to call (Adam's step count), change the stream or call collectives: the error
-- names the operator and its line.
-- @param f a function or a module
-- @param ... examples of its inputs: the shapes, dtypes and `requires_grad` of all calls; other
--   values than tensors must be the same in every call
-- @return the graph `g`: a function; `g.inputs`, the memory that inputs are copied to; `g:close()`
--   frees its memory
function graph.new(f, ...)
  local meta = getmetatable(f)
  local callable = type(f) == "function" or type(meta) == "table" and meta.__call
  -- kernels of flare.kernel are userdata, whose metatables scripts cannot see
  if not callable and (type(f) ~= "userdata" or core.is_tensor(f)) then
    fail("graph: expected a function or a module, got %s",
      core.is_tensor(f) and "a tensor" or type(f))
  end
  local n, examples = select("#", ...), {...}
  local device = device_of(n, examples)
  if device == "cpu" then
    fail("graph: the inputs are on the CPU, which has no graphs: give tensors on a GPU")
  end
  local own = own_inputs(n, examples)
  for _ = 1, WARM do f(table.unpack(own, 1, n)) end
  local results
  local object = core.graph_capture(device, function()
    local list = {}
    results = table.pack(f(table.unpack(own, 1, n)))
    for i = 1, results.n do results[i] = plain(results[i], list) end
    return list
  end)
  local self = {object = object, device = device, inputs = own, n = n, results = results}
  return setmetatable(self, graph)
end

function graph:__call(...)
  core.graph_run(self.object, self.inputs, self.n, ...)
  return table.unpack(self.results, 1, self.results.n)
end

--- What it does: `launches` in it, `runs` so far, `bytes` of memory that it keeps.
function graph:stats()
  local launches, runs, bytes = core.graph_stats(self.object)
  return {launches = launches, runs = runs, bytes = bytes}
end

--- Frees the graph and its memory; results that are still held stay as they are.
function graph:close() core.graph_close(self.object) end
graph.__close = graph.close

function graph:__tostring()
  local s = self:stats()
  return ("flare.cuda.graph (%d launches, %.1f MB on %s)"):format(s.launches, s.bytes / 1e6,
    self.device)
end

return graph.new
