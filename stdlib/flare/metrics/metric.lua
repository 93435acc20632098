--- The base class of metrics.
--
-- A subclass has `defaults` (its options), `update(...)`, which adds a batch to its states, and
-- `value(states)`, the figure. A state is a sum, to which `add` adds a tensor, or rows, to which
-- `keep` appends and which `replace` replaces. `value` gets the states of all ranks together: sums
-- are added up, rows are joined in the order of the ranks, all as f64 on the CPU; a state that no
-- rank has is nil.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"

--- metrics.Metric{group = dist.world}
-- A metric of your own is a class derived from this one, with `update` and `value`.
local Metric = class("Metric")
Metric.__keeps = true
Metric.defaults = {}
Metric.sums, Metric.rows = {}, {} -- names of the states

function Metric:init(opts)
  local defaults = {group = options.none}
  for key, value in pairs(self.defaults) do defaults[key] = value end
  self.where = "metrics." .. getmetatable(self).__name
  self.options = options.check(self.where, opts, defaults)
  if self.prepare then self:prepare(self.options) end
  self:reset()
end

--- Forgets all batches.
-- @return the metric
function Metric:reset()
  self.states = {}
  return self
end

--- Adds a tensor to a sum, which moves to the device of the last batch.
function Metric:add(name, x)
  local _ <close> = core.no_grad()
  local before = self.states[name]
  x = x:detach():to "f64"
  self.states[name] = before and before:to(x.device):add(x) or x:clone()
end

--- Appends the rows of a tensor.
function Metric:keep(name, x)
  local list = self.states[name] or {}
  list[#list + 1] = x:detach():clone()
  self.states[name] = list
end

--- Replaces all rows of a state by those of the tensor x.
function Metric:replace(name, x) self.states[name] = {x} end

local function joined(list)
  for i, x in ipairs(list) do list[i] = x:to "f64":cpu() end
  return #list > 1 and core.cat(list, 1) or list[1]
end

-- The group whose ranks add to the metric; nil if this process works alone.
local function group_of(self)
  local group = self.options.group
  if group == nil then
    local dist = require "flare.dist"
    group = dist.size() > 1 and dist.world
  end
  return group and group.size > 1 and group or nil
end

local MOST = 8 -- dims of a state

-- Shapes of a state on all ranks, a list; a rank without the state has nil there.
local function shapes(group, x)
  local mine = {x and x:dim() or -1}
  for k = 1, MOST do mine[k + 1] = x and x.shape[k] or 0 end
  local all, list = group:all_gather(core.tensor({mine}, {dtype = "i64"})):totable(), {}
  for rank, row in ipairs(all) do
    list[rank] = row[1] >= 0 and table.move(row, 2, row[1] + 1, 1, {}) or nil
  end
  return list
end

local function sum_of(group, x)
  local list = shapes(group, x)
  local _, shape = next(list)
  return shape and group:all_reduce(x or core.zeros(shape, {dtype = "f64"}))
end

-- Ranks have different numbers of rows: all send as many as the longest.
local function rows_of(group, x)
  local list, most, shape = shapes(group, x), 0, nil
  for _, other in pairs(list) do
    most, shape = math.max(most, other[1]), {table.unpack(other)}
  end
  if not shape then return nil end
  shape[1] = most - (x and #x or 0)
  local filler = core.zeros(shape, {dtype = "f64"})
  local all = group:all_gather((x and core.cat({x, filler}, 1) or filler):unsqueeze(1))
  local parts = {}
  for rank = 1, group.size do
    if list[rank] then parts[#parts + 1] = all:select(1, rank):narrow(1, 1, list[rank][1]) end
  end
  return core.cat(parts, 1)
end

--- The figure over all batches since the last reset and over all ranks, which call it together.
-- With the option `group = false` each rank has its own.
-- @return a number, or what the class says
function Metric:compute()
  local _ <close> = core.no_grad()
  local group, states = group_of(self), {}
  for _, name in ipairs(self.sums) do
    local x = self.states[name]
    x = x and x:cpu()
    if group then x = sum_of(group, x) end
    states[name] = x
  end
  for _, name in ipairs(self.rows) do
    local x = self.states[name]
    x = x and joined(x)
    if group then x = rows_of(group, x) end
    states[name] = x
  end
  if next(states) == nil then return 0 / 0 end -- there was no batch
  return self:value(states)
end

--- The batches so far.
-- @return a table of tensors
function Metric:state_dict()
  local out = {}
  for _, name in ipairs(self.sums) do out[name] = self.states[name] end
  for _, name in ipairs(self.rows) do
    local list = self.states[name]
    out[name] = list and joined(table.move(list, 1, #list, 1, {}))
  end
  return out
end

--- Puts the metric back to a state.
-- @return the metric
function Metric:load_state_dict(saved, message)
  options.state(self.where, saved, message)
  self.states = {}
  for _, name in ipairs(self.sums) do self.states[name] = saved[name] end
  for _, name in ipairs(self.rows) do self.states[name] = saved[name] and {saved[name]} end
  return self
end

function Metric:__tostring()
  return options.describe(getmetatable(self).__name, self.options)
end

return Metric
