--- flare.fits: the memory that a training step of a model needs, and whether a device has it.
--
-- Parameters, gradients and the optimizer's states are counted in meta mode. For activations the
-- step runs twice on the CPU, with small batches: as long as both runs launch the same operators,
-- the live bytes at each of them are linear in the size of the batch.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local machines = require "flare.dataflow.machine"
local nest = require "flare.nest"
local options = require "flare.options"
local units = require "flare.explain.units"

local Fits = class "Fits"

local ROUNDS = 3 -- of probes
-- What the allocator holds beyond the tensors at the peak, in blocks that fit nothing: a share, and
-- a segment.
local SHARE, SEGMENT = 0.15, 20 << 20

local function bytes_of(tensors)
  local sum, seen = 0, {}
  for _, t in ipairs(tensors) do
    if not seen[t.id] then sum, seen[t.id] = sum + t:nbytes(), true end
  end
  return sum
end

-- Whether the model was made outside of meta mode.
local function has_values(model)
  for _, p in ipairs(model:parameters()) do
    if p:nbytes() > 0 then return (pcall(function() return p:reshape{-1}[1]:item() end)) end
  end
  return true
end

-- An optimizer for parameters whose steps change nothing.
local function optimizer_of(o, parameters)
  if o.optimizer == false or not parameters[1] then return nil end
  if type(o.optimizer) == "string" then
    return require("flare.optim")[o.optimizer](parameters, {lr = 1e-3})
  end
  return o.optimizer(parameters)
end

