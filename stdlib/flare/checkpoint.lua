--- Checkpoints of functions that take and give tensors in tables as well: the core's sees tensors.
local core = require "flare.core"
local nest = require "flare.nest"

local M = {}

-- Tensors that a function finds without being given them, which are gone in backward; see M.lend.
local lent

--- Until what it returns is closed, checkpoints take these tensors as arguments, too, and lay out
-- what stands for them when they compute again.
-- @param put puts a list of tensors where functions find them. @return what was there before
function M.lend(tensors, put)
  local before, was = lent, put(tensors)
  lent = {tensors = tensors, put = put}
  return setmetatable({}, {__close = function()
    lent = before
    put(was)
  end})
end

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
  local n, around = #list, lent
  if around then table.move(around.tensors, 1, #around.tensors, n + 1, list) end
  local function run(...)
    local given = {...}
    local _ <close> = around and M.lend({table.unpack(given, n + 1)}, around.put)
    local args, found = nest.give(inputs, given), {}
    results = nest.take(table.pack(f(table.unpack(args, 1, args.n))), found)
    return table.unpack(found)
  end
  local found = {core.checkpoint(run, table.unpack(list))}
  local all = nest.give(results, found)
  return table.unpack(all, 1, all.n)
end

return M
