--- A recorded call of a unit of ZeRO's third stage. The tape saves no parameters, but marks in
-- their place; backward gathers the parameters again, in the dtype in which forward used them,
-- while it computes the call after this one. On the tape they are represented by leaves without
-- memory; when the last leaf has its gradient, the gradients of all are sent.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local Call = class "dist.Call"
Call.__keeps = true

function Call:init(unit)
  local zero = unit.zero
  self.unit, self.leaves, self.left = unit, {}, 0
  self.flats, self.streams = {}, {} -- gathered again, by shard and dtype; and their streams
  self.lent = {} -- keeps functions alive that the core calls
  self.steps, self.turn = zero.steps, #zero.calls + 1
  zero.calls[self.turn] = self
end

--- @param asked handles of the unit's flat tensors
-- @param lends whether backward gathers them again; otherwise the tape keeps those that it needs
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
      if p:numel() * 16 < numel then -- a clone does not keep all of them alive
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

-- Starts the all-gather of one of its flat tensors, unless it is pending.
function Call:ask(s, dtype)
  local flats, shard = self.flats[s], self.unit.shards[s]
  if flats[dtype] then return end
  local _ <close> = core.no_grad()
  local part = shard.part:detach()
  flats[dtype] = shard.group:all_gather(part:to(dtype), {async = true})
end

--- Gathers one of its flat tensors again, and prefetches those of the call before.
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
  if shard.device ~= "cpu" then -- a second stream waits for the first one
    local now = core.current_stream(shard.device)
    self.streams[key] = self.streams[key] or now
    now:wait(self.streams[key])
  end
  return flat
end

-- Lets backward write its gradients into the shards' buckets.
function Call:open()
  for s, shard in ipairs(self.unit.shards) do
    if shard.params ~= self.leaves[s] then -- of no call, or of one that backward has not reached
      shard:close()
      shard.params = self.leaves[s]
      shard:open()
    end
  end
end

--- Called when one of its leaves has a gradient. @return whether that was the last one
function Call:ready()
  self.left = self.left - 1
  return self.left == 0
end

--- Called when backward reaches it.
function Call:begin()
  self:open()
  local before = self.unit.zero.calls[self.turn - 1]
  if before and not before.done and before.unit ~= self.unit then before:open() end
end

--- Releases the tensors that were gathered again.
function Call:drop()
  for s, flats in ipairs(self.flats) do
    for _, work in pairs(flats) do work:wait():close() end
    self.flats[s] = {}
  end
  self.left, self.streams = self.count, {}
end

--- Whether a tape still refers to it.
function Call:alive()
  for _, leaves in ipairs(self.leaves) do
    for _, leaf in ipairs(leaves) do
      if core.held(leaf) then return true end
    end
  end
  return false
end

--- Removes the calls of a ZeRO to which no tape refers.
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
