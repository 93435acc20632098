--- Lists of buffers as text.
local units = require "flare.explain.units"

local M = {}

--- Sorts buffers {name, bytes}: the largest first.
function M.sort(list)
  table.sort(list, function(a, b)
    return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name
  end)
  return list
end

--- "states 73 GiB (34), weights 1 GiB": sums of the buffers whose names begin alike, up to what
-- numbers their layer or stage; the largest sums first.
-- @param most sums that are named
function M.text(list, most)
  local sums, order = {}, {}
  for _, buffer in ipairs(list) do
    local kind = buffer.name:match "^(.-) %a%d" or buffer.name
    local sum = sums[kind]
    if not sum then
      sum = {name = kind, bytes = 0, count = 0}
      sums[kind], order[#order + 1] = sum, sum
    end
    sum.bytes, sum.count = sum.bytes + buffer.bytes, sum.count + 1
    sum.only = buffer
  end
  M.sort(order)
  local parts = {}
  for k = 1, math.min(#order, most) do
    local sum = order[k]
    parts[k] = ("%s %s%s"):format(sum.count == 1 and sum.only.name or sum.name,
      units.bytes(sum.bytes), sum.count > 1 and (" (%d)"):format(sum.count) or "")
    if sum.count == 1 and sum.only.task then
      parts[k] = ("%s since '%s'"):format(parts[k], sum.only.task.name)
    end
  end
  if #order > most then parts[#parts + 1] = ("%d kinds more"):format(#order - most) end
  return parts[1] and table.concat(parts, ", ") or "nothing"
end

return M
