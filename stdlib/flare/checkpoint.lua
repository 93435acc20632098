--- Activation checkpointing (arXiv:1604.06174) for functions whose arguments and results are
-- tensors or tables of tensors; the core's checkpoint handles tensors only.
local core = require "flare.core"
local nest = require "flare.nest"

local M = {}

-- Tensors that a function uses without having them as arguments, and whose memory is gone in
-- backward; see M.lend.
local lent

--- Until the returned object is closed, checkpoints treat these tensors as further arguments, and
-- install their replacements when they compute again.
-- @param put a function that installs a list of tensors where functions use them, and returns the
--   list of those that it replaced
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

--- Calls f(...) and keeps only its arguments; backward calls f again, with the same autocast mode
-- and random numbers, to get the intermediate results. Arguments and results may be tensors and
-- plain tables of them.
-- @return the results of f
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
