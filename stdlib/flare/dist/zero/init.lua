--- Data parallel training in which each rank keeps only a part of what plain data parallel training
-- replicates (ZeRO, arXiv:1910.02054): in stages 1 and 2 of the optimizer's state and of the
-- gradients, in stage 3 of the parameters as well.
--
--     local zero = dist.ZeRO(model, function(parts) return optim.AdamW(parts) end, {stage = 2})
--     zero:zero_grad()
--     loss(zero(x), y):backward()
--     zero:step()
--
-- The optimizer updates flat parts of the parameters, so it must be elementwise.
local class = require "flare.class"
local core = require "flare.core"
local dist = require "flare.dist"
local fail = require "flare.fail"
local options = require "flare.options"
local file = require "flare.dist.zero.file"
local modules = require "flare.dist.zero.modules"
local parts = require "flare.dist.zero.parts"
local stage3 = require "flare.dist.zero.stage3"
local Bucket = require "flare.dist.gradients.bucket"
local Group = require "flare.dist.group"
local Queue = require "flare.dist.gradients.queue"
local Watch = require "flare.dist.gradients.watch"
local clip = require "flare.optim.clip"
local ready = require "flare.dist.gradients.ready"
local walk = require "flare.nn.walk"

local ZeRO = class "dist.ZeRO"
ZeRO.__word = "zero"
ZeRO.__keeps = true

local function optimizer_of(shards, make, kind)
  local params, kinds, known = {}, {}, {}
  for k, shard in ipairs(shards) do
    params[k], kinds[k], known[shard.part.id] = shard.part, shard.kind, true
  end
  local optimizer = make(params, kind and kinds)
  if type(optimizer) ~= "table" or type(optimizer.groups) ~= "table" then
    fail("ZeRO: the function must return an optimizer, not %s", type(optimizer))
  end
  for _, group in ipairs(optimizer.groups) do
    for _, p in ipairs(group.params) do
      if not known[p.id] then
        fail "ZeRO: the optimizer must be one of the parts that the function gets, and no others"
      end
    end
  end
  return optimizer
end

