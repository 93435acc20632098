--- flare.dataflow.schedule: a schedule out of one table.
local Schedule = require "flare.dataflow.schedule"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

--- Makes a schedule out of a table and checks it.
--
--     local schedule = flare.dataflow.schedule {
--       tasks = {
--         {name = "load", stream = "in", transfer = 1e9, holds = {{"weights", bytes = 1e9}}},
--         {name = "run", cost = {flops = 4e12, bytes = 2e9, dtype = "bf16", kind = "product"},
--          needs = "load", uses = "weights", frees = "weights"},
--       },
--     }
--
-- @param o {name, devices = their number, info = facts, tasks = a list of what Schedule:add
--   takes, resident = {{name, bytes =, device = 1, place = "device"}, ...}: buffers that are held
--   from the start}
-- @return a Schedule
function M.schedule(o)
  if getmetatable(o) == Schedule then return o:check() end
  if type(o) ~= "table" or type(o.tasks) ~= "table" then
    fail("dataflow.schedule: a table {tasks = {...}} is expected, got %s", options.kind(o))
  end
  local rest = {}
  for key, value in pairs(o) do
    if key ~= "tasks" and key ~= "resident" then rest[key] = value end
  end
  rest.name = nil
  local s = Schedule(o.name or "schedule", rest)
  if o.resident ~= nil and type(o.resident) ~= "table" then
    fail("dataflow.schedule: resident must be a list of {name, bytes = number}, got %s",
      options.kind(o.resident))
  end
  for _, buffer in ipairs(o.resident or {}) do s:resident(buffer) end
  for _, task in ipairs(o.tasks) do s:add(task) end
  return s:check()
end

return M
