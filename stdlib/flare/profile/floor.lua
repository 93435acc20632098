--- The floor of a launch (roofline model): the time for its bytes at the bandwidth of a copy, or
-- for its FLOPs at the rate of a large matrix product of the dtype, whichever is longer. Both rates
-- are measured on the device at the first use, which takes some ten milliseconds.
local core = require "flare.core"

local M = {}

-- Bytes and FLOPs per second, by device.
local known = {}

-- The least time of three calls in seconds, each with synchronization.
local function seconds(device, f)
  local best = math.huge
  for round = 1, 4 do
    core.synchronize(device)
    local start = core.clock()
    local y = f()
    core.synchronize(device)
    local time = core.clock() - start
    y:close()
    if round > 1 then best = math.min(best, time) end
  end
  return best
end

local function of(device)
  local k = known[device]
  if k then return k end
  local bytes = device:find "^cuda" and 1 << 29 or 1 << 25
  local x = core.zeros(bytes // 4, {dtype = "f32", device = device})
  k = {bytes = 2 * bytes / seconds(device, function() return x:clone() end)}
  x:close()
  known[device] = k
  return k
end

local function flops(device, dtype)
  local k = of(device)
  if not k[dtype] then
    local n = device:find "^cuda" and 4096 or 768
    local a = core.ones(n, n, {dtype = dtype, device = device})
    k[dtype] = 2 * n ^ 3 / seconds(device, function() return a:matmul(a) end)
    a:close()
  end
  return k[dtype]
end

local floats = {f64 = true, f32 = true, f16 = true, bf16 = true}

-- Few FLOPs a byte never are what counts.
local function computes(row)
  return row.flops > 8 * row.bytes and floats[row.dtype] and not row.device:find "^sim"
end

--- A launch that took `time` microseconds: a faster one than those that were measured, while other
-- programs had the device, raises the rate.
function M.seen(row, time)
  if not computes(row) or time <= 0 then return end
  local _ <close> = core.no_grad()
  local rate = flops(row.device, row.dtype)
  known[row.device][row.dtype] = math.max(rate, row.flops / time * 1e6)
end

--- Microseconds of the floor of a row, nil for a transfer or a simulated device.
function M.of(row)
  if row.transfer or row.device:find "^sim" then return nil end
  local _ <close> = core.no_grad()
  local time = row.bytes / of(row.device).bytes
  if computes(row) then
    time = math.max(time, row.flops / flops(row.device, row.dtype))
  end
  return time * 1e6
end

return M
