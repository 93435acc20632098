-- What the programs in this folder share: they take no arguments, need a CUDA device, and
-- print a line for each benchmark: its name, the seconds of one call, the rate, and the
-- target: a least ratio ("1.00 x"), or a fraction of the rate of the benchmark "copy" ("85 %").
local flare = require "flare"
local core = require "flare.core"
local M = {}

local ok, why = flare.cuda.available()
if not ok then
  io.stderr:write("usage: flare ", arg and arg[0] or "bench/gpu/NAME.lua",
                  ", on a machine with a CUDA device: ", tostring(why), "\n")
  os.exit(1)
end

-- Decides now which kernels products and convolutions get, as before a capture: in a program its
-- first 200 steps do.
local function autotune(f)
  core.backend_control("cuda", "settle", 1)
  for _ = 1, 3 do f() end
  core.backend_control("cuda", "settle", 0)
end

-- The median of five times of one call, each of many calls back to back; of three calls where one
-- takes long.
function M.seconds(f)
  local all = {}
  autotune(f)
  for k = 1, 4 do
    local start = flare.clock()
    f()
    flare.synchronize()
    all[k] = flare.clock() - start
    if all[k] < 0.2 and k > 1 then break end
  end
  if #all == 4 then
    table.remove(all, 1)
    table.sort(all)
    return all[2]
  end
  all = {}
  for _ = 1, 5 do f() end
  flare.synchronize()
  local start = flare.clock()
  f()
  flare.synchronize()
  local count = math.max(3, math.min(200, math.floor(0.05 / (flare.clock() - start))))
  for round = 1, 5 do
    start = flare.clock()
    for _ = 1, count do f() end
    flare.synchronize()
    all[round] = (flare.clock() - start) / count
  end
  table.sort(all)
  return all[3]
end

function M.show(name, seconds, amount, unit, aim)
  io.write(name, "\t", ("%.4g"):format(seconds), "\t",
           amount and ("%.4g %s"):format(amount / seconds, unit) or "", "\t", aim or "", "\n")
  io.flush()
end

-- f gives one or two tensors, or nothing; nothing is recorded for gradients.
local function forward(unit, scale)
  return function(name, amount, f, aim)
    flare.no_grad(function()
      local seconds = M.seconds(function()
        local first, second = f()
        if first then first:close() end
        if second then second:close() end
      end)
      M.show(name, seconds, amount and amount / scale, unit, aim)
    end)
  end
end
M.bytes, M.products = forward("GB/s", 1e9), forward("TFLOP/s", 1e12)

-- Times the gradients of y with respect to the leaves: bytes, or TFLOP with `unit`.
function M.backward(name, amount, y, leaves, aim, unit)
  local dy = M.normal(y.dtype, table.unpack(y.shape))
  M.show(name, M.seconds(function()
    y:backward(dy, {retain_graph = true})
    for _, leaf in ipairs(leaves) do leaf.grad = nil end
  end), unit and amount or amount / 1e9, unit or "GB/s", aim)
end

function M.normal(dtype, ...) return flare.randn({...}, {device = "cuda"}):to(dtype) end

-- Of (N, C, H, W), with channels innermost.
function M.last(x) return x:permute{1, 3, 4, 2}:contiguous():permute{1, 4, 2, 3} end

function M.leaf(dtype, ...)
  local x = M.normal(dtype, ...):detach()
  x.requires_grad = true
  return x
end

return M
