--- ZeRO's third stage: a unit's parameters are whole only while it computes. Each forward gathers
-- them. Backward gathers again those that it needs (call.lua), or with `recompute`, where the tape
-- keeps only the units' inputs, all of them. While a unit computes, the parameters of the next one
-- are prefetched and, in backward, the gradients of the last one reduced. Inputs and results of
-- units may be tables of tensors.
local checkpoint = require "flare.checkpoint"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Call = require "flare.dist.zero.call"
local modules = require "flare.dist.zero.modules"
local parts = require "flare.dist.zero.parts"
local nest = require "flare.nest"
local walk = require "flare.nn.walk"

local M = {}

-- Wraps the forward of one module, which computes with gathered parameters.
local Unit = class "dist.Unit"
Unit.__keeps = true

function Unit:init(zero, module, shards, places)
  self.zero, self.module, self.shards, self.places = zero, module, shards, places
  self.used = {} -- what backward gathered again, {shard, dtype} each
end

-- Starts the all-gather of the unit's parameters, unless it is pending.
function Unit:ask()
  if self.asked then return end
  local _ <close> = core.no_grad()
  self.asked = {}
  for s, shard in ipairs(self.shards) do
    local part = shard.part:detach()
    self.asked[s] = shard.group:all_gather(part:to(self.zero.gather or part.dtype), {async = true})
  end
end

