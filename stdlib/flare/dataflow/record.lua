--- flare.record: the operators of a step as they ran, with FLOPs, bytes and memory, to be replayed
-- on described machines. A recording is a file of JSON, too.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Recording = class "Recording"

-- Kinds of operators by their names, the first pattern that fits.
local patterns = {
  {"attention", "attention"}, {"conv", "convolution"}, {"matmul", "product"}, {"linear", "product"},
  {"bmm", "product"}, {"einsum", "product"}, {"^lstm", "product"}, {"^gru", "product"},
  {"^all_reduce", "peer"}, {"^all_gather", "peer"}, {"^reduce_scatter", "peer"},
  {"^broadcast$", "peer"}, {"^all_to_all", "peer"}, {"^send", "peer"}, {"^recv", "peer"},
}

local function kind_of(row)
  if row.transfer then return "host" end
  for _, pair in ipairs(patterns) do
    if row.op:find(pair[1]) then return pair[2] end
  end
  return "elementwise"
end

local function operator_of(row, kind)
  return {name = row.op, kind = kind, flops = row.flops, bytes = row.bytes, dtype = row.dtype,
    backward = row.backward or false, line = row.line, module = row.module,
    time = row.device_time * 1e-6, live = row.live, peak = row.peak}
end

local text_fields = {name = true, kind = true}
local number_fields = {flops = true, bytes = true}

-- What a file says of the tensors that operators read.
local function check_reads(k, x)
  if x.reads == nil then return end
  local ok = type(x.reads) == "table" and type(x.written) == "number"
  for _, read in ipairs(ok and x.reads or {}) do
    local from = type(read) == "table" and read.from
    ok = ok and type(read) == "table" and type(read.bytes) == "number"
      and (not from or math.type(from) == "integer" and from >= 1 and from < k)
  end
  if not ok then
    fail("dataflow.recording: operators[%d].reads must be a list of {from = an earlier operator's "
      .. "position, bytes = a number}, with `written`, a number of bytes, beside it", k)
  end
end

--- @param given {name, device, operators}
function Recording:init(given)
  if type(given) ~= "table" or type(given.operators) ~= "table" then
    fail("dataflow.recording: a table {operators = {...}} is expected, got %s", options.kind(given))
  end
  for k, x in ipairs(given.operators) do
    if type(x) ~= "table" then
      fail("dataflow.recording: operators[%d] must be a table, got %s", k, options.kind(x))
    end
    for field in pairs(text_fields) do
      if type(x[field]) ~= "string" then
        fail("dataflow.recording: operators[%d].%s must be a string, got %s", k, field,
          options.kind(x[field]))
      end
    end
    for field in pairs(number_fields) do
      if type(x[field]) ~= "number" then
        fail("dataflow.recording: operators[%d].%s must be a number, got %s", k, field,
          options.kind(x[field]))
      end
    end
    check_reads(k, x)
  end
  self.name, self.device = given.name or "step", given.device or "cpu"
  self.operators, self.peak, self.results = given.operators, given.peak, given.results
  self.time, self.flops, self.bytes = 0, 0, 0
  for _, x in ipairs(self.operators) do
    self.time = self.time + (x.time or 0)
    self.flops, self.bytes = self.flops + x.flops, self.bytes + x.bytes
  end
end

--- What the step would take on a machine, operator by operator.
-- @param machine a name, a table, or what flare.dataflow.machine returns
-- @param opts figures to change, as Machine:with takes them, and dtype = "bf16": as if operators
--   on f32 had that dtype; unit = {fp8 = 2000}: TFLOP/s of a matrix unit for a dtype; on_chip =
--   {"gelu", ...}: names of operators whose operands stay on the chip and cost no bytes; stream =
--   {"linear", "gelu", ...}: what these operators hand to each other does; cached = {"attention"}:
--   what these operators read does; sram = MiB: results do that are read again before so much has
--   been moved
-- @return a Replay: print it, or use its fields and :svg(path), a picture of the roofline
function Recording:replay(machine, opts)
  return require "flare.dataflow.replay"(self, machine, opts)
end

