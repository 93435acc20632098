--- The optimizer of a plan: it updates the parameters of one block at a time, whose states may come
-- from the host and go back.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"
local Blocks = require "flare.plan.blocks"
local Optimizer = require "flare.optim.optimizer"
local Traffic = require "flare.plan.traffic"

local Update = class "plan.Update"
Update.__keeps = true

local function make(step, params)
  local how = step.optimizer
  if type(how) == "string" then return require("flare.optim")[how](params, {lr = 1e-3}) end
  local optimizer = how(params)
  if not class.is(optimizer, Optimizer) then
    fail("plan: optimizer must return an optimizer of flare.optim, got %s",
      options.kind(optimizer))
  end
  return optimizer
end

function Update:init(executor, found)
  self.executor, self.traffic = executor, executor.traffic
  local params = {}
  for _, entry in ipairs(found.all) do
    if entry.here.requires_grad then params[#params + 1] = entry.here end
  end
  self.optimizer = make(executor.step, params)
  self.at = {} -- group and position of each parameter
  for _, group in ipairs(self.optimizer.groups) do
    for i, p in ipairs(group.params) do self.at[p.id] = {group, i} end
  end
  self.others = found.rest
end

--- The states of parameters as memory that can be swapped; made in the first step.
function Update:swaps(entries)
  local list = {}
  for _, entry in ipairs(entries) do
    if not entry.states then
      local at = self.at[entry.here.id]
      local state = at and at[1].state[at[2]]
      if state and state.moments then
        entry.states = {}
        local all = table.move(state.moments, 1, #state.moments, 1, {})
        all[#all + 1] = state.master
        for _, t in ipairs(all) do
          if t:nbytes() >= Blocks.LEAST then table.insert(entry.states, Traffic.Swap(t)) end
        end
      end
    end
    for _, swap in ipairs(entry.states or {}) do list[#list + 1] = swap end
  end
  return list
end

--- Whether the states of a block, or of what is outside of blocks, lie on the host.
function Update:streams(block)
  local how = block and block.how or self.executor.config.rest
  return how.states == "host"
end

--- Bytes of a parameter's states.
function Update:bytes(entry)
  local at, sum = self.at[entry.here.id], 0
  local state = at and at[1].state[at[2]] or {}
  local all = table.move(state.moments or {}, 1, #(state.moments or {}), 1, {})
  all[#all + 1] = state.master
  for _, t in ipairs(all) do sum = sum + t:nbytes() end
  return sum
end

--- Starts to bring the states of a block that will be updated soon.
function Update:prepare(block)
  if self:streams(block) then self.traffic:fetch(self:swaps(block.params)) end
end

-- Lets the optimizer update some of its parameters.
local function step_some(self, entries)
  local groups, by_group = {}, {}
  for _, entry in ipairs(entries) do
    local at = self.at[entry.here.id]
    if at and entry.here.grad then
      local group = by_group[at[1]]
      if not group then
        group = setmetatable({params = {}, state = {}}, {__index = at[1]})
        by_group[at[1]], groups[#groups + 1] = group, group
      end
      table.insert(group.params, entry.here)
      table.insert(group.state, at[1].state[at[2]])
    end
  end
  if not groups[1] then return end
  local part = setmetatable({groups = groups}, getmetatable(self.optimizer))
  rawset(part, "options", self.optimizer.options)
  part:step()
end

--- Updates parameters that have gradients, which end.
-- @param block theirs, or nil
function Update:run(entries, block)
  local traffic, host = self.traffic, self:streams(block)
  if host then traffic:await(self:swaps(entries)) end
  do
    local _ <close> = self.executor:named(block and "update " .. block.index or "update")
    step_some(self, entries)
  end
  local changed = {}
  for _, entry in ipairs(entries) do
    entry.here.grad = nil
    if entry.swap then changed[#changed + 1] = entry.swap end
  end
  if host then traffic:leave(self:swaps(entries), true) end
  traffic:leave(changed, true)
end

--- Updates the parameters outside of blocks, and blocks that backward has not reached, one by one.
function Update:rest()
  for _, entry in ipairs(self.others) do
    self.traffic:turn()
    self:run({entry})
  end
end

return Update
