--- Master weights: an optimizer updates f32 copies of 16-bit parameters and rounds them to the
-- parameters after each step.
--
-- bf16 has 8 significant bits: an update below 1/256 of a weight is lost when it is added to the
-- weight itself; in the f32 copy small updates add up.
local core = require "flare.core"

local M = {}

local low = {f16 = true, bf16 = true}

--- Whether the group keeps a master copy of parameter p.
function M.wanted(group, p)
  return group.master and low[p.dtype] or false
end

--- The tensor that a step updates for p: its master copy, made at the first call, or p itself.
-- @param state of p; `master` is the copy, `version` the version of p when the copy was rounded to
--   it
function M.of(group, p, state)
  if not M.wanted(group, p) then return p end
  local copy = state.master
  if not copy then
    copy = p:detach():to("f32")
    state.master = copy
  elseif state.version ~= p.version then
    -- other code has written to p: where p is not the rounded copy, the copy takes p's value
    copy:copy_(core.where(copy:to(p.dtype):eq(p), copy, p:detach():to("f32")))
  end
  return copy
end

--- Rounds the copies to their parameters after a step, by one call for all.
-- @param params a list of parameters
-- @param copies the results of M.of for them, a list
-- @param states a list of their states
function M.write(params, copies, states)
  local xs, list = {}, {}
  for i, p in ipairs(params) do
    if copies[i] ~= p then
      list[#list + 1] = i
      xs[#xs + 1] = p
    end
  end
  if #list == 0 then return end
  for _, i in ipairs(list) do xs[#xs + 1] = copies[i] end
  core.lerp_step(1, xs)
  for _, i in ipairs(list) do states[i].version = params[i].version end
end

return M
