--- Balance from measured times: which pieces of a model take how long on which device, and how many
-- micro-batches each rank should get.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

--- Divides a number of micro-batches among ranks, so that the slowest is done as early as possible.
-- @param total the number
-- @param seconds that each rank takes for one micro-batch
-- @return a list with the number of each rank, which are at least 1
function M.shares(total, seconds)
  options.count("dist.shares", "total", total)
  if type(seconds) ~= "table" or #seconds == 0 then
    fail("dist.shares: a list of the ranks' seconds is expected, got %s", options.kind(seconds))
  end
  if total < #seconds then
    fail("dist.shares: %d micro-batches are too few for %d ranks", total, #seconds)
  end
  local shares = {}
  for k, t in ipairs(seconds) do
    if type(t) ~= "number" or t <= 0 or t ~= t then
      fail("dist.shares: the seconds of rank %d must be a number above 0, got %s", k - 1,
        tostring(t))
    end
    shares[k] = 1
  end
  for _ = #seconds + 1, total do -- to the rank that is done first with one more
    local best
    for k, t in ipairs(seconds) do
      if not best or (shares[k] + 1) * t < (shares[best] + 1) * seconds[best] then best = k end
    end
    shares[best] = shares[best] + 1
  end
  return shares
end

--- Separates what pieces cost from how slow devices are: seconds[k] = work[k] * slow[device of k].
-- Pieces of one signature (the shapes of their parameters) have the same work.
-- @param seconds of each piece @param signatures of the pieces @param devices of the pieces
-- @param n devices
-- @return work of each piece, slow of each device
function M.fit(seconds, signatures, devices, n)
  local work, slow = {}, {}
  for d = 1, n do slow[d] = 1 end
  -- alternates between geometric means, from equal devices
  for _ = 1, 50 do
    local sum, count = {}, {}
    for k, s in ipairs(signatures) do
      sum[s] = (sum[s] or 0) + math.log(math.max(seconds[k], 1e-12) / slow[devices[k]])
      count[s] = (count[s] or 0) + 1
    end
    for k, s in ipairs(signatures) do work[k] = math.exp(sum[s] / count[s]) end
    local off, times, mean = {}, {}, 0
    for k, d in ipairs(devices) do
      if count[signatures[k]] > 1 then -- others say nothing about devices
        off[d] = (off[d] or 0) + math.log(math.max(seconds[k], 1e-12) / work[k])
        times[d] = (times[d] or 0) + 1
      end
    end
    for d = 1, n do
      slow[d] = off[d] and math.exp(off[d] / times[d]) or 1
      mean = mean + math.log(slow[d]) / n
    end
    for d = 1, n do slow[d] = slow[d] / math.exp(mean) end
  end
  return work, slow
end

return M
