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
local Shard = require "flare.dist.shard"
local clip = require "flare.optim.clip"

local ZeRO = class "dist.ZeRO"

-- Shards of parameters that learn, in the order that backward meets them.
local function divide(named, bytes, group)
  local list, params, names = {}, {}, {}
  for k = #named, 1, -1 do
    params[#params + 1] = named[k][2]
    names[named[k][2].id] = named[k][1]
  end
  for s, part in ipairs(Bucket.divide(params, bytes)) do
    local words = {}
    for k, p in ipairs(part) do words[k] = names[p.id] end
    list[s] = Shard(part, words, group)
  end
  return list
end

local function learning(module)
  local list = {}
  for name, p in module:named_parameters() do
    if p.requires_grad then list[#list + 1] = {name, p} end
  end
  return list
end

--- @param make a function from a list of parameters to an optimizer
-- Options: stage (1); group; bucket_mb, how much goes at a time (25, of large models a 64th); and
-- for stage 3 units, the modules whose parameters come and go together (the model's children; what
-- is in none of them is treated as in stage 2), and recompute: backward gathers a unit's parameters
-- and computes it again (true), or the tape keeps what it needs of them (false: faster, with more
-- memory).
function ZeRO:init(model, make, o)
  if type(model) ~= "table" or not model.__module then
    fail("ZeRO: a model is expected, got %s", type(model))
  end
  dist.rank()
  o = options.check("ZeRO", o, {stage = 1, bucket_mb = options.none, group = dist.world,
    units = options.none, recompute = true})
  if o.stage ~= 1 and o.stage ~= 2 and o.stage ~= 3 then
    fail("ZeRO: stage must be 1, 2 or 3, got %s", tostring(o.stage))
  end
  self.model, self.group, self.stage = model, o.group, o.stage
  self.recompute = o.recompute
  self.bytes = Bucket.bytes(model:parameters(), o.bucket_mb)
  if self.group.size > 1 then
    local _ <close> = core.no_grad()
    for _, list in ipairs {model:parameters(), model:buffers()} do
      for _, t in ipairs(list) do self.group:broadcast_(t) end
    end
  end
  self.shards = {}
  local rest = learning(model)
  if self.stage == 3 then rest = require "flare.dist.zero3".divide(self, rest, o.units) end
  self:_keep(rest)
  self.listener = {ready = function(_, leaf) self:_ready(leaf) end,
    finish = function() self:_finish() end}
  ready.add(self.listener)
  local parts = {}
  for k, shard in ipairs(self.shards) do parts[k] = shard.part end
  self.optimizer = make(parts)
  self:zero_grad()
end

-- Shards in the order of their going.
local function line_up(self, list)
  self.whole = list
  for turn, shard in ipairs(list) do shard.turn = turn end
end

-- Parameters that stay whole: their gradients are reduced to their owners as they come.
function ZeRO:_keep(named)
  line_up(self, divide(named, self.bytes, self.group))
  self.place = {}
  for s, shard in ipairs(self.whole) do
    self.shards[#self.shards + 1] = shard
    for k, p in ipairs(shard.params) do self.place[p.id] = {shard, k} end
  end
  self.next, self.came = 1, {}
end

local function depart(self)
  local shard = self.whole[self.next]
  while shard and shard.missing == 0 do
    shard.work = shard:reduce(shard.grads)
    for _, p in ipairs(shard.params) do p.grad = nil end -- what it has is in the parts
    shard:clear()
    self.next = self.next + 1
    shard = self.whole[self.next]
  end
end

-- After the first backward: rank 0's order, then what has not come.
local function settle(self)
  local came, list = {}, {}
  for k, shard in ipairs(self.came) do came[k], list[shard] = shard.turn, true end
  for turn, shard in ipairs(self.whole) do
    if not list[shard] then came[#came + 1] = turn end
  end
  came = self.group:broadcast(core.tensor(came, {dtype = "i64"})):tolist()
  for k, turn in ipairs(came) do came[k] = self.whole[turn] end
  line_up(self, came)
  self.came = nil
end

function ZeRO:_ready(leaf)
  local place = self.place[leaf.id]
  if not place then return end
  local _ <close> = core.no_grad()
  local shard = place[1]
  local after = self.whole[shard.turn + 1]
  shard:open()
  if after then after:open() end -- before its gradients come
  shard:take(place[2], leaf.grad)
  if self.came and shard.missing == 0 then self.came[#self.came + 1] = shard end
  self.seen = true
  depart(self)
end

local function add_grad(part, grad)
  if part.grad then part.grad:add_(grad) else part.grad = grad end
end

function ZeRO:_finish()
  local _ <close> = core.no_grad()
  if self.stage == 3 then require "flare.dist.zero3".finish(self, add_grad) end
  if not self.seen then return end
  for turn = self.next, #self.whole do -- parameters without a gradient count as zeros
    self.whole[turn].missing = 0
  end
  depart(self)
  for _, shard in ipairs(self.whole) do
    add_grad(shard.part, shard.work:wait())
    shard.work = nil
  end
  if self.came then settle(self) end
  self.next, self.seen = 1, false
end

function ZeRO:forward(...)
  if self.stage == 3 then return require "flare.dist.zero3".forward(self, ...) end
  return self.model(...)
end

function ZeRO:__call(...) return self:forward(...) end

function ZeRO:zero_grad()
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
  for turn = #self.whole, 1, -1 do -- as forward needs them, which begins meanwhile
    local shard = self.whole[turn]
    self.group:aside(shard.device, {shard.part, table.unpack(shard.params)}, function()
      local flat <close> = self.group:all_gather(shard.part:detach(), {async = true}):wait()
      for k, p in ipairs(shard.params) do
        local new <close> = shard:view(flat, k)
        p:copy_(new)
      end
    end)
  end
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

--- Writes parameters, buffers and the optimizer's state into a folder, each rank its part.
-- @return true, or nil and a message, the same on every rank
function ZeRO:save(folder) return require "flare.dist.zero_file".save(self, folder) end

--- Takes over what save wrote, by as many ranks or others.
-- @return true, or nil and a message, the same on every rank
function ZeRO:load(folder) return require "flare.dist.zero_file".load(self, folder) end

ZeRO.divide, ZeRO.learning = divide, learning

return ZeRO
