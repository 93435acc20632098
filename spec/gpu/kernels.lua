--- Times of kernels in strings: lines "kind<tab>milliseconds of the first<tab>of the same again".
-- Another kernel of each kind comes before: it loads the compiler and our own Lua files.
--   flare spec/gpu/kernels.lua
local flare = require "flare"
local clock = flare.core.clock
local x, y = flare.rand({1000}, {device = "cuda"}), flare.rand({1000}, {device = "cuda"})
local _ = (x + y):sum():item() -- streams, the kernels of rows
flare.synchronize()

local function raw(name, rate)
  return function()
    local f = flare.cuda.kernel {name = name, out = {"y"}, source = [[
      __global__ void ]] .. name .. [[(const float *x, float *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = ]] .. rate .. [[ * __expf(-x[i]);
      }]]}
    return f(x, 1000)
  end
end

local function elementwise(rate)
  return function()
    local body = ("z = x * sigmoid(%g * y) + exp(-x)"):format(rate)
    return flare.elementwise("T x, T y", "T z", body)(x, y)
  end
end

local function reduce(rate)
  return function()
    return flare.reduce("T x, T y", "T d", ("T t = x - %g * y; t * t"):format(rate), "sum")(x, y)
  end
end

local function traced(rate)
  return function()
    return flare.kernel(function(a, b) return (a * rate):tanh() + b * a:sigmoid() end)(x, y)
  end
end

local function ms(f)
  local start = clock()
  f()
  flare.synchronize()
  return (clock() - start) * 1e3
end

raw("before", 2)()
elementwise(7.5)()
reduce(7.5)()
traced(7.5)()
flare.synchronize()
for _, kind in ipairs {{"raw", raw("decay", 3)}, {"elementwise", elementwise(1.5)},
                       {"reduce", reduce(2.5)}, {"traced", traced(3.5)}} do
  local first = ms(kind[2])
  print(("%s\t%.3f\t%.3f"):format(kind[1], first, ms(kind[2])))
end
