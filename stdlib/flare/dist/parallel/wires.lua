--- Messages between the stages of a pipeline. Each direction between two neighbours has a group,
-- and so an order, of its own: what waits in one never blocks another. In front of each tensor a
-- header tells its shape, dtype and the sender's clock.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Group = require "flare.dist.group"

local Wires = class "dist.Wires"
Wires.__keeps = true

local dtypes = {"f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool"}
local DIMS = 8
local code = {}
for k, name in ipairs(dtypes) do code[name] = k end

--- Makes the groups of all pipelines of a mesh's lines; every rank of the job calls it.
-- @param lines lists of ranks, one for each pipeline @param rank of this process
-- @param around whether the last device sends to the first, too
function Wires:init(lines, rank, around)
  self.pending, self.groups = {}, {forward = {}, backward = {}}
  for _, line in ipairs(lines) do
    local n = #line
    for k = 1, n > 1 and (around and n or n - 1) or 0 do -- from device k to the one behind it
      local pair = {line[k], line[k % n + 1]}
      for _, way in ipairs {"forward", "backward"} do
        local group = Group(pair)
        local at = (pair[1] == rank or pair[2] == rank) and group or nil
        self.groups[way][k] = at or self.groups[way][k]
      end
    end
  end
end

-- Sends a number along a direction. NCCL connects two ranks when they first send and receive, and
-- both calls wait for each other: ranks that all sent first would wait for ever.
local function connect(group, sends, device)
  if sends then group:send(core.zeros({1}, {device = device}), 1 - group.rank)
  else local _ = group:recv({1}, 1 - group.rank, {device = device}) end
end

--- Connects all neighbours in one order: the first call of a group waits for its peer.
-- @param device of the tensors that will be sent
function Wires:attach(device)
  for _, way in ipairs {"forward", "backward"} do
    local numbers = {}
    for k in pairs(self.groups[way]) do numbers[#numbers + 1] = k end
    table.sort(numbers)
    for _, k in ipairs(numbers) do
      local group = self.groups[way][k]
      local fresh = not group.attached[device]
      group:attach "cpu"
      group:attach(device)
      -- group k is {device k, the one behind it}
      if fresh then connect(group, (group.rank == 0) == (way == "forward"), device) end
    end
  end
end

-- The group of a direction, and this rank's peer in it. Forward messages go from device k to the
-- next, backward ones to the one before.
local function wire(self, way, from, to)
  local group = self.groups[way][way == "forward" and from or to]
  return group, 1 - group.rank
end

-- A header and the tensor, as asynchronous calls.
local function put(group, x, peer, clock)
  if x:dim() > DIMS or not code[x.dtype] then
    fail("pipeline: %s of %d dims cannot be sent to another stage", x.dtype, x:dim())
  end
  local header = {clock, code[x.dtype], x:dim()}
  for k = 1, DIMS do header[3 + k] = k <= x:dim() and x:size(k) or 0 end
  header = core.tensor(header, {dtype = "f64"})
  x = x:contiguous()
  return {header, group:send(header, peer, {async = true})},
    {x, group:send(x, peer, {async = true})}
end

local function get(group, peer, device)
  local header = group:recv({3 + DIMS}, peer, {dtype = "f64"}):tolist()
  local shape = {}
  for k = 1, header[3] // 1 | 0 do shape[k] = header[3 + k] // 1 | 0 end
  return group:recv(shape, peer, {dtype = dtypes[header[2] // 1 | 0], device = device}), header[1]
end

--- Sends a tensor of any shape and dtype to rank `peer` of a group, which calls fetch.
function Wires.give(group, x, peer)
  for _, message in ipairs {put(group, x, peer, 0)} do message[2]:wait() end
end

--- Receives what give sends.
function Wires.fetch(group, peer, device) return (get(group, peer, device)) end

--- Sends a tensor from device `from`, this one, to device `to`.
function Wires:send(way, x, from, to, clock)
  local group, peer = wire(self, way, from, to)
  local n = #self.pending
  self.pending[n + 1], self.pending[n + 2] = put(group, x, peer, clock)
end

--- Receives what device `from` has sent to this one, `to`.
-- @return the tensor, the sender's clock
function Wires:recv(way, from, to, device)
  local group, peer = wire(self, way, from, to)
  return get(group, peer, device)
end

--- Waits for all messages that were sent.
function Wires:finish()
  for _, message in ipairs(self.pending) do message[2]:wait() end
  self.pending = {}
end

return Wires
