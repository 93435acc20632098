-- Twelve functions of plain operators on the CPU: at once, compiled, and compiled with the plan
-- used even where it does not win; microseconds a call, the least of many rounds that alternate.
-- `flare bench/functions.lua [THREADS [ROUNDS [NAME...]]]`; bench/peers/functions.py has them in
-- PyTorch.
local flare = require "flare"
local threads, rounds = tonumber(arg[1]) or 2, tonumber(arg[2]) or 300
local wanted = {table.unpack(arg, 3)}
flare.core.threads(threads)

local function softmax(x)
  local e = (x - x:amax(-1, {keepdim = true})):exp()
  return e / e:sum(-1, {keepdim = true})
end

local function normed(x)
  local d = x - x:mean(-1, {keepdim = true})
  return d / ((d * d):mean(-1, {keepdim = true}) + 1e-5):sqrt()
end

local random = flare.randn

-- {name, operands of n x m elements, function}
local functions = {
  {"layer norm", function(n, m) return random(n, m), random(m), random(m) end,
    function(x, w, b) return normed(x) * w + b end},
  {"rms norm", function(n, m) return random(n, m), random(m) end,
    function(x, w)
      return x * ((x * x):mean(-1, {keepdim = true}) + 1e-6):rsqrt() * w
    end},
  {"group norm", function(n, m)
    return random(n // 16, 64, m // 4), random(64, 1), random(64, 1)
  end, function(x, w, b)
    local groups = x:reshape(x.shape[1], 8, 8 * x.shape[3])
    return normed(groups):reshape(x.shape) * w + b
  end},
  {"gelu", function(n, m) return random(n, m) end, function(x)
    return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608):tanh())
  end},
  {"attention", function(n, m)
    local heads, length = n * m // 65536, 256
    if heads == 0 then heads, length = 2, 64 end
    return random(heads, length, 64), random(heads, length, 64), random(heads, length, 64)
  end, function(q, k, v) return softmax(q:matmul(k:transpose(2, 3)) * 0.125):matmul(v) end},
  {"focal loss", function(n, m) return random(n, m), flare.rand(n, m):gt(0.5):float() end,
    function(x, t)
      local p = x:sigmoid()
      local q = p * t + (1 - p) * (1 - t)
      return ((1 - q) * (1 - q) * -(q + 1e-6):log() * (t * 0.25 + (1 - t) * 0.75)):mean()
    end},
  {"rope", function(n, m) return random(n, m), random(n, m // 2), random(n, m // 2) end,
    function(x, cos, sin)
      local h = x.shape[2] // 2
      local a, b = x:narrow(2, 1, h), x:narrow(2, h + 1, h)
      return flare.cat({a * cos - b * sin, b * cos + a * sin}, 2)
    end},
  {"swiglu", function(n, m) return random(n, m), random(n, m) end,
    function(x, y) return x * x:sigmoid() * y end},
  {"adam", function(n, m) return random(n, m), random(n, m), random(n, m), flare.rand(n, m) end,
    function(p, g, m, v)
      m:mul_(0.9):add_(g * 0.1)
      v:mul_(0.999):add_(g * g * 0.001)
      p:sub_(m / 0.5 / ((v / 0.25):sqrt() + 1e-8) * 1e-4)
    end},
  {"softmax", function(n, m) return random(n, m) end, softmax},
  {"mish and silu", function(n, m) return random(n, m), random(n, m) end, function(x, y)
    local mish = x * (x:exp() + 1):log():tanh()
    return mish + y / (1 + (-y):exp())
  end},
  {"cross entropy", function(n, m) return random(n, m), flare.randint(1, m + 1, {n}) end,
    function(x, t)
      local top = x:amax(-1, {keepdim = true})
      local all = (x - top):exp():sum(-1, {keepdim = true}):log() + top
      return (all - x:gather(2, t:unsqueeze(2))):mean()
    end},
}

local function time(calls, f, ...)
  f(...)
  local start = flare.clock()
  for _ = 1, calls do f(...) end
  return (flare.clock() - start) / calls * 1e6
end

-- In turns; how a function leaves the collector bears upon the next one.
local function race(ways, operands)
  local least, calls = {}, 1
  for k, way in ipairs(ways) do
    for _ = 1, 60 do way(table.unpack(operands)) end
    least[k] = time(10, way, table.unpack(operands))
    calls = math.max(1, 200 / least[1] // 1 | 0) -- short enough not to be interrupted
  end
  for _ = 1, rounds do
    for k, way in ipairs(ways) do
      least[k] = math.min(least[k], time(calls, way, table.unpack(operands)))
    end
  end
  return table.unpack(least)
end

local function measure(make, f, n, m)
  local operands = {make(n, m)}
  local compiled, planned = flare.compile(f, {wait = true}), flare.core.compiled(f, false, true)
  local eager, as_used = race({f, compiled}, operands)
  local forced = race({planned}, operands)
  return eager, as_used, forced, flare.compile_stats(compiled)
end

local function is_wanted(name)
  for _, word in ipairs(wanted) do
    if name:find(word, 1, true) then return true end
  end
  return #wanted == 0
end

for _, shape in ipairs {{64, 128}, {1024, 1024}} do
  local product, product_planned, count, worst = 1, 1, 0, 0
  for _, f in ipairs(functions) do
    if is_wanted(f[1]) then
      local eager, compiled, planned, stats = flare.no_grad(measure, f[2], f[3], shape[1], shape[2])
      print(("%-13s %4d x %-4d  eager %8.2f us  compiled %8.2f us %5.2fx  planned %8.2f us %5.2fx"
        .. "  %2d -> %d%s"):format(f[1], shape[1], shape[2], eager, compiled, eager / compiled,
        planned, eager / planned, stats.launches, stats.kernels, stats.off and " off" or ""))
      product, product_planned = product * eager / compiled, product_planned * eager / planned
      count, worst = count + 1, math.max(worst, compiled / (1.05 * eager + 0.1))
    end
  end
  print(("geometric mean: compiled %.2fx, planned %.2fx; worst: %.2f of 1.05 x eager + 0.1 us")
    :format(product ^ (1 / count), product_planned ^ (1 / count), worst))
end
