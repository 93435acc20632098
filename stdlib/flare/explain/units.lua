--- Numbers with units, three digits long.
local M = {}

local function scaled(n, units, base)
  local k = 1
  while k < #units and n >= base do n, k = n / base, k + 1 end
  local format = n == n // 1 and "%.0f %s" or n < 9.995 and "%.2f %s" or n < 99.95 and "%.1f %s"
    or "%.0f %s"
  return (format:format(n, units[k]):gsub(" $", ""))
end

--- "1.50 KiB"
function M.bytes(n) return scaled(n, {"B", "KiB", "MiB", "GiB", "TiB"}, 1024) end

--- "73.7 k", of FLOPs
function M.flops(n) return scaled(n, {"", "k", "M", "G", "T"}, 1000) end

--- "8.44 us", of microseconds
function M.time(us) return scaled(us, {"us", "ms", "s"}, 1000) end

return M
