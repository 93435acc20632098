--- Data parallel training in which each rank keeps a part of what all need (arXiv:1910.02054):
-- stages 1 and 2 of the optimizer's state and of the gradients, which leave as they come, 3 of the
-- parameters, too.
--
--     local zero = dist.ZeRO(model, function(params) return optim.AdamW(params) end, {stage = 2})
--     zero:zero_grad()
--     loss(zero(x), y):backward()
--     zero:step()
--
-- The optimizer sees flat parts instead of the parameters: it must treat elements alike.
local class = require "flare.class"
local core = require "flare.core"
local dist = require "flare.dist"
local fail = require "flare.fail"
local options = require "flare.options"
local ready = require "flare.dist.ready"
local Bucket = require "flare.dist.bucket"
local Group = require "flare.dist.group"
local Queue = require "flare.dist.queue"
local Shard = require "flare.dist.shard"
local Watch = require "flare.dist.watch"
local clip = require "flare.optim.clip"
local walk = require "flare.nn.walk"

local ZeRO = class "dist.ZeRO"

-- Shards of parameters of one kind each, in the order that backward meets them.
local function divide(self, named, bytes, stay)
  local kinds, of, list = {}, {}, {}
  for _, pair in ipairs(named) do
    local kind = self.kind and self.kind(pair[1], pair[2]) or false
    if not of[kind] then
      kinds[#kinds + 1], of[kind] = kind, {}
    end
    table.insert(of[kind], pair)
  end
  for _, kind in ipairs(kinds) do
    for _, part in ipairs(Bucket.divide(of[kind], bytes)) do
      local shard = Shard(part, self.group, self.compress, stay)
      shard.kind = kind
      list[#list + 1] = shard
    end
  end
  return list
end

local function optimizer_of(shards, make, kind)
  local parts, kinds, known = {}, {}, {}
  for k, shard in ipairs(shards) do
    parts[k], kinds[k], known[shard.part.id] = shard.part, shard.kind, true
  end
  local optimizer = make(parts, kind and kinds)
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

--- @param make a function from a list of parameters to an optimizer
-- Options: stage (1); group; bucket_mb, how much goes at a time (25, of large models a 64th);
-- compress, "bf16" or "f16" that f32 and f64 gradients travel as; find_unused, parameters may be
-- without a gradient, and each is a part of its own (false: they are an error that names them);
-- kind, a function of a parameter's name and tensor: those of different kinds are in different
-- parts, and `make` gets a list of the parts' kinds as well, for groups with options of their own;
-- units, the modules whose parameters come and go together in stage 3 (the model's children; what
-- is in none of them is treated as in stage 2); gather, "bf16" or "f16" that parameters of units
-- are gathered and used as: in stages 1 and 2 others of that dtype take their places in the model;
-- and for stage 3 regather: backward gathers again what it needs of them (true), or the tape keeps
-- it (false: less traffic, more memory), and
-- recompute: backward computes units again (true: slower, with less memory; find_unused needs it).
function ZeRO:init(model, make, o)
  if type(model) ~= "table" or not model.__module then
    fail("ZeRO: a model is expected, got %s", type(model))
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
    fail "ZeRO: units are those of stage 3, or of gather"
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
  if self.stage == 3 then rest = require "flare.dist.zero3".divide(self, rest, o.units)
  elseif o.gather then low, rest = self:_lower(rest, o.units) end
  for name, p in model:named_parameters() do whole[#whole + 1] = {name, p} end
  self.watch = Watch(model, whole)
  self:_keep(low, rest)
  local units = self.stage == 3 and require "flare.dist.zero3"
  self.listener = {
    ready = function(_, leaf)
      if units and units.ready(self, leaf) or self.queue:ready(leaf) then return end
      self.watch:meet(leaf)
    end,
    finish = function() self:_finish() end,
  }
  ready.add(self.listener)
  if #self.shards == 0 then fail "ZeRO: the model has no parameters that learn" end
  self.optimizer = optimizer_of(self.shards, make, self.kind)
  self.groups = self.optimizer.groups -- for schedules and scalers, as an optimizer's
  self:zero_grad()
end

-- Shards of the parameters in units, whose places in the model others take, of lower dtype.
-- @return these, and the parameters in no unit
function ZeRO:_lower(named, units)
  local zero3 = require "flare.dist.zero3"
  local inside, low, rest, old = {}, {}, {}, {}
  for _, unit in ipairs(zero3.units(self, named, units)) do
    for _, pair in ipairs(unit.named) do inside[pair[2].id] = true end
  end
  for _, pair in ipairs(named) do
    local list = inside[pair[2].id] and low or rest
    list[#list + 1] = pair
    old[pair[1]] = pair[2].id
  end
  local slots, shards = zero3.slots(self.model), self:divide(low, self.bytes, self.gather)
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

-- Parameters that stay whole: their gradients are reduced to their owners as they come.
-- @param low shards of such ones
function ZeRO:_keep(low, named)
  local list = self:divide(named, self.bytes, true)
  table.move(low, 1, #low, #list + 1, list)
  for _, shard in ipairs(list) do self.shards[#self.shards + 1] = shard end
  self.queue = Queue(self.group, function(shard)
    local work = shard:reduce(shard.grads)
    for _, p in ipairs(shard.params) do p.grad = nil end -- what it has is in the parts
    shard:clear()
    return work
  end, 1)
  self.queue:line_up(list)
end

-- What of the parameters that stay whole has no gradient on this rank, nor one of a pass before,
-- which is an error unless there are parts for each. @return 1 for each part that has something
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
  self:_missing(names)
  return has
end

-- What backward has left, if it failed.
local function reset(self)
  if self.queue.count > 0 then self.queue:reset() end
  if self.stage == 3 then require "flare.dist.zero3".drop(self) end
end

--- Names parameters that no gradient came to, if that is an error.
function ZeRO:_missing(names)
  if #names == 0 or self.find_unused then return end
  reset(self)
  table.sort(names)
  fail("ZeRO: no gradient came to %s; pass find_unused = true if that is right",
    table.concat(names, ", "))
end

-- Adds what comes to the parts' gradients, but for those that have none on any rank.
-- @param has 1 for each entry of the list {part, handle} of which this rank has one, else 0
function ZeRO:_take(list, has)
  if self.find_unused and #list > 0 then
    has = self.group:all_reduce(core.tensor(has, {dtype = "i32"}), {reduce = "max"}):tolist()
  end
  for k, pair in ipairs(list) do
    local part, grad = pair[1], pair[2]:wait()
    if not self.find_unused or has[k] == 1 then
      if part.grad then part.grad:add_(grad) else part.grad = grad end
    end
  end
end

function ZeRO:_finish()
  local _ <close> = core.no_grad()
  local queue = self.queue
  local came = self.stage == 3 and require "flare.dist.zero3".finish(self) or queue.count > 0
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
  self:_take(list, has)
  local order, complete = queue:learn(), {}
  if not order then return queue:reset() end
  for at, p in ipairs(order) do complete[queue.place[p.id][1]] = at end
  local ahead = table.move(queue.buckets, 1, #queue.buckets, 1, {})
  table.sort(ahead, function(a, b) return complete[a] < complete[b] end)
  queue:line_up(ahead)
end

function ZeRO:forward(...)
  local change = self.watch:change()
  if change then fail("ZeRO: %s: ZeRO has to be made anew", change) end
  if self.stage == 3 then return require "flare.dist.zero3".forward(self, ...) end
  return self.model(...)
end

function ZeRO:__call(...) return self:forward(...) end

function ZeRO:train(mode)
  self.model:train(mode)
  return self
end

function ZeRO:eval() return self:train(false) end

function ZeRO:zero_grad()
  reset(self)
  for _, shard in ipairs(self.shards) do
    shard.part.grad = nil
    for _, p in ipairs(shard.params or {}) do p.grad = nil end
  end
end

--- Scales gradients so that their norm over all ranks is at most `limit`. Nothing is read back
-- from the device.
-- @return the norm before, a 0-d tensor
function ZeRO:clip_grad_norm_(limit)
  local parts = {}
  for k, shard in ipairs(self.shards) do parts[k] = shard.part end
  return clip.clip_grad_norm_(parts, limit, {group = self.group})
end

--- Whether `ok` is true on all ranks.
function ZeRO:agree(ok)
  local all = core.tensor({ok and 1 or 0}, {dtype = "i32"})
  return self.group:all_reduce(all, {reduce = "min"}):item() == 1
end

--- Updates this rank's parts; of parameters that are whole everybody gets the others'.
function ZeRO:step()
  self:_forget()
  self.optimizer:step()
  self:_spread()
end

-- The parts are about to change.
function ZeRO:_forget()
  if self.stage == 3 then require "flare.dist.zero3".forget(self) end
end

-- The parts have changed.
function ZeRO:_spread()
  local _ <close> = core.no_grad()
  local list = self.queue.buckets
  for turn = #list, 1, -1 do list[turn]:spread() end -- as forward needs them, meanwhile
  if self.stage == 3 then require "flare.dist.zero3".restart(self) end
end

--- All parameters and buffers by name, whole, on every rank: as the model's state_dict.
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

--- Takes over what state_dict() gave, this one's or a plain model's: the same on every rank.
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
  self:_forget()
  for t, new in pairs(whole) do t:copy_(new) end
  for _, shard in ipairs(self.shards) do
    local list = {}
    for k, name in ipairs(shard.names) do list[k] = sharded[name] end
    shard.part:copy_(shard:mine(shard:pack(list, shard.dtype)))
  end
  self:_spread()
end

--- Writes parameters, buffers and the optimizer's state into a folder, each rank its part.
-- @return true, or nil and a message, the same on every rank
function ZeRO:save(folder) return require "flare.dist.zero_file".save(self, folder) end

--- Takes over what save wrote, by as many ranks or others.
-- @return true, or nil and a message, the same on every rank
function ZeRO:load(folder) return require "flare.dist.zero_file".load(self, folder) end

ZeRO.divide = divide

return ZeRO
