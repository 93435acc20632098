--- Moves of a pipeline's pieces from device to device, with the optimizer's states.
local core = require "flare.core"
local pieces = require "flare.dist.parallel.pieces"
local Wires = require "flare.dist.parallel.wires"

local M = {}

-- Tensors of the pieces that the rank keeps, by the id of their slots.
local function kept(self, before)
  local there = {}
  for k, piece in ipairs(self.pieces) do
    if before[k] == self.device and self.owner[k] == self.device then
      for _, slot in ipairs(piece.slots) do there[slot.id] = pieces.get(slot) end
    end
  end
  return there
end

--- Moves the pieces whose device has changed. @param before the devices until now
function M.run(self, before)
  local _ <close> = core.no_grad()
  local there = kept(self, before)
  self.moved = {} -- parameters that have gone, by the id of their slots, for their states
  for k, piece in ipairs(self.pieces) do
    local from, to = before[k], self.owner[k]
    if from ~= to and to == self.device then
      pieces.make(piece, there)
      for _, slot in ipairs(piece.slots) do
        local p = pieces.get(slot)
        p:copy_(Wires.fetch(self.group, from - 1, p.device))
      end
    elseif from ~= to and from == self.device then
      for _, slot in ipairs(piece.slots) do
        local p = pieces.get(slot)
        self.moved[slot.id] = p
        Wires.give(self.group, p:detach(), to - 1)
      end
      pieces.drop(piece)
    end
  end
end

-- The state of each parameter of an optimizer, by its id.
local function states_of(optimizer)
  local by = {}
  for _, group in ipairs(optimizer.groups) do
    for i, p in ipairs(group.params) do by[p.id] = {group = group, at = i} end
  end
  return by
end

local function give(group, state, peer)
  local moments = state.moments or {}
  Wires.give(group, core.tensor({state.step, #moments, state.master and 1 or 0}, {dtype = "i64"}),
    peer)
  for _, moment in ipairs(moments) do Wires.give(group, moment, peer) end
  if state.master then Wires.give(group, state.master, peer) end
end

local function fetch(group, peer, p)
  local head = Wires.fetch(group, peer, "cpu"):tolist()
  local state = {step = head[1]}
  if head[2] > 0 then state.moments = {} end
  for k = 1, head[2] do state.moments[k] = Wires.fetch(group, peer, p.device) end
  if head[3] == 1 then
    state.master, state.version = Wires.fetch(group, peer, p.device), p.version
  end
  return state
end

--- Gives the new optimizer of each rank the states that the old ones had.
-- @param before the devices until now @param old this rank's optimizer until now
function M.states(self, before, old)
  local was, now = states_of(old), states_of(self.optimizer)
  for id, entry in pairs(was) do
    local new = now[id]
    if new then new.group.state[new.at] = entry.group.state[entry.at] end
  end
  for g, group in ipairs(self.optimizer.groups) do -- options such as the rate, which schedules set
    for key, value in pairs(old.groups[g] or {}) do
      if key ~= "params" and key ~= "state" then group[key] = value end
    end
  end
  for k, piece in ipairs(self.pieces) do
    local from, to = before[k], self.owner[k]
    for _, slot in ipairs(from ~= to and piece.slots or {}) do
      if slot.kind == "parameter" and from == self.device then
        local entry = was[self.moved[slot.id].id]
        give(self.group, entry.group.state[entry.at], to - 1)
      elseif slot.kind == "parameter" and to == self.device then
        local p = pieces.get(slot)
        local entry = now[p.id]
        entry.group.state[entry.at] = fetch(self.group, from - 1, p)
      end
    end
  end
  self.moved = nil
end

return M
