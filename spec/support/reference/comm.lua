--- References of the collectives in a process that is alone: x itself, or x as a list of one.
local A = require "spec.support.array"

local R = {}

local function itself(a) return A.reshape(a.x, a.x.shape) end
local function joined(a) return A.reshape(a.x, #a.x.shape > 0 and a.x.shape or {1}) end

for name in ("all_reduce reduce broadcast all_to_all reduce_scatter scatter"):gmatch "%S+" do
  R["comm_" .. name] = itself
end
R.comm_all_gather, R.comm_gather = joined, joined

-- Nothing comes of these, or nothing can be sent to oneself.
local function nothing() return {} end
R.comm_send, R.comm_recv, R.comm_barrier = nothing, nothing, nothing

return R