-- Shards of the parameters in units. In their places in the model are copies of a lower dtype.
-- @return the shards, and the parameters in no unit
local function lower(self, named, units)
  local inside, low, rest, old = {}, {}, {}, {}
  for _, unit in ipairs(modules.units(self, named, units)) do
    for _, pair in ipairs(unit.named) do inside[pair[2].id] = true end
  end
  for _, pair in ipairs(named) do
    local list = inside[pair[2].id] and low or rest
    list[#list + 1] = pair
    old[pair[1]] = pair[2].id
  end
  local slots, shards = modules.slots(self.model), parts.divide(self, low, self.bytes, self.gather)
  for _, shard in ipairs(shards) do
    for k, name in ipairs(shard.names) do
      for _, slot in ipairs(slots[old[name]]) do
        walk.mark(slot.owner, shard.params[k], "parameter")
        slot.holder[slot.key] = shard.params[k]
      end
    end
  end
  return shards, rest
end

-- Makes the shards of the parameters that stay whole: backward reduces their gradients to the parts
-- as they come.
-- @param low shards of `lower`
local function keep_whole(self, low, named)
  local list = parts.divide(self, named, self.bytes, true)
  table.move(low, 1, #low, #list + 1, list)
  for _, shard in ipairs(list) do self.shards[#self.shards + 1] = shard end
  self.queue = Queue(self.group, function(shard)
    local work = shard:reduce(shard.grads)
    for _, p in ipairs(shard.params) do p.grad = nil end -- the parts have it now
    shard:clear()
    return work
  end, 1)
  self.queue:line_up(list)
end

-- Discards what a backward that failed has left.
local function reset(self)
  if self.queue.count > 0 then self.queue:reset() end
  if self.stage == 3 then stage3.drop(self) end
end

-- Raises an error that names parameters without a gradient, unless find_unused allows them.
local function refuse_missing(self, names)
  if not names or #names == 0 or self.find_unused then return end
  reset(self)
  table.sort(names)
  fail("ZeRO: no gradient came to %s; pass find_unused = true if that is right",
    table.concat(names, ", "))
end

-- Parameters that stay whole and have no gradient on this rank, neither of this backward nor of one
-- before, are refused.
-- @return for each part 1 if this rank has a gradient of it, else 0
local function unreached(self)
  local queue, has, names = self.queue, {}, {}
  for turn, shard in ipairs(queue.buckets) do
    has[turn] = 1
    for k in ipairs(turn < queue.next and {} or shard.params) do
      if not shard.grads[k] then
        has[turn] = 0
        if not shard.part.grad then names[#names + 1] = shard.names[k] end
      end
    end
  end
  refuse_missing(self, names)
  return has
end

-- At the end of backward.
local function finish(self)
  local _ <close> = core.no_grad()
  local queue = self.queue
  local came, missing = queue.count > 0, nil
  if self.stage == 3 then
    local any
    any, missing = stage3.finish(self)
    came = any or came
  end
  refuse_missing(self, missing)
  local stranger = came and self.watch:stranger()
  if stranger then
    reset(self)
    fail("ZeRO: '%s' has come into the model since, and is not updated: add all parameters first",
      stranger)
  end
  if queue.count == 0 then return end
  local has, list = unreached(self), {}
  queue:flush()
  for turn, shard in ipairs(queue.buckets) do list[turn] = {shard.part, shard.work} end
  for turn, shard in ipairs(queue.buckets) do
    if shard.late then
      list[#list + 1], has[#has + 1] = {shard.part, queue.send(shard)}, has[turn]
    end
  end
  parts.add(self, list, has)
  local order, complete = queue:learn(), {}
  if not order then return queue:reset() end
  for at, p in ipairs(order) do complete[queue.place[p.id][1]] = at end
  local ahead = table.move(queue.buckets, 1, #queue.buckets, 1, {})
  table.sort(ahead, function(a, b) return complete[a] < complete[b] end)
  queue:line_up(ahead)
end

-- Called before the parts change.
local function forget(self)
  if self.stage == 3 then stage3.forget(self) end
end

-- Called after the parts have changed: the whole parameters follow.
local function spread(self)
  local _ <close> = core.no_grad()
  local list = self.queue.buckets
  for turn = #list, 1, -1 do list[turn]:spread() end -- in the order in which forward needs them
  if self.stage == 3 then stage3.restart(self) end
end

--- dist.ZeRO(model, make, {stage = 1}). All ranks start with rank 0's parameters and buffers.
-- @param model a module
-- @param make a function from a list of parameters, this rank's parts, to an optimizer; with
--   `o.kind` its second argument is the list of the parts' kinds
-- @param o.stage 1, 2 or 3; default 1. Stages 1 and 2 do the same: a bucket of gradients is reduced
--   when it is full, and each rank keeps its part
-- @param o.group the ranks that work together, default dist.world
-- @param o.bucket_mb size of a bucket of gradients; default 25, and a 64th of large models
-- @param o.compress "bf16" or "f16": the dtype in which gradients of f32 and f64 are sent
-- @param o.find_unused true: parameters may have no gradient; default false, they are an error that
--   names them. Each parameter is a bucket of its own then
-- @param o.kind function(name, parameter): parameters with different results are in different
--   parts, so that `make` can give them options of their own
-- @param o.units the modules whose parameters are gathered and freed together, in stage 3 and with
--   `gather`; default the model's children. Parameters in no unit stay whole
-- @param o.gather "bf16" or "f16": the dtype in which parameters of units are gathered and used; in
--   stages 1 and 2 copies of that dtype replace them in the model
-- @param o.regather stage 3: backward gathers parameters again; default true. With false the tape
--   keeps them: less traffic, more memory
-- @param o.recompute stage 3: backward computes units again from their inputs; default the value of
--   find_unused, which needs it. Slower, with least memory
function ZeRO:init(model, make, o)
  if type(model) ~= "table" or not model.__module then
    fail("ZeRO: a model is expected, got %s", options.kind(model))
  end
  if type(make) ~= "function" and not (getmetatable(make) or {}).__call then
    fail("ZeRO: a function that makes the optimizer is expected, got %s: it is function(params) "
      .. "return optim.AdamW(params) end", options.kind(make))
  end
  dist.rank()
  o = options.check("ZeRO", o, {stage = 1, bucket_mb = options.none, group = dist.world,
    kind = options.none, units = options.none, recompute = options.none,
    regather = true, gather = options.none, find_unused = false, compress = options.none})
  if o.stage ~= 1 and o.stage ~= 2 and o.stage ~= 3 then
    fail("ZeRO: stage must be 1, 2 or 3, got %s", tostring(o.stage))
  end
  if o.kind ~= nil and type(o.kind) ~= "function" then
    fail("ZeRO: kind must be a function of a name and a parameter, got %s", options.kind(o.kind))
  end
  Bucket.check_low("ZeRO", "compress", o.compress)
  Bucket.check_low("ZeRO", "gather", o.gather)
  if o.recompute == nil then o.recompute = o.find_unused
  elseif type(o.recompute) ~= "boolean" then
    fail("ZeRO: option 'recompute' must be a boolean, got %s", options.kind(o.recompute))
  elseif o.find_unused and o.stage == 3 and not o.recompute then
    fail "ZeRO: find_unused in stage 3 needs recompute = true"
  end
  if o.units ~= nil and o.stage ~= 3 and not o.gather then
    fail "ZeRO: the option units needs stage 3 or gather"
  end
  self.model, self.group, self.stage = model, Group.of("ZeRO", o.group), o.stage
  self.recompute, self.regather = o.recompute, o.regather
  self.kind, self.compress, self.gather = o.kind, o.compress, o.gather
  self.find_unused = o.find_unused
  self.bytes = o.find_unused and 0 or Bucket.bytes(model:parameters(), o.bucket_mb)
  local rest, whole = Bucket.learning(model), {}
  Bucket.compare("ZeRO", self.group, rest)
  if self.group.size > 1 then
    local _ <close> = core.no_grad()
    for _, list in ipairs {model:parameters(), model:buffers()} do
      for _, t in ipairs(list) do self.group:broadcast_(t) end
    end
  end
  self.shards = {}
  local low = {}
  if self.stage == 3 then rest = stage3.divide(self, rest, o.units)
  elseif o.gather then low, rest = lower(self, rest, o.units) end
  for name, p in model:named_parameters() do whole[#whole + 1] = {name, p} end
  self.watch = Watch(model, whole)
  keep_whole(self, low, rest)
  self.listener = {
    ready = function(_, leaf)
      if self.stage == 3 and stage3.ready(self, leaf) or self.queue:ready(leaf) then return end
      self.watch:meet(leaf)
    end,
    finish = function() finish(self) end,
  }
  ready.add(self.listener)
  if #self.shards == 0 then fail "ZeRO: the model has no parameters that require gradients" end
  self.optimizer = optimizer_of(self.shards, make, self.kind)
  self.groups = self.optimizer.groups -- for schedules and scalers, as an optimizer's
  self:zero_grad()
end

-- Before a forward pass.
local function enter(self)
  local change = self.watch:change()
  if change then fail("ZeRO: %s: make ZeRO again", change) end
  if self.stage == 3 then stage3.enter(self) end
end

--- Calls the model. In stage 3 parameters are gathered as its units need them.
-- @return the model's results
function ZeRO:forward(...)
  enter(self)
  return self.model(...)
end

--- Calls the method `loss` of the model, as those of flare.models have it.
-- @return its results
function ZeRO:loss(...)
  if type(self.model.loss) ~= "function" then
    fail("ZeRO: %s has no method 'loss'", getmetatable(self.model).__name)
  end
  enter(self)
  return self.model:loss(...)
end

function ZeRO:__call(...) return self:forward(...) end

--- Switches the model to training, or to evaluation.
-- @param mode false for evaluation
-- @return self
function ZeRO:train(mode)
  self.model:train(mode)
  return self
end

--- Switches the model to evaluation.
-- @return self
function ZeRO:eval() return self:train(false) end

--- Removes the gradients of the parts and of all parameters.
function ZeRO:zero_grad()
  reset(self)
  for _, shard in ipairs(self.shards) do
    shard.part.grad = nil
    for _, p in ipairs(shard.params or {}) do p.grad = nil end
  end
end

--- Scales gradients so that their norm over all ranks is at most `limit`. Nothing is read back
-- from the device.
-- @param limit the largest norm
-- @return the norm before, a 0-d tensor
function ZeRO:clip_grad_norm_(limit)
  local params = {}
  for k, shard in ipairs(self.shards) do params[k] = shard.part end
  return clip.clip_grad_norm_(params, limit, {group = self.group})
end

--- Asks all ranks, as optim.GradScaler does before a step.
-- @param ok a boolean
-- @return whether `ok` is true on all ranks
function ZeRO:agree(ok)
  local all = core.tensor({ok and 1 or 0}, {dtype = "i32"})
  return self.group:all_reduce(all, {reduce = "min"}):item() == 1
end

--- Updates this rank's parts. In stages 1 and 2 the ranks then exchange the new parameters.
function ZeRO:step()
  forget(self)
  self.optimizer:step()
  spread(self)
end

--- The model's state_dict: all parameters and buffers by name, whole, on every rank.
-- @return a table of tensors by name
function ZeRO:state_dict()
  local _ <close> = core.no_grad()
  local state = {}
  for name, t in self.model:named_buffers() do state[name] = t end
  for name, p in self.model:named_parameters() do state[name] = p end
  for _, shard in ipairs(self.shards) do
    local flat = self.group:all_gather(shard.part:detach())
    for k, name in ipairs(shard.names) do state[name] = shard:view(flat, k):clone() end
  end
  return state
end

--- Loads a state_dict, of ZeRO or of a plain model. All ranks give the same.
-- @param state a table of tensors by name
-- @param message what a reader returned with nil in place of the state
function ZeRO:load_state_dict(state, message)
  options.state("ZeRO:load_state_dict", state, message)
  local _ <close> = core.no_grad()
  local whole, sharded = {}, {}
  local function value(name, shape)
    local t = state[name]
    local found = core.is_tensor(t) and table.concat(t.shape, "x") or type(t)
    if found ~= table.concat(shape, "x") then
      fail("ZeRO:load_state_dict: '%s' is %s, here it is %s", name, found, table.concat(shape, "x"))
    end
    return t
  end
  for _, shard in ipairs(self.shards) do
    for k, name in ipairs(shard.names) do sharded[name] = value(name, shard.shapes[k]) end
  end
  for name, t in self.model:named_buffers() do whole[t] = value(name, t.shape) end
  for name, p in self.model:named_parameters() do
    if not sharded[name] then whole[p] = value(name, p.shape) end
  end
  self:zero_grad()
  forget(self)
  for t, new in pairs(whole) do t:copy_(new) end
  for _, shard in ipairs(self.shards) do
    local list = {}
    for k, name in ipairs(shard.names) do list[k] = sharded[name] end
    shard.part:copy_(shard:mine(shard:pack(list, shard.dtype)))
  end
  spread(self)
end

--- Writes parameters, buffers and the optimizer's state into a folder, each rank its part. The
-- checkpoint that was there before stays until the new one is complete.
-- @param folder its name
-- @return true, or nil and a message, the same on every rank
function ZeRO:save(folder) return file.save(self, folder) end

--- Loads what save() wrote, with any number of ranks.
-- @param folder its name
-- @return true, or nil and a message, the same on every rank
function ZeRO:load(folder)
  forget(self)
  local ok, message = file.load(self, folder)
  if not ok then return nil, message end
  spread(self)
  return true
end

return ZeRO
