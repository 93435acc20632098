--- What schemes share: their options, and the end of a step, when gradients are added up over
-- replicas and parameters are updated.
local fail = require "flare.fail"
local Schedule = require "flare.dataflow.schedule"
local options = require "flare.options"
local stages = require "flare.dataflow.stages"

local M = {}

--- Options of a scheme: `extra` and those that all have.
function M.options(where, given, extra)
  local defaults = {micro_batches = 1}
  for key, value in pairs(extra) do defaults[key] = value end
  local o = options.check("dataflow.schemes." .. where, given, defaults)
  for key in pairs(defaults) do
    if type(o[key]) == "number" then
      options.count("dataflow.schemes." .. where, key, o[key], key == "keep" and 0 or 1)
    end
  end
  return o
end

--- An empty schedule for layers; tokens of a step from the layers' micro-batch.
function M.schedule(name, layers, devices, micro_batches)
  stages.check(layers)
  return Schedule(name, {devices = devices,
    info = {tokens = layers.tokens and layers.tokens * micro_batches}})
end

--- The cost of an update by AdamW: it reads and writes states and parameters and reads gradients.
function M.update_cost(part)
  return {bytes = 2 * (part.states + part.parameters) + part.gradients, kind = "elementwise"}
end

--- Parameters, gradients and states of a part of the model that stay on a device.
function M.resident(s, part, name, device)
  for _, kind in ipairs {"parameters", "gradients", "states"} do
    if part[kind] > 0 then
      s:resident {("%s %s"):format(kind, name), bytes = part[kind], device = device}
    end
  end
end

--- Adds the gradients of a part over replicas by a ring all-reduce, and updates the parameters.
-- @param devices those of the replicas @param ready for each device the task after which its
--   gradients are complete
function M.finish(s, part, name, devices, ready)
  if part.parameters == 0 then return end
  local n, reduced = #devices, nil
  if n > 1 and part.gradients > 0 then
    reduced = {}
    for k, device in ipairs(devices) do
      reduced[k] = s:add {name = ("all-reduce %s on %d"):format(name, device), device = device,
        stream = "peer", transfer = 2 * (n - 1) / n * part.gradients, needs = ready,
        to = devices[k % n + 1]}
    end
  end
  for k, device in ipairs(devices) do
    s:add {name = ("update %s on %d"):format(name, device), device = device,
           cost = M.update_cost(part), needs = reduced or ready[k]}
  end
end

--- The home of layer k in a ring of n devices.
function M.home(k, n) return (k - 1) % n + 1 end

--- The devices in the order in which layer k visits them, home first.
function M.round(k, n)
  local list = {}
  for i = 1, n do list[i] = (k - 1 + i - 1) % n + 1 end
  return list
end

--- A list of costs that is not empty, since a task has at least one.
function M.costs(list) return #list > 0 and list or {{seconds = 0}} end

--- Fails unless n is a multiple of `of`.
function M.multiple(where, name, n, of, why)
  if n % of ~= 0 then
    fail("dataflow.schemes.%s: %s must be a multiple of %d, %s, got %d", where, name, of, why, n)
  end
end

return M
