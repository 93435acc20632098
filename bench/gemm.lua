-- Matrix products, GFLOP/s: squares, and the linear maps of a GPT step (768 tokens,
-- 128 wide) forward and backward. With as many threads as this process may use:
--   taskset -c 0 flare bench/gemm.lua        (one)
-- bench/peers/gemm.py does the same work in PyTorch.
local flare = require "flare"

local function normal(...) return flare.randn(...) end

-- Seconds of one call of f: the best of many short runs.
local function time(f, flop)
  local calls = math.max(1, 2e-4 / (flop / 1e11 + 1e-7) // 1 | 0)
  local best, total = math.huge, 0
  f()
  for _ = 1, 200 do
    local start = flare.clock()
    for _ = 1, calls do f() end
    local took = flare.clock() - start
    best, total = math.min(best, took / calls), total + took
    if total > 0.3 then break end
  end
  return best
end

local function row(name, flop, f)
  print(("%-28s %8.1f"):format(name, flop / time(f, flop) / 1e9))
end

local grad = flare.no_grad or function(f) return f() end
grad(function()
  for _, n in ipairs {16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048} do
    local a, b = normal(n, n), normal(n, n)
    local at, bt = a:t(), b:t()
    local flop = 2.0 * n ^ 3
    row("nn " .. n, flop, function() local _ <close> = a:matmul(b) end)
    row("nt " .. n, flop, function() local _ <close> = a:matmul(bt) end)
    row("tn " .. n, flop, function() local _ <close> = at:matmul(b) end)
  end
  for _, shape in ipairs {{768, 128, 128}, {768, 384, 128}, {768, 512, 128}, {768, 128, 512},
    {768, 65, 128}, {128, 256, 784}} do
    local tokens, outputs, inputs = table.unpack(shape)
    local x, w, dy = normal(tokens, inputs), normal(outputs, inputs), normal(tokens, outputs)
    local wt, dyt = w:t(), dy:t()
    local flop = 2.0 * tokens * outputs * inputs
    local name = ("%dx%dx%d"):format(tokens, outputs, inputs)
    row("forward " .. name, flop, function() local _ <close> = x:matmul(wt) end)
    row("dx " .. name, flop, function() local _ <close> = dy:matmul(w) end)
    row("dw " .. name, flop, function() local _ <close> = dyt:matmul(x) end)
  end
end)
