--- Checkpoints of functions that take and give tensors in tables as well: the core's sees tensors.
local core = require "flare.core"
local nest = require "flare.nest"

local M = {}

local function callable(f)
  local meta = getmetatable(f)
  return type(f) == "function" or type(meta) == "table" and meta.__call
end

--- f(...), of which nothing is kept but the arguments: backward computes it again, in the autocast
-- and from the random numbers that it had. Tensors may come and go in plain tables.
function M.checkpoint(f, ...)
  if not callable(f) then return core.checkpoint(f, ...) end -- which says so
  local list, results = {}, nil
  local inputs = nest.take(table.pack(...), list)
  local function run(...)
    local args, found = nest.give(inputs, {...}), {}
    results = nest.take(table.pack(f(table.unpack(args, 1, args.n))), found)
    return table.unpack(found)
  end
  local found = {core.checkpoint(run, table.unpack(list))}
  local all = nest.give(results, found)
  return table.unpack(all, 1, all.n)
end

return M
