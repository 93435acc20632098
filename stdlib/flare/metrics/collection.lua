--- Several metrics that get the same batches.
local class = require "flare.class"
local fail = require "flare.fail"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

--- metrics.Collection{name = metric, ...}
-- `update` adds a batch to all of them, `compute` returns a table with their figures.
local Collection = class("Collection")
Collection.__keeps = true

function Collection:init(list)
  if type(list) ~= "table" or class.is(list, Metric) then
    fail("metrics.Collection: a table {name = metric} is expected, got %s",
         type(list) == "table" and "a metric" or options.kind(list))
  end
  self.list, self.names = list, {}
  for name, metric in pairs(list) do
    if type(name) ~= "string" or not class.is(metric, Metric) then
      fail("metrics.Collection: '%s' is no metric with a name", tostring(name))
    end
    table.insert(self.names, name)
  end
  table.sort(self.names) -- ranks compute in the same order
end

--- Adds a batch to each metric.
function Collection:update(...)
  for _, name in ipairs(self.names) do self.list[name]:update(...) end
end

--- The figure of each metric, by name.
-- @return a table
function Collection:compute()
  local out = {}
  for _, name in ipairs(self.names) do out[name] = self.list[name]:compute() end
  return out
end

--- Forgets all batches.
-- @return the collection
function Collection:reset()
  for _, name in ipairs(self.names) do self.list[name]:reset() end
  return self
end

--- The states of all metrics.
-- @return a table
function Collection:state_dict()
  local out = {}
  for _, name in ipairs(self.names) do out[name] = self.list[name]:state_dict() end
  return out
end

--- Puts all metrics back to a state.
-- @return the collection
function Collection:load_state_dict(saved, message)
  options.state("metrics.Collection", saved, message)
  for _, name in ipairs(self.names) do self.list[name]:load_state_dict(saved[name]) end
  return self
end

function Collection:__tostring() return "Collection(" .. table.concat(self.names, ", ") .. ")" end

return Collection
