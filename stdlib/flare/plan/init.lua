--- flare.plan: a training step under caps of memory. See docs/memory-plan.md.
--
--     local plan = flare.plan({model = model, optimizer = "AdamW", inputs = {x, y},
--       loss = function(net, x, y) return cross_entropy(net(x), y) end},
--       {device = "20GiB", host = "100GiB"})
--     print(plan)
--     for x, y in batches do print(plan(x, y):item()) end
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local machines = require "flare.dataflow.machine"
local options = require "flare.options"
local walk = require "flare.nn.walk"
local Blocks = require "flare.plan.blocks"
local Choose = require "flare.plan.choose"
local Executor = require "flare.plan.executor"
local Figures = require "flare.plan.figures"
local Measure = require "flare.plan.measure"
local Model = require "flare.plan.model"
local State = require "flare.plan.state"

local Plan = class "Plan"
Plan.__keeps = true

-- Of a cap, and bytes at least: dry runs do without it. What is garbage when, and so what the
-- allocator holds in blocks that fit nothing, differs from run to run; on a GPU, the scratch memory
-- of kernels and the modules that the driver loads later come from it: in its first step, 8 billion
-- parameters under 24 GiB had 1.1 GiB more on an H200 than in their dry run.
local RESERVE = {sim = {0.02, 8 << 20}, cuda = {0.12, 512 << 20}}
-- Of the reserve on a GPU, bytes that the allocator does not get: the driver loads modules and
-- makes workspaces after its memory was counted.
local LOADED = 256 << 20
local GARBAGE = 128 -- the part of the cap that may be garbage before it is collected
local SEARCH = 0.98 -- the share of the cap that the search starts with
-- Seconds that a plan may take longer for each second of transfers less, in both directions: a
-- prediction is not exact, and the transfers of a plan that has few of them stay hidden.
local HIDDEN = 0.05

-- --- what is planned ---

