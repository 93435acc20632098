--- References of the random rows: Philox 4x32 from its paper (Salmon et al., SC 2011), of ten
-- rounds, for dropout seven, and how each row makes numbers of its words. Element e takes word
-- e % 4 of counter offset + e / 4 (f64: words 2 (e % 2) and the next of counter offset + e / 2).
local A = require "spec.support.array"
local elementwise = require "spec.support.reference.elementwise"

local R = {}
local mask = 0xffffffff

local function words(seed, counter, stream, rounds)
  local c0, c1 = counter & mask, counter >> 32
  local c2, c3 = stream & mask, stream >> 32
  local k0, k1 = seed & mask, seed >> 32
  for _ = 1, rounds or 10 do
    local p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
    c0, c1, c2, c3 = (p1 >> 32) ~ c1 ~ k0, p1 & mask, (p0 >> 32) ~ c3 ~ k1, p0 & mask
    k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
  end
  return {c0, c1, c2, c3}
end
R._words = words

-- e counts from 0.
local function word(seed, offset, e, stream)
  return words(seed, offset + e // 4, stream or 0)[e % 4 + 1]
end

local function two_words(seed, offset, e)
  local w = words(seed, offset + e // 2, 0)
  return w[e % 2 * 2 + 1], w[e % 2 * 2 + 2]
end

local function uniform24(w) return (w >> 8) * 2.0 ^ -24 end
local function uniform53(high, low) return ((high << 32 | low) >> 11) * 2.0 ^ -53 end

local function start(a)
  if a._seed then return a._seed, 0 end
  local function number(v) return A.is(v) and v[1] or v end
  return number(a.seed), number(a.offset)
end

-- Whether an element survives dropout, as a function of its number from 0: by one half of a word,
-- the lower one first.
function R._kept(from, p)
  local seed, offset = from, 0
  if type(from) == "table" then seed, offset = start{seed = from[1], offset = from[2]} end
  local limit = math.floor(p * 2.0 ^ 16 + 0.5)
  return function(e)
    local w = words(seed, offset + e // 8, 0, 7)[e % 8 // 2 + 1]
    return (e % 2 == 0 and w & 0xffff or w >> 16) >= limit
  end
end

local function uniform(seed, offset, e, dtype)
  if dtype == "f64" then return uniform53(two_words(seed, offset, e)) end
  return uniform24(word(seed, offset, e))
end

function R.rand(a)
  local seed, offset = start(a)
  local low, high = a.low or 0, a.high or 1
  return A.build(a.shape, function(_, k)
    return low + (high - low) * uniform(seed, offset, k - 1, a.dtype or "f32")
  end, a.dtype or "f32")
end

-- Box and Muller: two elements of a radius and an angle.
function R.randn(a)
  local seed, offset = start(a)
  local mean, std, wide = a.mean or 0, a.std or 1, a.dtype == "f64"
  return A.build(a.shape, function(_, k)
    local e = k - 1
    local first, u, t = e - e % 2
    if wide then
      local w = words(seed, offset + first // 2, 0)
      u, t = uniform53(w[1], w[2]) + 2.0 ^ -54, uniform53(w[3], w[4])
    else
      u = (word(seed, offset, first) + 0.5) * 2.0 ^ -32
      t = uniform24(word(seed, offset, first + 1))
    end
    local r = std * math.sqrt(-2 * math.log(u))
    return mean + r * (e % 2 == 0 and math.cos or math.sin)(2 * math.pi * t)
  end, a.dtype or "f32")
end

-- --- others, of one uniform number each, or of a normal one ---

local function single(x) return (string.unpack("f", string.pack("f", x))) end
local function inside32(w) return (w + 0.5) * 2.0 ^ -32 end
local function inside53(high, low)
  return math.min(uniform53(high, low) + 2.0 ^ -54, 1 - 2.0 ^ -53)
end

local function exponential(seed, offset, e, dtype)
  if dtype == "f64" then return -math.log(inside53(two_words(seed, offset, e))) end
  local u = single(single(word(seed, offset, e)) + 0.5) * 2.0 ^ -32
  return -math.log(math.min(u, 1 - 2.0 ^ -24))
end

function R.exponential(a)
  local seed, offset = start(a)
  return A.build(a.shape, function(_, k)
    return exponential(seed, offset, k - 1, a.dtype) / (a.rate or 1)
  end, a.dtype or "f32")
end

function R.cauchy(a)
  local seed, offset = start(a)
  return A.build(a.shape, function(_, k)
    local u = a.dtype == "f64" and inside53(two_words(seed, offset, k - 1))
      or inside32(word(seed, offset, k - 1))
    return (a.median or 0) + (a.sigma or 1) * math.tan(math.pi * (u - 0.5))
  end, a.dtype or "f32")
end

function R.log_normal(a)
  local x = R.randn {shape = a.shape, mean = a.mean or 1, std = a.std or 2, dtype = a.dtype,
    _seed = a._seed}
  return A.build(a.shape, function(_, k) return math.exp(x[k]) end, a.dtype or "f32")
end

function R.geometric(a)
  local seed, offset = start(a)
  return A.build(a.shape, function(_, k)
    local u = inside53(word(seed, offset, k - 1), word(seed, offset, k - 1, 1))
    local steps = a.p < 1 and math.floor(math.log(u) / math.log(1 - a.p)) or 0
    return 1 + steps
  end, a.dtype or "i64")
end

-- --- by rejection: attempt k of element e has the words of stream 4 k + e % 4 ---

local function attempt(seed, offset, e, k)
  return words(seed, offset + e // 4, k << 2 | e % 4)
end

local function draw_gamma(seed, offset, e, alpha)
  local d = (alpha < 1 and alpha + 1 or alpha) - 1 / 3
  local c, scale = 1 / math.sqrt(9 * d), 1
  if alpha < 1 then
    local w = attempt(seed, offset, e, 0)
    scale = inside53(w[1], w[2]) ^ (1 / alpha)
  end
  for k = 1, 100 do
    local w = attempt(seed, offset, e, k)
    local x = math.sqrt(-2 * math.log(inside32(w[1]))) * math.cos(2 * math.pi * inside32(w[2]))
    local v = (1 + c * x) ^ 3
    if v > 0 and math.log(inside53(w[3], w[4])) < x * x / 2 + d * (1 - v + math.log(v)) then
      return d * v * scale
    end
  end
end

function R.gamma(a)
  local seed, offset = start(a)
  local least = a.alpha.dtype == "f64" and 2.0 ^ -1022 or 2.0 ^ -126
  return A.build(a.alpha.shape, function(_, k)
    return math.max(draw_gamma(seed, offset, k - 1, a.alpha[k]), least)
  end)
end

local function draw_poisson(seed, offset, e, rate)
  if rate < 10 then
    local w = attempt(seed, offset, e, 0)
    local u, p, k = inside53(w[1], w[2]), math.exp(-rate), 0.0
    while u > p do
      u, k = u - p, k + 1
      p = p * rate / k
    end
    return k
  end
  local b = 0.931 + 2.53 * math.sqrt(rate)
  local a, limit = -0.059 + 0.02483 * b, 0.9277 - 3.6224 / (b - 2)
  for t = 0, 100 do
    local w = attempt(seed, offset, e, t)
    local u, v = inside53(w[1], w[2]) - 0.5, inside53(w[3], w[4])
    local s = 0.5 - math.abs(u)
    local k = math.floor((2 * a / s + b) * u + rate + 0.43) + 0.0
    if s >= 0.07 and v <= limit then return k end
    local tested = k >= 0 and (s >= 0.013 or v <= s)
    local chance = tested and k * math.log(rate) - rate - elementwise._lgamma(k + 1)
    v = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (s * s) + b)
    if tested and math.log(v) <= chance then return k end
  end
end

function R.poisson(a)
  local seed, offset = start(a)
  return A.build(a.rate.shape, function(_, k)
    return draw_poisson(seed, offset, k - 1, a.rate[k])
  end)
end

-- 64 bits, of streams 0 and 1, scaled to the range.
function R.randint(a)
  local seed, offset = start(a)
  local range = a.high - a.low
  return A.build(a.shape, function(_, k)
    local high, low = word(seed, offset, k - 1), word(seed, offset, k - 1, 1)
    return a.low + (high * range + (low * range >> 32) >> 32)
  end, a.dtype or "i64")
end

function R.bernoulli(a)
  local seed, offset = start(a)
  return A.build(a.p.shape, function(_, k)
    return uniform(seed, offset, k - 1, a.p.dtype) < a.p[k] and 1 or 0
  end)
end

function R.dropout(a)
  local x, p = a.x or a.dy, a.p or 0.5
  local seed, offset = start(a)
  if p == 0 then return x end
  local kept = R._kept({seed, offset}, p)
  return A.build(x.shape, function(_, k) return p < 1 and kept(k - 1) and x[k] / (1 - p) or 0.0 end)
end
R.dropout_backward = R.dropout

-- Draws are judged by what they must be, not by which they are.

local function whole(got, low, high)
  for k = 1, #got do
    if got[k] < low or got[k] > high then return nil, ("%s is not in %d..%d"):format(got[k], low,
      high) end
  end
  return true
end

function R.randperm(a)
  return function(got)
    local seen = {}
    if #got ~= a.n then return nil, "has " .. #got .. " elements" end
    for k = 1, #got do
      if seen[got[k]] then return nil, got[k] .. " comes twice" end
      seen[got[k]] = true
    end
    if a.n >= 8 then
      local still = 0
      for k = 1, #got do if got[k] == k then still = still + 1 end end
      if still > a.n // 2 then return nil, "hardly moves anything" end
    end
    return whole(got, 1, a.n)
  end
end

function R.multinomial(a)
  local classes = a.p.shape[#a.p.shape]
  return function(got)
    local counts = {}
    for k = 1, #got do
      local row = (k - 1) // a.n
      local weight = a.p[row * classes + got[k]]
      if weight <= 0 then return nil, "drew a class without a weight" end
      local key = row * classes + got[k]
      counts[key] = (counts[key] or 0) + 1
      if not a.replacement and counts[key] > 1 then return nil, "drew a class twice" end
    end
    for row = 0, a.replacement and a.n >= 1000 and #got // a.n - 1 or -1 do
      local total = 0
      for c = 1, classes do total = total + a.p[row * classes + c] end
      for c = 1, classes do -- within five deviations
        local p = a.p[row * classes + c] / total
        local off = (counts[row * classes + c] or 0) - a.n * p
        if off * off > 25 * a.n * p * (1 - p) + 1 then
          return nil, ("class %d came %d times of %d"):format(c, counts[row * classes + c] or 0,
            a.n)
        end
      end
    end
    return whole(got, 1, classes)
  end
end

return R
