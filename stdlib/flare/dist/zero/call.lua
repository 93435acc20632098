--- A call of a unit of ZeRO's third stage whose tape is kept. The parameters lie in memory that is
-- lent: of what backward needs of them the tape has marks, for which they are gathered again, in
-- the dtype in which they were used, while backward is at the call after this one. Leaves without
-- memory stand for them on the tape; when the last one's gradient is complete, all leave.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local Call = class "dist.Call"

function Call:init(unit)
  local zero = unit.zero
  self.unit, self.leaves, self.left = unit, {}, 0
  self.flats, self.streams = {}, {} -- by shard and dtype, what has been gathered again, and where
  self.lent = {} -- functions that the core finds as long as they are here
  self.steps, self.turn = zero.steps, #zero.calls + 1
  zero.calls[self.turn] = self
end

--- @param asked handles of the unit's flat tensors
-- @param lends whether they are gathered again; else the tape keeps what it needs of them
-- @return the whole parameters, one list
function Call:lay(asked, lends)
  local unit, all, numel = self.unit, {}, 0
  for _, shard in ipairs(unit.shards) do numel = numel + shard.numel end
  for s, shard in ipairs(unit.shards) do
    local flat <close>, leaves = asked[s]:wait(), {}
    local nothing <close> = core.zeros({}, {dtype = shard.dtype, device = shard.device})
    if lends and shard.group.size > 1 then
      self.lent[s] = function(dtype) return self:again(s, dtype) end
      core.lend(flat, self.lent[s])
    end
    for k, shape in ipairs(shard.shapes) do
      local p = shard:view(flat, k)
      if p:numel() * 16 < numel then -- a small one keeps itself, not all of them
        local small = p:clone()
        p:close()
        p = small
      end
      leaves[k] = nothing:expand(shape):requires_grad_(true)
      core.stand_in(p, leaves[k])
      unit.zero.leaves[leaves[k].id] = self
      all[#all + 1] = p
    end
    self.leaves[s], self.flats[s], self.left = leaves, {}, self.left + #leaves
  end
  self.count = self.left
  return all
end

-- Sends for one of its flat tensors, unless that has been done.
function Call:ask(s, dtype)
  local flats, shard = self.flats[s], self.unit.shards[s]
  if flats[dtype] then return end
  local _ <close> = core.no_grad()
  local part = shard.part:detach()
  flats[dtype] = shard.group:all_gather(part:to(dtype), {async = true})
end

--- One of its flat tensors once more; those of the call before are on their way then.
function Call:again(s, dtype)
  local unit = self.unit
  local zero, shard, flats = unit.zero, unit.shards[s], self.flats[s]
  if self.steps ~= zero.steps then
    fail "ZeRO: backward needs parameters as they were in forward, and they have changed since"
  end
  self:ask(s, dtype)
  local key = s .. dtype
  if not unit.used[key] then
    unit.used[key] = true
    table.insert(unit.used, {s, dtype})
  end
  local before = zero.calls[self.turn - 1]
  if before and not before.done then
    for _, use in ipairs(before.unit.used) do before:ask(use[1], use[2]) end
  end
  local flat = flats[dtype]:wait()
  if shard.device ~= "cpu" then -- a second stream waits for the one that has waited
    local now = core.current_stream(shard.device)
    self.streams[key] = self.streams[key] or now
    now:wait(self.streams[key])
  end
  return flat
end

-- Its gradients are written where they are sent from.
function Call:open()
  for s, shard in ipairs(self.unit.shards) do
    if shard.params ~= self.leaves[s] then -- of no call, or one whose backward is not yet
      shard:close()
      shard.params = self.leaves[s]
      shard:open()
    end
  end
end

--- One of its leaves has a gradient. @return whether that was the last one
function Call:ready()
  self.left = self.left - 1
  return self.left == 0
end

--- It is the one that backward is at.
function Call:begin()
  self:open()
  local before = self.unit.zero.calls[self.turn - 1]
  if before and not before.done and before.unit ~= self.unit then before:open() end
end

--- Gives back what was gathered again.
function Call:drop()
  for s, flats in ipairs(self.flats) do
    for _, work in pairs(flats) do work:wait():close() end
    self.flats[s] = {}
  end
  self.left, self.streams = self.count, {}
end

--- Whether the tape may lead here still.
function Call:alive()
  for _, leaves in ipairs(self.leaves) do
    for _, leaf in ipairs(leaves) do
      if core.held(leaf) then return true end
    end
  end
  return false
end

--- Forgets the calls of a ZeRO that no tape leads to.
function Call.prune(zero)
  local calls = zero.calls
  zero.calls, zero.leaves = {}, {}
  for _, call in ipairs(calls) do
    if call:alive() then
      call.turn = #zero.calls + 1
      zero.calls[call.turn] = call
      for _, leaves in ipairs(call.leaves) do
        for _, leaf in ipairs(leaves) do zero.leaves[leaf.id] = call end
      end
    else
      call:drop()
    end
  end
end

return Call
