-- What the programs in this folder share: they take no arguments, need a CUDA device, and
-- print a line for each piece of work: its name, the seconds of one call, and the rate.
local flare = require "flare"
local M = {}

local ok, why = flare.cuda.available()
if not ok then
  io.stderr:write("usage: flare ", arg and arg[0] or "bench/gpu/NAME.lua",
                  ", on a machine with a CUDA device: ", tostring(why), "\n")
  os.exit(1)
end

-- The median of five times of one call, each of many calls back to back.
function M.seconds(f)
  for _ = 1, 5 do f() end
  flare.synchronize()
  local start = flare.clock()
  f()
  flare.synchronize()
  local count = math.max(3, math.min(50, math.floor(0.05 / (flare.clock() - start))))
  local all = {}
  for round = 1, 5 do
    start = flare.clock()
    for _ = 1, count do f() end
    flare.synchronize()
    all[round] = (flare.clock() - start) / count
  end
  table.sort(all)
  return all[3]
end

function M.show(name, seconds, amount, unit)
  io.write(name, "\t", ("%.4g"):format(seconds), "\t",
           amount and ("%.4g %s"):format(amount / seconds, unit) or "", "\n")
  io.flush()
end

-- f gives one or two tensors, or nothing; nothing is recorded for gradients.
local function forward(unit, scale)
  return function(name, amount, f)
    flare.no_grad(function()
      local seconds = M.seconds(function()
        local first, second = f()
        if first then first:close() end
        if second then second:close() end
      end)
      M.show(name, seconds, amount and amount / scale, unit)
    end)
  end
end
M.bytes, M.products = forward("GB/s", 1e9), forward("TFLOP/s", 1e12)

-- The gradients of y with respect to the leaves, again and again.
function M.backward(name, bytes, y, leaves)
  local dy = M.normal(y.dtype, table.unpack(y.shape))
  M.show(name, M.seconds(function()
    y:backward(dy, {retain_graph = true})
    for _, leaf in ipairs(leaves) do leaf.grad = nil end
  end), bytes / 1e9, "GB/s")
end

function M.normal(dtype, ...) return flare.randn({...}, {device = "cuda"}):to(dtype) end

function M.leaf(dtype, ...)
  local x = M.normal(dtype, ...):detach()
  x.requires_grad = true
  return x
end

return M
