--- What a plan saves and loads: parameters and states of the optimizer, wherever they are. They
-- come to the device one by one.
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

-- Calls f while memory is on the device; what was away goes again.
local function during(traffic, swaps, f)
  local away = {}
  for _, swap in ipairs(swaps) do
    if not swap.there then away[#away + 1] = swap end
  end
  traffic:await(away)
  f()
  traffic:drop(away)
end

-- Memory that has changed goes to the host.
local function send(traffic, swaps)
  traffic:leave(swaps, true)
  traffic:turn()
end

--- All parameters and buffers by name, as tensors of the CPU.
function M.parameters(executor)
  local _ <close> = core.no_grad()
  local state = {}
  core.synchronize(executor.device)
  for _, entry in ipairs(executor.all) do
    local swap = entry.swap
    state[entry.name] = swap and not swap.there and swap.host:clone()
      or entry.here:detach():to "cpu"
  end
  for name, t in executor.step.model:named_buffers() do state[name] = t:to "cpu" end
  return state
end

--- Gives parameters and buffers the values of a table that `parameters`, or the model, has
-- returned. All of it is checked before anything changes.
function M.load(executor, state)
  local _ <close> = core.no_grad()
  local traffic, buffers = executor.traffic, {}
  local function check(name, t)
    local value = state[name]
    if not core.is_tensor(value) or tostring(value.shape) ~= tostring(t.shape) then
      fail("plan: the state's '%s' must be a tensor of shape %s, got %s", name, tostring(t.shape),
        core.is_tensor(value) and tostring(value.shape) or type(value))
    end
  end
  for _, entry in ipairs(executor.all) do check(entry.name, entry.here) end
  for name, t in executor.step.model:named_buffers() do
    check(name, t)
    buffers[name] = t
  end
  for _, entry in ipairs(executor.all) do
    local changed = {entry.swap}
    traffic:await(changed)
    entry.here:detach():copy_(state[entry.name])
    send(traffic, changed)
  end
  for name, t in pairs(buffers) do t:copy_(state[name]) end
end

--- Lets the optimizer of a plan save and load states that are not on the device.
-- @param update plan.Update
-- @param entries the parameters
function M.optimizer(update, entries)
  local optimizer, traffic, by_id = update.optimizer, update.traffic, {}
  local base = getmetatable(optimizer)
  for _, entry in ipairs(entries) do by_id[entry.here.id] = entry end
  rawset(optimizer, "state_dict", function(self)
    local saved = base.state_dict(self)
    for g, group in ipairs(self.groups) do
      for i, p in ipairs(group.params) do
        local state = saved.groups[g].state[i]
        local moments, copy = state.moments, state.master
        state.moments = {}
        during(traffic, update:swaps {by_id[p.id]}, function()
          for k, t in ipairs(moments) do state.moments[k] = t:to "cpu" end
          state.master = copy and copy:to "cpu"
        end)
      end
    end
    return saved
  end)
  rawset(optimizer, "_load_state", function(self, group, i, state)
    local entry = by_id[group.params[i].id]
    local before = entry.states or {}
    during(traffic, {entry.swap}, function() base._load_state(self, group, i, state) end)
    entry.states = nil
    local swaps = update:swaps {entry}
    for k, swap in ipairs(swaps) do -- the same pinned memory
      local old = before[k]
      if old and old.bytes == swap.bytes then swap.host, swap.placed = old.host, old.placed end
    end
    if update:streams(entry.block) then send(traffic, swaps) end
  end)
end

return M
