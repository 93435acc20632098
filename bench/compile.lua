-- Functions of plain operators, at once and compiled: microseconds a call, the best of five times
-- thirty. `flare bench/compile.lua DEVICE`; bench/peers/compile.py has some of them in PyTorch.
local flare = require "flare"
local device = arg[1] or "cpu"
flare.set_default_device(device)

local function time(f, ...)
  for _ = 1, 20 do f(...) end
  flare.synchronize()
  local best = math.huge
  for _ = 1, 5 do
    local start = flare.clock()
    for _ = 1, 30 do f(...) end
    flare.synchronize()
    best = math.min(best, (flare.clock() - start) / 30)
  end
  return best * 1e6
end

local functions = {
  {"gelu", function(x)
    return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608):tanh())
  end},
  {"swiglu", function(x, y) return x * x:sigmoid() * y end},
  {"rms norm", function(x) return x / ((x * x):mean(-1, {keepdim = true}) + 1e-6):sqrt() end},
  {"layer norm", function(x)
    local d = x - x:mean(-1, {keepdim = true})
    return d / ((d * d):mean(-1, {keepdim = true}) + 1e-5):sqrt()
  end},
  {"softmax", function(x)
    local e = (x - x:amax(-1, {keepdim = true})):exp()
    return e / e:sum(-1, {keepdim = true})
  end},
  {"rope", function(x)
    local n = x.shape[2] // 2
    local a, b = x:narrow(2, 1, n), x:narrow(2, n + 1, n)
    return flare.cat({a * 0.7 - b * 0.3, b * 0.7 + a * 0.3}, 2)
  end},
  {"focal loss", function(x, y)
    local p = x:sigmoid()
    return (-(1 - p) * (1 - p) * (p + 1e-6):log() * y):mean()
  end},
  {"mish", function(x) return x * ((x:exp() + 1):log()):tanh() end},
  {"adam", function(x, y)
    local m, v = x * 0.9 + y * 0.1, x * x * 0.99 + y * y * 0.01
    return x - m / (v:sqrt() + 1e-8) * 0.001
  end},
}

for _, shape in ipairs {{64, 128}, {1024, 1024}, {8192, 4096}} do
  local x, y = flare.randn(shape), flare.randn(shape)
  for _, f in ipairs(functions) do
    local compiled = flare.compile(f[2], {wait = true})
    local eager, fused = time(f[2], x, y), time(compiled, x, y)
    local stats = flare.compile_stats(compiled)
    print(("%-10s %4d x %-4d  eager %9.2f us  compiled %9.2f us  %5.2fx  %2d -> %d kernels"):format(
      f[1], shape[1], shape[2], eager, fused, eager / fused, stats.launches, stats.kernels))
  end
end
