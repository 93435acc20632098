--- Runs training steps as a plan says. Each block's forward is wrapped: before it runs its
-- parameters come, after it they leave, and so do values that backward needs. A hook on the
-- gradient of a block's result brings them again, while the block after it computes. Blocks are
-- updated as soon as backward has passed them in the last round.
local checkpoint = require "flare.checkpoint"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Blocks = require "flare.plan.blocks"
local Clip = require "flare.plan.clip"
local State = require "flare.plan.state"
local Traffic = require "flare.plan.traffic"
local Update = require "flare.plan.update"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local Executor = class "plan.Executor"
Executor.__keeps = true

local GARBAGE = 4 << 20 -- bytes that only Lua's handles keep

-- --- the model's tensors ---

-- Puts a tensor in all places of a parameter.
local function put(entry, tensor)
  for _, slot in ipairs(entry.slots) do
    walk.mark(slot.owner, tensor, "parameter")
    slot.holder[slot.key] = tensor
  end
end

-- Whether a tensor was made outside of meta mode.
local function has_values(p)
  return p:nbytes() == 0 or (pcall(function() return p:detach():reshape{-1}[1]:item() end))
end

-- A parameter on the device; `streamed`: its values lie on the host.
local function place(self, entry, streamed)
  local p = entry.tensor
  local blank = not self.dry and not has_values(p)
  if blank and not self.step.init then
    fail("plan: parameter '%s' was made in meta mode and has no values; pass init = function(name, "
      .. "tensor), which gives them", entry.name)
  end
  local new
  if self.dry or streamed or blank then
    new = core.empty(p.shape, {dtype = p.dtype, device = self.device})
  else
    new = p:detach():to(self.device)
    if new.id == p.id then new = new:clone() end
  end
  if blank then self.step.init(entry.name, new) end
  if streamed then
    local host = self.traffic:place(p, p.dtype)
    if host and not blank then host:copy_(p:detach()) end
    local swap = Traffic.Swap(new, host)
    swap.placed = true
    if blank then
      core.store(swap.memory, host)
      core.synchronize(self.device)
    end
    self.traffic:drop {swap}
    entry.swap = swap
  end
  new:requires_grad_(p.requires_grad)
  entry.here = new
  put(entry, new)
end