--- The recording without its first n operators.
function Recording:skip(n)
  local list = {}
  for k = options.count("recording:skip", "n", n, 0) + 1, #self.operators do
    local operator = {}
    for key, value in pairs(self.operators[k]) do operator[key] = value end
    operator.reads = operator.reads and {}
    for i, read in ipairs(self.operators[k].reads or {}) do
      local from = read.from and read.from > n and read.from - n or nil
      operator.reads[i] = {from = from, bytes = read.bytes}
    end
    list[#list + 1] = operator
  end
  return Recording {name = self.name, device = self.device, peak = self.peak, operators = list}
end

--- A schedule whose tasks are the operators, one after the other.
function Recording:schedule()
  local Schedule = require "flare.dataflow.schedule"
  local s = Schedule(self.name)
  for k, x in ipairs(self.operators) do
    local task = {name = ("%s %d"):format(x.name, k)}
    if x.kind == "host" or x.kind == "peer" then
      task.transfer, task.link = x.bytes, x.kind
    else
      task.cost = {flops = x.flops, bytes = x.bytes, dtype = x.dtype or "f32", kind = x.kind}
    end
    s:add(task)
  end
  return s:check()
end

--- Writes the recording as JSON; flare.dataflow.recording reads it.
-- @return true, or nil and a message
function Recording:save(path)
  local plain = {format = "flare recording 1", name = self.name, device = self.device,
                 peak = self.peak, operators = self.operators}
  return core.file.write_atomic(path, core.json.encode(plain) .. "\n")
end

function Recording:__tostring()
  return ("Recording(%s on %s, %d operators)"):format(self.name, self.device, #self.operators)
end

local M = {}

-- The tensors that an operator reads, and which operators wrote them; `writers` has the last one
-- of each tensor.
local function add_flow(operator, flow, position, writers)
  operator.written, operator.reads = flow.bytes, {}
  for k, read in ipairs(flow) do
    operator.reads[k] = {from = writers[read[1]], bytes = read[2]}
  end
  writers[flow.written] = position
end

-- A report of flare.profile as a recording.
local function of_report(report)
  local list, writers, device = {}, {}, nil
  for i = 1, report.count do
    local row = report:row(i)
    if not row.transfer then device = device or row.device end
    list[i] = operator_of(row, kind_of(row))
    local flow = core.profile_flow(report.rows, i)
    if flow.written then add_flow(list[i], flow, i, writers) end
  end
  local peak = 0
  for _, p in ipairs(report.peaks) do
    if p.device == device then peak = p.bytes end
  end
  return {name = "step", device = device, operators = list, peak = peak}
end

--- Records a call of f(...): each operator with its FLOPs, bytes, dtype, line and module, and the
-- memory in tensors. f runs twice; the second call is recorded, since the first one makes gradients
-- and the optimizer's states.
-- @param f a function, such as a training step
-- @param ... its arguments
-- @return a Recording: :replay(machine), :schedule(), :save(path); fields: operators, flops,
--   bytes, peak (bytes), time (of the kernels in seconds), results
function M.record(f, ...)
  options.callable("record", f)
  local profile = require "flare.profile"
  f(...)
  collectgarbage()
  local stop = profile.start {peaks = true, meta = true}
  local results = table.pack(pcall(f, ...))
  local report = stop()
  if not results[1] then error(results[2], 0) end
  local given = of_report(report)
  given.results = table.pack(table.unpack(results, 2, results.n))
  return Recording(given)
end

-- An explanation of flare.explain as a recording: its kernels.
local function of_explanation(e)
  local list = {}
  for i, k in ipairs(e.kernels) do
    list[i] = {name = k.operators, kind = kind_of {op = k.operators}, flops = k.flops,
      bytes = k.bytes, dtype = "f32", line = k.lines[1], time = k.time * 1e-6, live = k.live,
      peak = k.peak}
  end
  return {name = "plan", device = e.memory.device, operators = list, peak = e.memory.peak}
end

--- A recording out of a file that Recording:save wrote, of a report of flare.profile or an
-- explanation of flare.explain, or of a table {operators = {{name, kind =
-- "product", "attention", "convolution", "elementwise", "host" or "peer" (a transfer over that
-- link), flops =, bytes =, dtype =}, ...}}.
-- @param given a path or a table
-- @return the recording, or nil and a message if the file cannot be read
function M.recording(given)
  if type(given) == "table" and getmetatable(given) then
    if given.kernels then return Recording(of_explanation(given)) end
    if given.rows then return Recording(of_report(given)) end
  end
  if type(given) ~= "string" then return Recording(given) end
  local text, message = core.file.read(given)
  if not text then return nil, message end
  local ok, value = pcall(core.json.decode, text)
  if not ok or type(value) ~= "table" or type(value.operators) ~= "table" then
    return nil, ("%s: this is no recording of flare.record"):format(given)
  end
  return Recording(value)
end

return M
