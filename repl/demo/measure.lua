--- What the demos measure: the time of a call, and the memory that it takes.
local flare = require "flare"

local M = {}

--- The least seconds of a few calls.
function M.seconds(f)
  local best = math.huge
  for _ = 1, 3 do
    local start = flare.clock()
    f()
    flare.synchronize()
    best = math.min(best, flare.clock() - start)
  end
  return best
end

--- The bytes in tensors that a call takes at its peak, over those before it.
function M.peak(f, device)
  collectgarbage()
  local before = flare.memory.stats(device).live
  flare.memory.reset_peak(device)
  f()
  flare.synchronize()
  return flare.memory.stats(device).peak - before
end

--- Bytes as text.
function M.bytes(n)
  for _, unit in ipairs{"bytes", "KiB", "MiB"} do
    if n < 1024 then return ("%.4g %s"):format(n, unit) end
    n = n / 1024
  end
  return ("%.4g GiB"):format(n)
end

--- Seconds as text.
function M.time(s)
  if s < 1e-3 then return ("%.4g us"):format(s * 1e6) end
  return s < 1 and ("%.4g ms"):format(s * 1e3) or ("%.4g s"):format(s)
end

--- Prints which lines hold memory when most of it is in use.
function M.show_memory(f)
  local text = tostring(flare.profile(f, {memory = true}))
  print((text:match "\n(%a[%w:]*: at most .-)\nin all" or text))
end

return M
