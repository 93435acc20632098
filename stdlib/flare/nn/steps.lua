--- Splits a sequence into its time steps. The backward pass stacks the gradients of the steps once;
-- indexing each step would make a gradient of the whole length for every step.
local core = require "flare.core"

local M = {}

local unbind = core.func{
  name = "unbind",
  forward = function(_, x)
    local list = {}
    for t = 1, x:size(1) do list[t] = x[t]:clone() end
    return table.unpack(list)
  end,
  backward = function(_, ...)
    local n = select("#", ...)
    local list, like = {...}, nil
    for t = 1, n do like = like or list[t] end
    for t = 1, n do list[t] = list[t] or core.zeros_like(like) end
    return core.stack(list, {dim = 1})
  end,
}

-- The most results of one call that fit on Lua's stack; longer sequences are split in pieces.
local PIECE = 200

--- x (time, ...) as a list of its steps.
function M.unbind(x)
  local n = x:size(1)
  local list = {}
  if not x.requires_grad or not core.grad_enabled() then
    for t = 1, n do list[t] = x[t] end
    return list
  end
  for start = 1, n, PIECE do
    local length = math.min(PIECE, n - start + 1)
    local piece = length == n and x or x:narrow(1, start, length)
    table.move({unbind(piece)}, 1, length, start, list)
  end
  return list
end

return M