local function buffers_of(model)
  local list = {}
  walk.visit(model, function(_, tensor, owner, key, holder)
    list[#list + 1] = {tensor = tensor, owner = owner, key = key, holder = holder}
  end, "buffer", true)
  return list
end

-- What runs a module's forward. It is no upvalue of that function, since a checkpoint goes through
-- all tables that its function leads to, but for those of the library.
Executor.active = setmetatable({}, {__mode = "k"})

-- In place of the forward of blocks.
local function forward(module, ...)
  local how = Executor.active[module]
  return how[1]:run(how[2], how[3], ...)
end

--- @param step {model, loss, optimizer, clip}
-- @param found what Blocks.find returned
-- @param config {blocks = a list of {parameters, gradients, states = "device" or "host", saved =
--   "keep", "recompute" or "offload", input = "device" or "host"}, rest = {states}, rounds, ahead,
--   garbage = bytes of it that may wait}
function Executor:init(step, found, config, device, dry)
  self.step, self.config, self.device, self.dry = step, config, device, dry
  self.found, self.blocks, self.all = found, found.blocks, found.all
  self.traffic, self.buffers = Traffic(device, dry), buffers_of(step.model)
  self.clip = step.clip and Clip(self, step.clip)
end

--- Moves the model to the device and to pinned memory, and makes the optimizer.
function Executor:open()
  local _ <close> = core.no_grad()
  local found, config, device, dry = self.found, self.config, self.device, self.dry
  for _, b in ipairs(self.buffers) do
    local new = dry and core.empty(b.tensor.shape, {dtype = b.tensor.dtype, device = device})
      or b.tensor:to(device)
    walk.mark(b.owner, new, "buffer")
    b.holder[b.key] = new
  end
  for _, entry in ipairs(found.all) do
    local how = entry.block and config.blocks[entry.block.index]
    place(self, entry, how and how.parameters == "host" and entry.tensor:nbytes() >= Blocks.LEAST)
  end
  for k, block in ipairs(self.blocks) do
    block.how, block.swaps = config.blocks[k], {}
    for _, entry in ipairs(block.params) do
      if entry.swap then table.insert(block.swaps, entry.swap) end
    end
    Executor.active[block.module] = {self, block, block.module.forward}
    rawset(block.module, "forward", forward)
  end
  if not dry then -- the model's old memory is not needed any more
    for _, entry in ipairs(found.all) do entry.tensor = entry.here end
  end
  self.update = Update(self, found)
  State.optimizer(self.update, found.all)
  return self
end

--- Bytes {parameters, gradients, states} of each block, those of the other parameters, and those
-- of what is always on the device: the other parameters, buffers and inputs.
function Executor:count()
  local function of(entries)
    local sum = {parameters = 0, gradients = 0, states = 0, largest = 0}
    for _, entry in ipairs(entries) do
      local bytes = entry.here:nbytes()
      if bytes >= Blocks.LEAST or not entry.block then
        sum.parameters = sum.parameters + bytes
      else
        self.small = (self.small or 0) + bytes
      end
      if entry.here.requires_grad then sum.gradients = sum.gradients + bytes end
      local states = self.update:bytes(entry)
      sum.states, sum.largest = sum.states + states, math.max(sum.largest, states)
    end
    return sum
  end
  self.small = 0
  local list = {}
  for k, block in ipairs(self.blocks) do list[k] = of(block.params) end
  local rest = of(self.update.others)
  local base = rest.parameters + self.small + self.inputs
  for _, b in ipairs(self.buffers) do base = base + b.holder[b.key]:nbytes() end
  return list, rest, base
end

--- Puts the model's own tensors and functions back.
function Executor:close()
  local _ <close> = core.no_grad()
  for _, block in ipairs(self.blocks) do
    rawset(block.module, "forward", nil)
    Executor.active[block.module] = nil
    for _, key in ipairs {"away", "grads", "hosts", "grad_hosts", "how", "swaps", "turn"} do
      block[key] = nil
    end
  end
  for _, entry in ipairs(self.all) do
    put(entry, entry.tensor)
    entry.here, entry.swap, entry.states = nil, nil, nil
  end
  for _, b in ipairs(self.buffers) do
    walk.mark(b.owner, b.tensor, "buffer")
    b.holder[b.key] = b.tensor
  end
end

-- Between blocks their temporaries are collected, which are young. Handles of blocks' inputs are
-- old when they become garbage: they are collected before backward, or the inputs that come back
-- for it would stay. Between rounds all garbage is, if it keeps many bytes. What is on the device
-- by plan, such as states in the last round, counts as well: `kept` is the least that was there.
local function collect(self)
  local only = core.memory.stats(self.device).lua_only
  self.kept = math.min(self.kept or only, only)
  if only < self.kept + math.max(self.config.garbage or 0, GARBAGE) then return end
  collectgarbage()
  self.kept = core.memory.stats(self.device).lua_only
end

-- --- forward ---

-- The first argument that has a history.
local function input_of(...)
  for k = 1, select("#", ...) do
    local x = select(k, ...)
    if core.is_tensor(x) then return not x.is_leaf and x or nil end
  end
end

-- Values of the block that backward needs go to the host.
local function store(self, block, since, x, y)
  local how, list = block.how, {}
  if how.saved == "offload" then
    for _, memory in ipairs(core.saved(y, since, Blocks.LEAST)) do
      list[#list + 1] = Traffic.Swap(memory)
    end
  end
  if how.input == "host" and x and x:nbytes() >= Blocks.LEAST then
    list[#list + 1] = Traffic.Swap(x)
  end
  local hosts = block.hosts or {} -- pinned memory, the same in each round
  block.hosts = hosts
  for k, swap in ipairs(list) do
    local host = hosts[k]
    if not host or host.bytes ~= swap.bytes then
      host = {bytes = swap.bytes, memory = self.traffic:place(swap.memory)}
      hosts[k] = host
    end
    swap.host, swap.placed = host.memory, true
  end
  self.traffic:leave(list, true)
  block.away = list
end

--- In place of a block's forward.
function Executor:run(block, original, ...)
  local traffic = self.traffic
  traffic:await(block.swaps)
  if not core.grad_enabled() then
    local results = table.pack(original(block.module, ...))
    traffic:leave(block.swaps, false)
    traffic:turn()
    return table.unpack(results, 1, results.n)
  end
  if block.turn == self.turn then
    fail("plan: block '%s' runs twice in a step; pass blocks = the modules that run once",
      block.name)
  end
  block.turn = self.turn
  self.order[#self.order + 1] = block
  block.place = #self.order
  for k = 1, self.config.ahead do
    local next_one = self.known and self.known[block.place + k]
    if next_one then traffic:fetch(next_one.swaps) end
  end
  local since = core.tape_now()
  local y
  local _ <close> = self:named(block.index)
  if block.how.saved == "recompute" then
    local module = block.module
    y = checkpoint.checkpoint(function(...) return original(module, ...) end, ...)
  else
    y = original(block.module, ...)
  end
  if not core.is_tensor(y) then
    fail("plan: block '%s' must return one tensor, got %s", block.name, options.kind(y))
  end
  traffic:turn()
  collectgarbage "step"
  if y.requires_grad then
    local last = self.known and block == self.known[#self.known]
    if not last then
      traffic:leave(block.swaps, false)
      store(self, block, since, input_of(...), y)
    end
    y:register_hook(function() self:begin(block) end)
  end
  if self.watch then
    local x = input_of(...)
    self.watch("forward", block, x and x:nbytes() or 0)
  end
  return y
end

local nothing = setmetatable({}, {__close = function() end})

--- In a profile, launches until the object is closed get this name.
function Executor:named(name)
  if not self.watch then return nothing end
  local before = core.profile_push(tostring(name))
  return setmetatable({}, {__close = function() core.profile_pop(before) end})
end

-- --- backward ---

--- Parameters, values and gradients of a block, as memory that can be swapped.
function Executor.needs(block)
  local list = table.move(block.swaps, 1, #block.swaps, 1, {})
  for _, swap in ipairs(block.away or {}) do list[#list + 1] = swap end
  if block.grads then table.move(block.grads, 1, #block.grads, #list + 1, list) end
  return list
end
local needs = Executor.needs

--- Backward reaches a block.
function Executor:begin(block)
  local _ <close> = core.no_grad()
  collectgarbage "step"
  self:finish()
  self.traffic:await(needs(block))
  if self.last and not self.clip then self.update:prepare(block) end
  for k = 1, self.config.ahead do
    local before = self.order[block.place - k]
    if before then self.traffic:fetch(needs(before)) end
  end
  self.current = block
end

-- Gradients leave until the next round.
local function keep_gradients(self, block)
  local list, hosts = {}, block.grad_hosts or {}
  block.grad_hosts = hosts
  for k, entry in ipairs(block.params) do
    local grad = entry.here.grad
    if grad and grad:nbytes() >= Blocks.LEAST then
      local swap = Traffic.Swap(grad)
      if not hosts[k] then hosts[k] = {memory = self.traffic:place(swap.memory)} end
      swap.host, swap.placed = hosts[k].memory, true
      list[#list + 1] = swap
    end
  end
  self.traffic:leave(list, true)
  block.grads = list
end

--- A block's values and gradients end, or others take their place.
function Executor.forget(block)
  for _, list in pairs {block.away, block.grads} do -- not to keep the memory alive
    for _, swap in ipairs(list) do swap.memory:close() end
  end
  block.away, block.grads = nil, nil
end

--- Backward has passed the block that it was in.
function Executor:finish()
  local block = self.current
  self.traffic:turn()
  if not block then return end
  self.current = nil
  self.forget(block)
  if self.watch then self.watch("backward", block) end
  if self.last and not self.clip then self.update:run(block.params, block)
  else
    if self.last then self.clip:note(block.params) end
    if block.how.gradients == "host" then keep_gradients(self, block) end
    self.traffic:leave(block.swaps, false)
  end
end

-- --- steps ---

local function slice(inputs, round, rounds)
  if rounds == 1 then return inputs end
  local out = {n = inputs.n}
  for k = 1, inputs.n do
    local x = inputs[k]
    local rows = x:size(1) // rounds
    out[k] = x:narrow(1, (round - 1) * rows + 1, rows)
  end
  return out
end

--- A training step. @return the loss, a tensor of one element
function Executor:train(...)
  local rounds, inputs, total = self.config.rounds, table.pack(...), nil
  self.inputs = 0
  for round = 1, rounds do
    self.last, self.order, self.turn = round == rounds, {}, {}
    if self.watch then self.watch("start") end
    local mine = slice(inputs, round, rounds)
    for k = 1, mine.n do
      mine[k] = mine[k]:to(self.device)
      self.inputs = self.inputs + mine[k]:nbytes()
    end
    local loss = self.step.loss(self.step.model, table.unpack(mine, 1, mine.n))
    if not core.is_tensor(loss) or loss:numel() ~= 1 then
      fail("plan: loss must return a tensor of one element, got %s",
        core.is_tensor(loss) and tostring(loss.shape) or type(loss))
    end
    if rounds > 1 then loss = loss / rounds end
    if self.watch then self.watch("loss") else collectgarbage() end -- who watches collects
    loss:backward()
    local _ <close> = core.no_grad()
    self:finish()
    self.known = self.order
    if self.watch then self.watch("rest") end
    total = total and total + loss:detach() or loss:detach()
    loss:close()
    collect(self)
  end
  local _ <close> = core.no_grad()
  if self.clip then self.clip:update() end
  self.update:rest()
  self.traffic:turn()
  return total
end

return Executor
