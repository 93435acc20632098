--- Pipelines: the model is cut into stages, which ranks compute for one micro-batch after the
-- other. The order of the passes comes from a scheme of flare.dataflow, whose schedule is what
-- flare.simulate simulates.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local average = require "flare.dist.parallel.average"
local balance = require "flare.dist.parallel.balance"
local deferred = require "flare.dist.parallel.deferred"
local layers = require "flare.dist.parallel.layers"
local moves = require "flare.dist.parallel.moves"
local options = require "flare.options"
local passes = require "flare.dist.parallel.passes"
local pieces = require "flare.dist.parallel.pieces"
local Wires = require "flare.dist.parallel.wires"

local Pipeline = class "dist.Pipeline"
Pipeline.__keeps = true

local schemes = {gpipe = true, ["1f1b"] = true, interleaved = true, zb_h1 = true}

-- What the passes of a piece weigh before they are measured: the elements of its matrices.
local function guess(piece)
  local n = 1
  for _, slot in ipairs(piece.slots) do
    local looked_up = getmetatable(slot.owner).__name:find "Embedding"
    if #slot.shape > 1 and slot.kind == "parameter" and not looked_up then
      local count = 1
      for _, size in ipairs(slot.shape) do count = count * size end
      n = n + count
    end
  end
  return n
end

-- The pieces as layers of flare.dataflow.
local function costs_of(self, work)
  local list = {}
  for k, piece in ipairs(self.pieces) do
    local part = {{seconds = work[k] / 3}}
    list[k] = {name = piece.name, forward = part, backward = part, weights = part, parameters = 0,
      gradients = 0, states = 0, saved = 0, output = 0}
  end
  return list
end

-- The schedule for a number of micro-batches.
local function schedule_of(self, n)
  local found = self.schedules[n]
  if not found then
    found = require("flare.dataflow").schemes[self.scheme](costs_of(self, self.work),
      {devices = self.group.size, micro_batches = n, slow = self.slow,
       chunks = self.scheme == "interleaved" and self.chunks or nil})
    self.schedules[n] = found
  end
  return found
end

-- Which device has each piece.
local function owners(self)
  local schedule, list = self.schedule, {}
  for k, stage in ipairs(schedule.stages) do
    for piece = stage.first, stage.last do list[piece] = schedule.device_of(k) end
  end
  return list
end

local function arrange(self)
  self.schedules = {}
  self.schedule = schedule_of(self, self.micro_batches)
  self.owner = owners(self)
end

local function make_optimizer(self)
  if not self.make then return end
  local params = self:parameters()
  if #params == 0 then fail("Pipeline: device %d has no parameters to optimize", self.device) end
  self.optimizer = self.make(params)
end

--- dist.Pipeline(model, mesh, {scheme = "1f1b", micro_batches = 4}). All ranks start with the same
-- model; each keeps the parameters of its stages.
-- @param model an nn.Sequential, a decoder of flare.models, or a module with a method `parts`
-- @param mesh from dist.mesh, with the axis `pp`; gradients are averaged along its axis `dp`
-- @param o.scheme "gpipe", "1f1b", "interleaved" or "zb_h1"
-- @param o.micro_batches into which the batch is cut; default the number of devices
-- @param o.chunks stages of a device, for "interleaved"; default 2
-- @param o.loss a function of the output and the target of a micro-batch that gives a mean; default
--   that of the next token
-- @param o.optimizer a function from a list of parameters to an optimizer, `pipe.optimizer`
-- @param o.work what each part of the model costs, a list of numbers; default the elements of its
--   matrices
-- @param o.recompute true: keeps the input of a stage only, and computes the rest again
-- @param o.clock a function of a pass ("F", "B" or "W") and the number of a part that says what it
--   takes, in place of `measure`
-- @param o.device where the rank's parameters are moved, "cuda" say; default where they are
-- @param o.measure true: measures how long passes take, which makes the host wait for the device
function Pipeline:init(model, mesh, o)
  o = options.check("Pipeline", o, {scheme = "1f1b", micro_batches = options.none, chunks = 2,
    loss = options.none, optimizer = options.none, work = options.none, recompute = false,
    clock = options.none, measure = false, device = options.none})
  if not schemes[o.scheme] then
    fail("Pipeline: unknown scheme '%s'%s", tostring(o.scheme), options.hint(o.scheme, schemes))
  end
  local group = require "flare.dist.parallel.axis"("Pipeline", mesh, "pp")
  if not mesh.lines then fail "Pipeline: a mesh is expected, as dist.mesh{pp = 2} makes it" end
  self.model, self.mesh, self.group, self.device = model, mesh, group, group.rank + 1
  self.scheme, self.chunks, self.recompute = o.scheme, o.chunks, o.recompute
  self.micro_batches = options.count("Pipeline", "micro_batches", o.micro_batches or group.size)
  self.make, self.clock, self.measure = o.optimizer, o.clock, o.measure
  self.pieces = pieces.of(model)
  self.loss = pieces.loss("Pipeline", model, self.pieces, o.loss)
  self.work = o.work or {}
  for k, piece in ipairs(self.pieces) do self.work[k] = self.work[k] or guess(piece) end
  self.ties = pieces.ties(self.pieces)
  arrange(self)
  self.book = {list = {}}
  if self.schedule.split then deferred.defer(model, self.book) end
  for k, piece in ipairs(self.pieces) do
    if self.owner[k] ~= self.device then pieces.drop(piece) end
  end
  if o.device then model:to(o.device) end
  self.wires = Wires(mesh.lines.pp, group.ranks[self.device], self.scheme == "interleaved")
  make_optimizer(self)