-- Parameters, buffers, gradients and states: from tensors of the same shapes without values.
local function count_static(self, model, o)
  local parameters, trained = model:parameters(), {}
  for _, p in ipairs(parameters) do
    if p.requires_grad then trained[#trained + 1] = p end
  end
  self.parameters, self.buffers = bytes_of(parameters), bytes_of(model:buffers())
  self.gradients, self.states = 0, 0
  if not o.train then return end
  self.gradients = bytes_of(trained)
  local _ <close> = core.meta()
  local like = {}
  for k, p in ipairs(trained) do
    like[k] = core.zeros(p.shape, {dtype = p.dtype}):requires_grad_()
    like[k].grad = core.zeros(p.shape, {dtype = p.dtype})
  end
  local optimizer = optimizer_of(o, like)
  if not optimizer then return end
  optimizer:step()
  local states = {}
  nest.take(optimizer:state_dict(), states)
  self.states = bytes_of(states)
end

-- --- probes ---

local function inputs_of(o, batch)
  if type(o.input) == "function" then return table.pack(o.input(batch)) end
  return table.pack(core.zeros(batch, table.unpack(o.input)))
end

-- The loss of a result: its mean square, if none is given.
local function default_loss(y)
  local list = {}
  nest.take(y, list)
  if not list[1] then
    fail("fits: the model returned no tensor; loss = function(result, inputs...) is needed")
  end
  return list[1]:square():mean()
end

-- Runs a module and collects what it leaves behind, as a larger step would sooner or later.
local function collecting(module, run, ...)
  local results = table.pack(run(module, ...))
  collectgarbage()
  return table.unpack(results, 1, results.n)
end

local function step(model, optimizer, o, batch)
  local inputs = inputs_of(o, batch)
  if not o.train then
    local _ <close> = core.no_grad()
    return model(table.unpack(inputs, 1, inputs.n))
  end
  local loss
  do
    local y = model(table.unpack(inputs, 1, inputs.n))
    loss = o.loss(y, table.unpack(inputs, 1, inputs.n))
  end
  collectgarbage()
  loss:backward()
  if optimizer then optimizer:step() end
  for _, p in ipairs(model:parameters()) do p.grad = nil end
end

-- The launches of a step with their live bytes, without what was there before the model.
local function probe(model, optimizer, o, batch, before)
  local profile = require "flare.profile"
  collectgarbage()
  local stop = profile.start()
  require("flare.nn.module").watch(collecting)
  local ok, message = pcall(step, model, optimizer, o, batch)
  local report = stop()
  if not ok then error(message, 0) end
  local rows = {}
  for i = 1, report.count do
    local row = report:row(i)
    if row.device == "cpu" and not row.transfer then
      rows[#rows + 1] = {name = row.op, line = row.line, backward = row.backward,
                         live = row.live - before}
    end
  end
  return rows
end

local function alike(a, b)
  if #a ~= #b then return false end
  for i, row in ipairs(a) do
    if row.name ~= b[i].name then return false end
  end
  return true
end

local function most(rows)
  local best = rows[1]
  for _, row in ipairs(rows) do
    if row.live > best.live then best = row end
  end
  return best
end

-- Lines {live at batch 0, bytes a sample} through two probes, for each launch, or for the peak if
-- the launches differ.
local function lines_of(a, b, sizes)
  local list, between = {}, sizes[2] - sizes[1]
  local function add(x, y)
    local slope = (y.live - x.live) / between
    list[#list + 1] = {base = x.live - slope * sizes[1], slope = slope, row = y}
  end
  if alike(a, b) then
    for i, row in ipairs(a) do add(row, b[i]) end
  else
    add(most(a), most(b))
  end
  return list
end

-- Kernels may be chosen by the size of the batch. If both probes do not launch the same operators,
-- larger batches are run.
local function probe_twice(model, optimizer, o, before)
  local sizes, runs = o.probes or {2, 4}, {}
  for round = 1, o.probes and 1 or ROUNDS do
    if round > 1 then sizes = {4 * sizes[1], 4 * sizes[2]} end
    step(model, optimizer, o, sizes[1]) -- makes the states
    for k = 1, 2 do runs[k] = probe(model, optimizer, o, sizes[k], before) end
    if alike(runs[1], runs[2]) then break end
  end
  return runs, sizes
end

local function run_probes(self, model, o)
  collectgarbage()
  collectgarbage()
  local before = core.memory.stats("cpu").live
  local generator = core.default_generator()
  local seed, offset = generator:state()
  local copy = model:clone():to "cpu"
  if o.train then copy:train() else copy:eval() end
  local optimizer = o.train and optimizer_of(o, copy:parameters()) or nil
  local ok, runs, sizes = pcall(core.device, "cpu", probe_twice, copy, optimizer, o, before)
  generator:set_state(seed, offset)
  if not ok then error(runs, 0) end
  self.alike, self.lines = alike(runs[1], runs[2]), lines_of(runs[1], runs[2], sizes)
end

-- --- answers ---

--- Bytes at the peak of a step with a batch of that size; nil if the model has no values.
function Fits:at(batch)
  if not self.lines then return nil end
  local peak, row = 0, nil
  for _, line in ipairs(self.lines) do
    local live = line.base + line.slope * batch
    if live > peak then peak, row = live, line.row end
  end
  return math.ceil(peak), row
end

-- The largest batch that fits.
local function largest(self)
  local batch, room = math.huge, (self.cap - SEGMENT) / (1 + SHARE)
  for _, line in ipairs(self.lines) do
    if line.base > room then return 0 end
    if line.slope > 0 then batch = math.min(batch, (room - line.base) // line.slope) end
  end
  return math.tointeger(batch) or batch
end

local function read_device(self, device)
  if device == nil then return end
  if type(device) == "string" and not device:find "^%s*%d" then
    local machine = machines.machine(device)
    self.device, self.cap = machine.name, machine.memory.bytes
  else
    self.cap = options.bytes("fits", "device", device, "the name of a machine")
    self.device = "the device"
  end
end

-- See `fits`.
function Fits:init(model, o)
  self.model, self.batch = getmetatable(model).__name, o.batch
  read_device(self, o.device)
  count_static(self, model, o)
  local static = self.parameters + self.buffers + self.gradients + self.states
  if has_values(model) then
    run_probes(self, model, o)
    self.peak, self.row = self:at(o.batch)
    self.activations = math.max(self.peak - static, 0)
    self.need = math.ceil(self.peak * (1 + SHARE)) + SEGMENT
    if self.cap then self.fits, self.most = self.need <= self.cap, largest(self) end
  elseif self.cap and static > self.cap then
    self.fits = false -- activations or not
  end
  self.static = static
end

local function line(what, bytes, also)
  return ("  %-12s %10s%s"):format(what, units.bytes(bytes), also or "")
end

function Fits:__tostring()
  local out = {}
  out[1] = self.peak and ("%s, batch %d: %s in tensors, %s with the allocator's reserve"):format(
    self.model, self.batch, units.bytes(self.peak), units.bytes(self.need))
    or ("%s: at least %s"):format(self.model, units.bytes(self.static))
  if self.cap then
    out[2] = ("%s has %s: %s"):format(self.device, units.bytes(self.cap), self.fits and "it fits"
      or self.fits == nil and "parameters, gradients and states fit" or ("it does not fit, by %s")
      :format(units.bytes((self.need or self.static) - self.cap)))
  end
  out[#out + 1] = line("parameters", self.parameters)
  if self.buffers > 0 then out[#out + 1] = line("buffers", self.buffers) end
  if self.gradients > 0 then out[#out + 1] = line("gradients", self.gradients) end
  if self.states > 0 then out[#out + 1] = line("states", self.states) end
  if self.peak then
    out[#out + 1] = line("activations", self.activations, self.row and (", at the peak, %s%s, %s")
      :format(self.row.name, self.row.backward and " (backward)" or "", self.row.line) or "")
    if self.most and self.most < math.huge then
      out[#out + 1] = ("the largest batch that fits: %d"):format(self.most)
    end
  else
    out[#out + 1] = "  activations are not counted: the model has no values to run with"
  end
  return table.concat(out, "\n")
end

local M = {}

--- The memory that a step of a model needs, and whether a device has it; no GPU is needed. The step
-- runs on the CPU for two small batches, on a copy of the model. A model that was made in meta mode
-- has no values to run with: then parameters, gradients and states are counted, not activations.
-- Not counted: the scratch memory of kernels and what the driver takes.
-- @param model a module
-- @param opts {input = sizes of the input behind the batch, {3, 224, 224}, or a function(batch)
--   that returns the model's inputs, batch = 1, device = a machine's name such as "h100", or bytes
--   ("24GiB"), loss = function(result, inputs...) (the mean square), optimizer = "AdamW", a
--   function(parameters) that returns one, or false, train = true, probes = {2, 4}: the batches
--   that are run}
-- @return an answer: print it; fields fits, peak (bytes in tensors), need (with what flare's
--   allocator keeps in reserve), parameters, buffers, gradients, states, activations (at the peak:
--   all but those), most (the largest batch that fits); :at(batch) is the peak for another batch
function M.fits(model, opts)
  local Module = require "flare.nn.module"
  if not class.is(model, Module) then
    fail("fits: a module is expected, got %s", options.kind(model))
  end
  local o = options.check("fits", opts, {input = options.none, batch = 1, device = options.none,
    loss = options.none, optimizer = options.none, train = true, probes = options.none})
  options.count("fits", "batch", o.batch)
  if o.loss ~= nil then options.callable("fits: loss", o.loss) end
  o.loss = o.loss or default_loss
  if o.optimizer == nil then o.optimizer = "AdamW" end
  if o.optimizer and type(o.optimizer) ~= "string" then
    options.callable("fits: optimizer", o.optimizer)
  end
  if o.probes then
    if type(o.probes) ~= "table" then
      fail("fits: probes must be two batches such as {2, 4}, got %s", options.kind(o.probes))
    end
    for k = 1, 2 do options.count("fits", ("probes[%d]"):format(k), o.probes[k]) end
    if o.probes[1] >= o.probes[2] then
      fail("fits: probes must rise, got %d and %d", o.probes[1], o.probes[2])
    end
  end
  if o.input == nil then
    fail("fits: input is missing: sizes behind the batch such as {3, 224, 224}, or a "
      .. "function(batch) that returns the inputs")
  elseif type(o.input) ~= "table" and type(o.input) ~= "function" then
    fail("fits: input must be a list of sizes or a function, got %s", options.kind(o.input))
  end
  return Fits(model, o)
end

return M
