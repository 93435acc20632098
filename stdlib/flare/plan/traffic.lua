--- Memory that is swapped between a device and pinned memory of the host, by a stream for each
-- direction. Memory is taken from, and given back to, the stream that computes, so that it is used
-- again in the order of that stream, whatever the transfers' timing is.
local class = require "flare.class"
local core = require "flare.core"

--- The memory of one tensor.
local Swap = class "plan.Swap"

--- @param host pinned memory of as many bytes, made at the first store if left out
function Swap:init(tensor, host)
  self.memory = core.memory_of(tensor)
  self.bytes = self.memory:numel()
  self.host, self.there = host, true
end

local Traffic = class "plan.Traffic"
Traffic.Swap = Swap

--- @param device where programs compute
-- @param dry whether nothing is copied, as on the device "dry", so that the host needs no memory
function Traffic:init(device, dry)
  self.device, self.dry = device, dry
  self.ins, self.outs = core.stream(device), core.stream(device)
  self.leaving, self.host, self.moved = {}, 0, {["in"] = 0, out = 0}
end

--- Pinned memory of the host like a tensor, or nothing in a dry run; counted.
function Traffic:place(like, dtype)
  local bytes = like:nbytes()
  self.host = self.host + (bytes + 4095) // 4096 * 4096
  if not self.dry then
    return core.empty(dtype and like.shape or {bytes}, {dtype = dtype or "u8", pinned = true})
  end
end

--- Starts to bring memory that is not there.
function Traffic:fetch(swaps)
  local list = {}
  for _, swap in ipairs(swaps) do
    if swap.there then swap.leaves = false
    else
      core.refill(swap.memory)
      swap.there, list[#list + 1] = true, swap
      self.moved["in"] = self.moved["in"] + swap.bytes
    end
  end
  if not list[1] then return end
  self.ins:wait(core.current_stream(self.device)) -- whose memory it was
  self.ins:run(function()
    for _, swap in ipairs(list) do core.fetch(swap.memory, swap.host) end
  end)
  local event = self.ins:record()
  for _, swap in ipairs(list) do swap.event = event end
end

--- The stream that computes waits until they are there.
function Traffic:await(swaps)
  self:fetch(swaps)
  local now, seen = core.current_stream(self.device), {}
  for _, swap in ipairs(swaps) do
    local event = swap.event
    if event and not seen[event] then
      event:wait(now)
      seen[event] = true
    end
    if event then core.passed(swap.memory) end
    swap.event = nil
  end
end

--- Memory is not needed for a while: it is evicted two turns from now.
-- @param store whether its values have changed since they came
function Traffic:leave(swaps, store)
  local list, event = {}, nil
  for _, swap in ipairs(swaps) do
    if swap.there then
      list[#list + 1], swap.leaves = swap, true
    end
  end
  if not list[1] then return end
  if store then
    for _, swap in ipairs(list) do
      if not swap.placed then
        swap.placed = true
        swap.host = swap.host or self:place(swap.memory)
      end
      self.moved.out = self.moved.out + swap.bytes
    end
    self.outs:wait(core.current_stream(self.device))
    self.outs:run(function()
      for _, swap in ipairs(list) do core.store(swap.memory, swap.host) end
    end)
    event = self.outs:record()
  end
  self.leaving[#self.leaving + 1] = {list = list, event = event}
end

--- Evicts what left before; called once a block, before its own memory leaves.
function Traffic:turn()
  local now, old = core.current_stream(self.device), self.leaving
  self.leaving = {}
  for _, group in ipairs(old) do
    if group.event then group.event:wait(now) end
    for _, swap in ipairs(group.list) do
      if swap.leaves and swap.there then
        self:settle(swap, now)
        core.evict(swap.memory)
        swap.there = false
      end
      swap.leaves = false
    end
  end
end

--- Memory goes after the transfer to it has ended, also if no block has waited for it.
function Traffic:settle(swap, now) -- luacheck: ignore self
  if swap.event then swap.event:wait(now) end
  swap.event = nil
end

--- Evicts at once.
function Traffic:drop(swaps)
  for _, swap in ipairs(swaps) do
    if swap.there then
      self:settle(swap, core.current_stream(self.device))
      core.evict(swap.memory)
      swap.there = false
    end
  end
end

return Traffic