end

--- The parameters that this rank has.
-- @return a list
function Pipeline:parameters()
  local list, seen = {}, {}
  for k, piece in ipairs(self.pieces) do
    if self.owner[k] == self.device then
      for _, slot in ipairs(piece.slots) do
        local p = pieces.get(slot)
        if slot.kind == "parameter" and not seen[p.id] then
          seen[p.id], list[#list + 1] = true, p
        end
      end
    end
  end
  return list
end

---------------------------------------------------------------- a step

local function cut_batch(self, what, x, n)
  if x == nil then return {} end
  if not core.is_tensor(x) then
    fail("Pipeline: the %s must be a tensor, got %s", what, options.kind(x))
  end
  if x:size(1) % n ~= 0 or x:size(1) == 0 then
    fail("Pipeline: rank %d: a batch of %d cannot be cut into %d equal micro-batches",
      self.group.ranks[self.device], x:size(1), n)
  end
  return x:chunk(n, 1)
end

-- Parameters that stages of several devices have get the sum of their gradients.
local function add_ties(self)
  for _, tie in ipairs(self.ties) do
    local here, devices, mine = nil, {}, false
    for _, at in ipairs(tie) do
      local device = self.owner[at.piece.number]
      devices[device] = true
      if device == self.device and not mine then
        here, mine = pieces.get(at.slot), true
      end
    end
    if next(devices, (next(devices))) ~= nil then
      local slot = tie[1].slot
      local grad = here and here.grad
      if not grad then
        local like = here or pieces.get(slot)
        grad = core.zeros(slot.shape, {dtype = like.dtype, device = like.device})
      end
      self.group:all_reduce_(grad)
      if here then here.grad = grad end
    end
  end
end

-- The notes of a step on a batch.
local function begin(self, x, target, n)
  local dp = self.mesh.dp
  local run = {schedule = schedule_of(self, n), here = {}, saved = {}, spent = {}, passes = {},
    now = 0, idle = 0, busy = 0, kept = 0, most = 0, loss = 0, total = n,
    inputs = cut_batch(self, "batch", x, n), targets = cut_batch(self, "target", target, n)}
  if dp and dp.size > 1 then
    run.total = dp:all_reduce(core.tensor({n}, {dtype = "i64"})):item()
  end
  run.device = pieces.device(self.pieces)
  self.wires:attach(run.device)
  return run
end

-- The mean loss over all replicas, on all ranks.
local function loss_of(self, run)
  local dp = self.mesh.dp
  local loss = core.is_tensor(run.loss) and run.loss:to "cpu" or core.zeros({}, {dtype = "f64"})
  loss = self.group:all_reduce(loss)
  return dp and dp.size > 1 and dp:all_reduce(loss) or loss
end

-- Takes gradients of earlier steps away, so that sums over ranks do not count them again; the
-- function that is returned adds them.
local function set_aside(self)
  local list = {}
  for _, p in ipairs(self:parameters()) do
    if p.grad then
      list[#list + 1] = {p, p.grad}
      p.grad = nil
    end
  end
  return function()
    for _, entry in ipairs(list) do
      local p, before = table.unpack(entry)
      p.grad = p.grad and p.grad:add_(before) or before
    end
  end
end

--- Forward and backward of a batch. Gradients of the mean loss are added to the parameters'.
-- @param x the batch, for the first stage; ranks without it may pass nil
-- @param target for the last stage
-- @param o {micro_batches = how many this rank's replica has, default those of the pipeline}
-- @return the loss, on all ranks; `pipe.report` has what the passes took
function Pipeline:step(x, target, o)
  o = options.check("Pipeline:step", o, {micro_batches = self.micro_batches})
  local run, dp = begin(self, x, target, o.micro_batches), self.mesh.dp
  local add_earlier = set_aside(self)
  for _, pass in ipairs(run.schedule.orders[self.device]) do passes[pass.kind](self, run, pass) end
  self.wires:finish()
  local _ <close> = core.no_grad()
  add_ties(self)
  if dp and dp.size > 1 then
    local grads = {}
    for _, q in ipairs(self:parameters()) do grads[#grads + 1] = q.grad end
    average(grads, dp, "sum")
  end
  add_earlier()
  local ends = self.group:all_reduce(core.tensor({run.now}, {dtype = "f64"}), {reduce = "max"})
  self.report = {time = ends:item(), busy = run.busy, idle = ends:item() - run.busy,
    passes = run.passes, kept = run.most, spent = run.spent}
  return loss_of(self, run)
end

--- The loss of a batch, without gradients; `pipe.model:eval()` turns dropout off.
-- @param x the batch, for the first stage
-- @param target for the last stage
-- @return the loss, on all ranks
function Pipeline:evaluate(x, target)
  local _ <close> = core.no_grad()
  local run = begin(self, x, target, self.micro_batches)
  for _, pass in ipairs(run.schedule.orders[self.device]) do
    if pass.kind == "F" then
      passes.F(self, run, pass)
      run.saved = {}
    end
  end
  self.wires:finish()
  return loss_of(self, run)
end

--- Cuts the model anew by the times of the last step, and moves parameters and the optimizer's
-- states. Parts with parameters of the same shapes are taken to cost the same, so a device on which
-- they take longer is slower, and gets fewer. All ranks call it.
-- @return a list with the device of each part
function Pipeline:rebalance()
  if not self.report then fail "Pipeline:rebalance: there was no step yet" end
  if not (self.clock or self.measure) then
    fail "Pipeline:rebalance: times are not known: make the pipeline with measure = true"
  end
  local times, signatures = {}, {}
  for k, piece in ipairs(self.pieces) do
    times[k] = self.report.spent[k] or 0
    local words = {}
    for i, slot in ipairs(piece.slots) do words[i] = table.concat(slot.shape, "x") end
    signatures[k] = table.concat(words, " ")
  end
  local sums = core.tensor(times, {dtype = "f64"})
  for _, axis in ipairs(self.mesh.axes) do sums = self.mesh[axis]:all_reduce(sums) end
  local before = self.owner
  self.work, self.slow = balance.fit(sums:tolist(), signatures, before, self.group.size)
  arrange(self)
  local optimizer = self.optimizer
  moves.run(self, before)
  make_optimizer(self)
  if optimizer then moves.states(self, before, optimizer) end
  return self.owner
end

--- The parameters and buffers of the whole model in the ordinary layout, on all ranks.
-- @return names and tensors
function Pipeline:state_dict()
  local _ <close> = core.no_grad()
  local state = {}
  for k, piece in ipairs(self.pieces) do
    local root = self.owner[k] - 1
    for _, slot in ipairs(piece.slots) do
      local x = pieces.get(slot):detach()
      if root + 1 ~= self.device then
        x = core.zeros(slot.shape, {dtype = x.dtype, device = x.device})
      end
      x = self.group:broadcast(x, {root = root})
      state[slot.name] = slot.split and layers.whole(x, slot.split, slot.split.total) or x
    end
  end
  return state
end

--- Writes a model of flare.models to a folder, whole; see models.Model. All ranks call it.
-- @param folder is made if it does not exist
-- @param opts as of the model's save
-- @return true, or nil and a message
function Pipeline:save(folder, opts)
  local state = self:state_dict() -- on all ranks
  return require("flare.dist.parallel.state").save(self.model, state, folder, opts)
end

function Pipeline:__tostring()
  return ("dist.Pipeline(%s, %d devices, %d micro-batches, %d parts)"):format(self.scheme,
    self.group.size, self.micro_batches, #self.pieces)
end

return Pipeline