-- Splits a list with an entry for each parameter of the unit by its shards.
local function cut(unit, list)
  local of, n = {}, 0
  for s, shard in ipairs(unit.shards) do
    of[s] = table.move(list, n + 1, n + #shard.shapes, 1, {})
    n = n + #shard.shapes
  end
  return of
end

-- Reduces gradients of a unit's parameters to the parts of all ranks; M.finish adds them.
local function reduce(unit, grads)
  local late, has, came = unit.zero.late, unit.zero.has, unit.zero.came
  for s, shard in ipairs(unit.shards) do
    late[#late + 1], has[#has + 1] = {shard.part, shard:reduce(grads[s])}, 0
    for k, name in ipairs(shard.names) do
      if grads[s][k] then has[#has] = 1 end
      came[name] = came[name] or grads[s][k] ~= nil or shard.part.grad ~= nil -- of an earlier pass
    end
  end
end

-- Waits for gathered flat tensors; returns the parameters in them, one list.
local function whole(unit, asked)
  local all = {}
  for s, shard in ipairs(unit.shards) do
    local flat <close> = asked[s]:wait()
    for k in ipairs(shard.shapes) do all[#all + 1] = shard:view(flat, k) end
  end
  return all
end

-- The same as leaves, whose gradients backward writes into the shards' buckets.
local function leaves(unit, asked)
  local all = {}
  for s, shard in ipairs(unit.shards) do
    local flat <close>, list = asked[s]:wait(), {}
    for k in ipairs(shard.shapes) do
      list[k] = shard:view(flat, k):requires_grad_(true)
      unit.zero.leaves[list[k].id] = true
    end
    table.move(list, 1, #list, #all + 1, all)
    shard.params = list
    shard:open()
  end
  return all
end

-- The unit after this one, in forward or backward, by the order of the first forward.
local function after(unit, back)
  local order = unit.zero.order
  if not unit.turn then
    order[#order + 1] = unit
    unit.turn = #order
  end
  return order[unit.turn + (back and -1 or 1)]
end

-- Puts tensors in the places of the parameters, or empty ones for nil. @return the previous ones
local function put(self, all)
  local was, list = self.whole, all and cut(self, all)
  self.whole = all
  for s, places in ipairs(self.places) do
    for k, slots in ipairs(places) do
      for _, slot in ipairs(slots) do slot.holder[slot.key] = list and list[s][k] or slot.empty end
    end
  end
  return was
end

-- Computes with whole parameters; in backward they remain for checkpoints inside.
function Unit:compute(back, original, ...)
  local zero = self.zero
  if not back then self:drop()
  elseif zero.busy then zero.busy:release() end -- this one, or one that backward did not reach
  if back then zero.busy = self end
  self:ask()
  local asked, ahead = self.asked, after(self, back)
  self.asked, self.last = nil, not ahead
  if ahead then ahead:ask() end
  local all
  if back then all = leaves(self, asked)
  elseif core.grad_enabled() and not zero.recompute then
    -- backward begins with the last unit, so its parameters are kept
    all = Call(self):lay(asked, zero.regather and (ahead or zero.steps == 0))
  else all = whole(self, asked) end
  local lent <close> = core.grad_enabled() and not zero.recompute
    and checkpoint.lend(all, function(list) return put(self, list) end)
  if not lent then put(self, all) end
  self.back = back
  local r = table.pack(pcall(original, self.module, ...))
  if not back then put(self, nil) end
  if not r[1] then
    self:drop()
    error(r[2], 0)
  end
  return table.unpack(r, 2, r.n)
end

-- Sends the gradients of the unit.
local function send(self)
  local _ <close> = core.no_grad()
  local grads = {}
  for s, shard in ipairs(self.shards) do
    grads[s] = {}
    for k, p in ipairs(shard.params) do
      grads[s][k] = p.grad
      p.grad = nil -- p, which Lua collects later, must not hold it
    end
  end
  reduce(self, grads)
  for _, list in ipairs(grads) do
    for _, grad in pairs(list) do grad:close() end
  end
end

local function close(self)
  for _, shard in ipairs(self.shards) do
    shard:close()
    shard.params = nil
  end
end

-- Called when backward has passed the unit: sends gradients and frees parameters.
function Unit:release()
  if not self.back then return end
  send(self)
  self:drop()
end

function Unit:drop()
  if not self.back then return end
  close(self)
  put(self, nil)
  self.back = false
end

-- Passes inputs through a node of the tape that backward reaches after the unit.
local function watched(self, list)
  local which = {self.shards[1].part}
  for _, x in ipairs(list) do
    if x.requires_grad then which[#which + 1] = x end
  end
  local results = {core.func{
    name = "unit",
    forward = function(_, ...) return ... end,
    backward = function(_, _, ...)
      self:release()
      return nil, ...
    end,
  }(table.unpack(which))}
  local n = 1
  for k, x in ipairs(list) do
    if x.requires_grad then
      n = n + 1
      list[k] = results[n]
    end
  end
  return results[1], list
end

function Unit:run(original, ...)
  if not core.grad_enabled() or not self.zero.recompute then
    return self:compute(false, original, ...)
  end
  local list = {}
  local inputs = nest.take(table.pack(...), list)
  local part, tensors = watched(self, list)
  inputs = nest.give(inputs, tensors)
  return checkpoint.checkpoint(function(_, ...)
    local back = core.grad_enabled()
    local results = table.pack(self:compute(back, original, ...))
    if not back and self.last then self:ask() end -- backward begins with this unit
    return table.unpack(results, 1, results.n)
  end, part, table.unpack(inputs, 1, inputs.n))
end

-- The units. A parameter that two of the default ones have, such as a tied embedding, is in none,
-- and so stays whole.
local function units_of(zero, named, units)
  local list, count = modules.units(zero, named, units), {}
  if units then return list end
  for _, one in ipairs(list) do
    for _, pair in ipairs(one.named) do count[pair[2].id] = (count[pair[2].id] or 0) + 1 end
  end
  for _, one in ipairs(list) do
    local own = {}
    for _, pair in ipairs(one.named) do
      if count[pair[2].id] == 1 then own[#own + 1] = pair end
    end
    one.named = own
  end
  return list
end

--- Moves the parameters of units from the model into shards. @return the other parameters
function M.divide(zero, named, units)
  local taken, rest = {}, {}
  zero.units, zero.order, zero.late, zero.has, zero.came = {}, {}, {}, {}, {}
  zero.calls, zero.leaves, zero.steps = {}, {}, 0
  for _, one in ipairs(units_of(zero, named, units)) do
    local module, list = one.module, one.named
    for _, pair in ipairs(list) do
      if taken[pair[2].id] then
        fail("ZeRO: '%s' is in two units, which stage 3 cannot share: give units without both, so "
          .. "that it stays whole", pair[1])
      end
      taken[pair[2].id] = true
    end
    if #list > 0 then
      local slots = modules.slots(module)
      local shards, places = parts.divide(zero, list, zero.find_unused and 0 or math.maxinteger), {}
      for s, shard in ipairs(shards) do
        places[s] = {}
        for k, p in ipairs(shard.params) do
          places[s][k] = slots[p.id]
          for _, slot in ipairs(slots[p.id]) do
            slot.empty = core.zeros({0}, {dtype = p.dtype, device = p.device})
            walk.mark(slot.owner, slot.empty, "parameter")
          end
        end
        shard.params = nil
        zero.shards[#zero.shards + 1] = shard
      end
      local unit = Unit(zero, module, shards, places)
      put(unit, nil)
      local original = module.forward
      rawset(module, "forward", function(_, ...) return unit:run(original, ...) end)
      zero.units[#zero.units + 1] = unit
    end
  end
  for _, pair in ipairs(named) do
    if not taken[pair[2].id] then rest[#rest + 1] = pair end
  end
  return rest
end

function M.enter(zero) Call.prune(zero) end

-- Called when backward has passed a call.
local function leave(zero)
  local call = zero.current
  if not call then return end
  zero.current = nil
  send(call.unit)
  close(call.unit)
  call:drop()
  call.done = true
end

--- Called when a leaf has a gradient. @return whether the leaf represents a unit's parameter
function M.ready(zero, leaf)
  local call = zero.leaves[leaf.id]
  if not call or call == true then return call or false end -- true: with `recompute`
  if zero.current ~= call then
    leave(zero)
    zero.current = call
    call:begin()
  end
  if call:ready() then leave(zero) end
  return true
end

--- Called at the end of backward: adds the reduced gradients to those of the parts.
-- @return whether any came; names of parameters without one, if there are and that is an error
function M.finish(zero)
  for _, unit in ipairs(zero.units) do unit:release() end
  leave(zero)
  local missing = {}
  for name, came in pairs(zero.came) do
    if not came then missing[#missing + 1] = name end
  end
  if #missing > 0 and not zero.find_unused then return true, missing end
  local any = #zero.late > 0
  parts.add(zero, zero.late, zero.has)
  zero.late, zero.has, zero.came = {}, {}, {}
  return any
end

--- Discards the gradients and parameters of a backward that failed.
function M.drop(zero)
  for _, unit in ipairs(zero.units) do unit:drop() end
  if zero.current then close(zero.current.unit) end
  for _, call in ipairs(zero.calls) do call:drop() end
  zero.current = nil
  for _, pair in ipairs(zero.late) do pair[2]:wait() end
  zero.late, zero.has, zero.came = {}, {}, {}
end

--- Called before the parts change: waits for prefetched parameters and discards them.
function M.forget(zero)
  for _, unit in ipairs(zero.units) do
    for _, work in ipairs(unit.asked or {}) do work:wait() end
    unit.asked = nil
  end
  for _, call in ipairs(zero.calls) do call:drop() end
  zero.steps = zero.steps + 1
end

--- Called after the parts have changed: prefetches the first unit.
function M.restart(zero)
  if zero.order[1] then zero.order[1]:ask() end
end

return M
