--- Dropout, and operators that draw random numbers.
local core = require "flare.core"
local refuse = require "flare.onnx.refuse"
local types = require "flare.onnx.types"
local Node = require "flare.onnx.node"

local M = {}

-- Uniform numbers as ONNX's reference draws them for a seed: MT19937 with 53 bits of each two
-- draws (Matsumoto and Nishimura, ACM TOMACS 8, 1998).
local function mersenne(seed)
  local state, at = {[0] = seed & 0xffffffff}, 624
  for k = 1, 623 do
    local last = state[k - 1]
    state[k] = (1812433253 * (last ~ (last >> 30)) + k) & 0xffffffff
  end
  local function refill()
    for k = 0, 623 do
      local y = (state[k] & 0x80000000) | (state[(k + 1) % 624] & 0x7fffffff)
      state[k] = state[(k + 397) % 624] ~ (y >> 1) ~ ((y & 1) * 0x9908b0df)
    end
    at = 0
  end
  local function draw()
    if at == 624 then refill() end
    local y = state[at]
    at = at + 1
    y = y ~ (y >> 11)
    y = y ~ ((y << 7) & 0x9d2c5680)
    y = y ~ ((y << 15) & 0xefc60000)
    return (y ~ (y >> 18)) & 0xffffffff
  end
  return function() return ((draw() >> 5) * 67108864 + (draw() >> 6)) / 9007199254740992 end
end

-- Uniform numbers of a shape; the generator of flare if there is no seed.
local function uniform(n, shape)
  if not n.attr.seed then
    return core.rand(shape, {dtype = "f64", device = n.device})
  end
  local draw, total, list = mersenne(math.floor(n.attr.seed)), 1, {}
  for _, size in ipairs(shape) do total = total * size end
  for k = 1, total do list[k] = draw() end
  if total == 0 then return core.zeros(shape, {dtype = "f64", device = n.device}) end
  return core.tensor(list, {dtype = "f64"}):to(n.device):reshape(shape)
end

function M.Dropout(n, x, ratio, training)
  local version = n.version or 12
  local p = ratio and n:number(ratio) or n.attr.ratio or 0.5
  local on = version < 7 and n.attr.is_test ~= 1
  if training then on = n:number(training) == true end
  if not on or p == 0 then
    return x, core.ones_like(x, {dtype = version < 10 and x.dtype or "bool"})
  end
  local mask = uniform(n, n:shape(x)):ge(p)
  return (x * mask:to(x.dtype) * (1 / (1 - p))):to(x.dtype),
         version < 10 and mask:to(x.dtype) or mask
end

-- Refused when a model is loaded, unless the option `random` is set.
local function chance(f)
  return {load = function(step)
    if not step.random then
      refuse.raise("random numbers: %s gives other results than other programs; "
                   .. "load(path, {random = true}) takes them",
                   Node.title_of(step.name, step.domain, step.version))
    end
    return f
  end}
end

local function dtype_of(n, default)
  return n.attr.dtype and types.dtype(n.attr.dtype, "the result of " .. n.name) or default
end

M.Bernoulli = chance(function(n, x)
  return uniform(n, n:shape(x)):lt(x):to(dtype_of(n, x.dtype))
end)

local function uniform_of(n, shape, default)
  local low, high = n.attr.low or 0, n.attr.high or 1
  return (uniform(n, shape) * (high - low) + low):to(dtype_of(n, default))
end

local function normal_of(n, shape, default)
  local y = core.randn(shape, {dtype = "f64", device = n.device})
  return (y * (n.attr.scale or 1) + (n.attr.mean or 0)):to(dtype_of(n, default))
end

M.RandomUniform = chance(function(n) return uniform_of(n, n.attr.shape, "f32") end)
M.RandomUniformLike = chance(function(n, x) return uniform_of(n, n:shape(x), x.dtype) end)
M.RandomNormal = chance(function(n) return normal_of(n, n.attr.shape, "f32") end)
M.RandomNormalLike = chance(function(n, x) return normal_of(n, n:shape(x), x.dtype) end)

M.Multinomial = chance(function(n, x)
  local drawn = x:exp():multinomial{n = n.attr.sample_size or 1, replacement = true, base = 0}
  return drawn:to(dtype_of(n, "i32"))
end)

return M