local function check_step(given)
  if type(given) ~= "table" or getmetatable(given) then
    fail("plan: a step is a table {model =, loss =, optimizer =, inputs =}, got %s",
      options.kind(given))
  end
  local step = options.check("plan", given, {model = options.none, loss = options.none,
    optimizer = options.none, inputs = options.none, blocks = options.none,
    init = options.none, clip = options.none})
  if step.init ~= nil then options.callable("plan: init", step.init) end
  step.optimizer = step.optimizer or "AdamW"
  if not walk.is_module(step.model) then
    fail("plan: model must be a module, got %s", options.kind(step.model))
  end
  options.callable("plan: loss", step.loss)
  if type(step.optimizer) ~= "string" then options.callable("plan: optimizer", step.optimizer) end
  if step.clip ~= nil and not (type(step.clip) == "number" and step.clip >= 0) then
    fail("plan: clip must be a number of at least 0, the largest norm of all gradients, got %s",
      type(step.clip) == "number" and step.clip or options.kind(step.clip))
  end
  if type(step.inputs) ~= "table" or not step.inputs[1] then
    fail("plan: inputs must be a list of tensors, an example of a batch, got %s",
      options.kind(step.inputs))
  end
  step.inputs = table.pack(table.unpack(step.inputs, 1, step.inputs.n or #step.inputs))
  for k = 1, step.inputs.n do
    local x = step.inputs[k]
    if not core.is_tensor(x) or #x.shape == 0 then
      fail("plan: inputs[%d] must be a tensor whose first dim is the batch, got %s", k,
        options.kind(x))
    end
    step.rows = step.rows or x:size(1)
    if x:size(1) ~= step.rows then
      fail("plan: inputs[%d] has %d rows, those before have %d", k, x:size(1), step.rows)
    end
  end
  return step
end

local function default_device()
  local now = core.device()
  if now ~= "cpu" then return now end
  for _, name in ipairs(core.devices()) do
    if name:find "^cuda" then return name end
  end
  return "sim:0"
end

-- How often a batch can be cut into equal parts.
local function divisors(rows)
  local list = {}
  for rounds = 1, rows do
    if rows % rounds == 0 then list[#list + 1] = rounds end
  end
  return list
end

local full = {parameters = "device", gradients = "device", states = "device", saved = "recompute",
              input = "device"}
local kept = {parameters = "device", gradients = "device", states = "device", saved = "keep",
              input = "device"}
local least = {parameters = "host", gradients = "host", states = "host", saved = "recompute",
               input = "host"}

-- --- the search ---

-- Bytes of a cap that dry runs do without.
local function reserve(self, cap)
  local of = RESERVE[self.on:match "^%a+"] or RESERVE.sim
  return math.max(of[1] * cap, of[2]) + self.outside
end

-- Whether a step runs under the cap on the device "dry".
local function proves(self, config, cap)
  local limit = cap - reserve(self, cap)
  if limit <= 0 then return nil, {message = "out of memory"} end
  local ok, out, failed = Measure.dry(limit, Measure.run, self.step, self.found, config,
    {rows = self.step.rows, steps = 2, known = self.order})
  if not ok then error(out, 0) end
  if out then return out end
  if not tostring(failed.message):find "out of memory" then error(failed.message, 0) end
  return nil, failed
end

-- Configs for a number of rounds, the best first.
local function configs(self, rounds, target)
  local figures = self.figures(self.step.rows / rounds)
  local o = {target = target, host = self.host, link = self.link, no_offload = self.no_offload}
  local list = {}
  local function add(config)
    local memory, host = Model.memory(figures, config)
    local seconds, sums = Model.time(figures, config, self.link)
    if memory <= target and host <= self.host then
      list[#list + 1] = {config = config, seconds = seconds, memory = memory, host = host,
        cost = seconds + HIDDEN * (sums[2] + sums[3])}
    end
    return host <= self.host
  end
  for _, how in ipairs {kept, full} do add(Measure.uniform(self.found, how, rounds, self.ahead)) end
  local start = Measure.uniform(self.found, least, rounds, self.ahead)
  if not add((Choose.search(figures, start, o))) then
    o.host = math.huge -- what is fast may need less of the host than what was tried
    add((Choose.search(figures, start, o)))
  end
  table.sort(list, function(a, b) return a.cost < b.cost end)
  return list
end

local function candidates(self, targets)
  local list = {}
  for _, rounds in ipairs(self.rounds) do
    for _, entry in ipairs(configs(self, rounds, targets[rounds])) do list[#list + 1] = entry end
  end
  table.sort(list, function(a, b)
    return a.cost < b.cost or a.cost == b.cost and a.config.rounds < b.config.rounds
  end)
  return list
end

-- The best config that a dry run proves. Where one fails, the search is repeated with less for
-- that number of rounds. A config that had to release its cache is slow, and the last resort.
local function find_by(self, less, tries)
  local start, targets, close = (self.cap - reserve(self, self.cap)) * SEARCH, {}, nil
  for _, rounds in ipairs(self.rounds) do targets[rounds] = start end
  for _ = 1, tries do
    local best = candidates(self, targets)[1]
    if not best then break end
    local run = proves(self, best.config, self.cap)
    best.run = run
    if run and run.host <= self.host then
      if run.flushes == 0 then return best end
      close = close or best
    end
    targets[best.config.rounds] = targets[best.config.rounds] * less
  end
  return close
end

-- By large steps, and by small ones where those went past what fits.
local function find(self) return find_by(self, 0.93, 8) or find_by(self, 0.97, 16) end

-- Bytes of the device that a config needs, by dry runs, within 2 %. @param failed with the cap
local function need_of(self, config, failed)
  local figures = self.figures(self.step.rows / config.rounds)
  local low, high = self.cap, math.max(Model.memory(figures, config), self.cap)
  local proof
  local function enough(cap)
    local run, message = proves(self, config, cap)
    failed, proof = message or failed, run or proof
    return run
  end
  while not enough(high) do high = high * 1.1 end
  while high > low * 1.02 do
    local middle = (low + high) / 2
    if enough(middle) then high = middle else low = middle end
  end
  return {config = config, need = math.ceil(high), failed = failed, run = proof}
end

-- The config that needs least of the host among those that fit the device, and what it needs.
local function least_host(self)
  local target, best = (self.cap - reserve(self, self.cap)) * SEARCH, nil
  for _, rounds in ipairs(self.rounds) do
    local figures = self.figures(self.step.rows / rounds)
    local start = Measure.uniform(self.found, least, rounds, self.ahead)
    for _, most in ipairs {0, math.huge} do
      local config, seconds, memory, host = Choose.search(figures, start, {target = target,
        host = most, link = self.link, no_offload = true})
      if memory <= target and (not best or host < best.host) then
        best = {config = config, seconds = seconds, host = host}
      end
    end
  end
  if not best then return nil end
  best.run = proves(self, best.config, self.cap)
  return best.run and best
end

-- With all on the host, in the rounds that need least: a config, or what is missing.
local function last_resort(self)
  local config, fewest
  for _, rounds in ipairs(self.rounds) do -- sums of gradients may need more than fewer rows save
    local this = Measure.uniform(self.found, least, rounds, self.ahead)
    local memory = Model.memory(self.figures(self.step.rows / rounds), this)
    if not fewest or memory < fewest then config, fewest = this, memory end
  end
  local run, failed = proves(self, config, self.cap)
  if not run then return nil, need_of(self, config, failed) end
  local best = {config = config, run = run}
  local frugal = run.host > self.host and least_host(self)
  if frugal and frugal.run.host < run.host then best = frugal end
  best.seconds = Model.time(self.figures(self.step.rows / best.config.rounds), best.config,
    self.link)
  if best.run.host <= self.host then return best end
  return nil, {config = best.config, host = best.run.host}
end

-- Whether there is a plan with so many bytes of the device.
local function fits_with(self, bytes)
  local cap = self.cap
  self.cap = math.ceil(bytes)
  local best = find(self)
  self.cap = cap
  return best
end

-- The least bytes for which the search finds a plan, in steps of 3 %. Below what all on the host
-- needs: sums of gradients and neighbours that come early may cost more than what stays on the
-- device. Above it, if the host is too small as well.
local function least_cap(self, short)
  local least_found, misses, tried = short.need, 0, short.need
  if short.run.host > self.host then
    while not fits_with(self, tried) and tried < 16 * short.need do tried = tried * 1.03 end
    return math.ceil(tried)
  end
  while tried * 0.97 > self.cap and misses < 4 do
    tried = tried * 0.97
    if fits_with(self, tried) then least_found, misses = tried, 0 else misses = misses + 1 end
  end
  return math.ceil(least_found)
end

local function search(self)
  local best = find(self)
  if not best then best, self.short = last_resort(self) end
  self.fits = best ~= nil
  if not best then
    if self.short.need then self.short.need = least_cap(self, self.short) end
    return
  end
  self.config, self.seconds = best.config, best.seconds
  self.peak, self.live, self.host_bytes = best.run.reserved, best.run.peak, best.run.host
end

-- Bytes of a GPU that are not the allocator's: the driver's, other programs'.
local function outside(on)
  if not on:find "^cuda" then return 0 end
  core.zeros({1}, {device = on}):item() -- so that the driver has made its context
  local free, total = core.device_memory(on)
  return total and total - free - core.memory.stats(on).reserved or 0
end

--- See `plan`.
function Plan:init(step, o)
  self.step, self.on = step, o.on
  self.machine = machines.machine(o.machine or "h100")
  self.link = self.machine:link("host", "plan").rate * self.machine:share "link"
  self.cap, self.host, self.ahead = o.device, o.host or math.huge, o.ahead
  self.outside = outside(o.on)
  self.rounds = o.rounds and {o.rounds} or divisors(step.rows)
  local blocks, rest, all = Blocks.find(step.model, step.blocks)
  self.found = {blocks = blocks, rest = rest, all = all, garbage = self.cap // GARBAGE,
    clip = step.clip ~= nil}
  Measure.like(self.on)
  self.figures, self.order = Figures.measure(step, self.found, self.machine)
  search(self)
end

-- --- running ---

--- Moves the model to the device and to pinned memory and makes `plan.optimizer`. The first step
-- and the functions below do so themselves.
-- @return the plan
function Plan:start()
  if self.executor then return self end
  if not self.fits then fail("%s", tostring(self)) end
  local loaded = self.on:find "^cuda" and LOADED or 0
  core.memory.limit(self.cap - self.outside - loaded, self.on)
  self.executor = Executor(self.step, self.found, self.config, self.on, false):open()
  self.executor.known = self.order
  self.optimizer = self.executor.update.optimizer
  return self
end

--- Trains one step.
-- @param ... a batch, tensors like `inputs`
-- @return the loss, a tensor of one element
function Plan:__call(...)
  self:start()
  for k = 1, math.max(self.step.inputs.n, select("#", ...)) do
    local x = select(k, ...)
    if not core.is_tensor(x) or x:size(1) ~= self.step.rows then
      fail("plan: input %d must be a tensor with %d rows, as when it was planned, got %s", k,
        self.step.rows, core.is_tensor(x) and ("%d"):format(x:size(1)) or options.kind(x))
    end
  end
  local loss = self.executor:train(...)
  self.norm = self.step.clip and self.executor.clip.norm
  return loss
end

--- All parameters and buffers by name, on the CPU.
function Plan:state_dict()
  return State.parameters(self:start().executor)
end

--- Gives parameters and buffers the values that `state_dict` returned, or the model's.
-- @return the plan
function Plan:load_state_dict(state)
  options.state("plan", state)
  State.load(self:start().executor, state)
  return self
end

function Plan:__tostring() return require "flare.plan.report"(self) end

local M = {}

--- Plans a training step under caps of memory, without running it; see docs/memory-plan.md.
-- @param step {model, loss = function(model, inputs...) (the mean over the batch), optimizer =
--   "AdamW" or function(parameters), inputs = an example of a batch, clip = the largest norm that
--   all gradients together may have, blocks = modules that are
--   decided about one by one (the elements of the model's lists), init = function(name, tensor)
--   that fills the parameters of a model that was made in meta mode}
-- @param opts {device = bytes of the device such as "20GiB", host = bytes of pinned memory, on =
--   the device, machine = a name or a description of it, by which times are predicted ("h100"),
--   ahead = blocks that are fetched before their use (1), rounds = in which a batch is computed
--   (as few as are worth it)}
-- @return a plan: print it; plan.fits; plan(x, y) trains a step
function M.plan(step, opts)
  local o = options.check("plan", opts, {device = options.none, host = options.none,
    on = options.none, machine = options.none, ahead = 1, rounds = options.none})
  step = check_step(step)
  if o.device == nil then fail "plan: device = bytes such as \"20GiB\" is missing" end
  o.device = options.bytes("plan", "device", o.device)
  o.host = o.host and options.bytes("plan", "host", o.host)
  options.count("plan", "ahead", o.ahead)
  if o.rounds then
    options.count("plan", "rounds", o.rounds)
    if step.rows % o.rounds ~= 0 then
      fail("plan: a batch of %d cannot be cut into %d equal rounds", step.rows, o.rounds)
    end
  end
  o.on = o.on or default_device()
  return Plan(step, o)
end

return M
