-- Random numbers: the rows number by number, then what their distributions must be, what fills
-- tensors in place, and generators.
local expect = require "spec.support.expect"
local flare = require "flare"

require "spec.support.declare"("random", describe, it)

local n = 20000

local function generator(seed) return {generator = flare.generator(seed)} end

local function with(seed, options)
  options.generator = flare.generator(seed)
  return options
end

-- Kolmogorov and Smirnov: the largest distance between the share of numbers below each and what
-- the distribution says, times sqrt(n); 2.2 is passed once in 10000 draws.
local function fits(x, cdf)
  local sorted = x:to("f64"):flatten():sort(1)
  local m = sorted:numel()
  local want = cdf(sorted)
  local upper = flare.arange(1, m + 1, {dtype = "f64"}) / m
  local off = flare.maximum((upper - want):abs(), (want - (upper - 1 / m)):abs()):max():item()
  assert.is_true(off * math.sqrt(m) < 2.2, off * math.sqrt(m))
end

local function shared(op, x, y) return flare[op](flare.full({x:numel()}, y, {dtype = "f64"}), x) end

describe("the distribution of", function()
  for _, dtype in ipairs {"f32", "f64"} do
    it("rand, randn and their like in " .. dtype, function()
      local function draw(op, seed, options)
        options.dtype = dtype
        return flare[op]({n}, with(seed, options))
      end
      fits(draw("rand", 1, {}), function(x) return x end)
      fits(draw("randn", 2, {mean = 3, std = 2}), function(x) return ((x - 3) / 2):ndtr() end)
      fits(draw("exponential", 3, {rate = 4}), function(x) return -(x * -4):expm1() end)
      fits(draw("cauchy", 4, {median = 1, sigma = 2}), function(x)
        return ((x - 1) / 2):atan() / math.pi + 0.5
      end)
      fits(draw("log_normal", 5, {mean = 0.5, std = 0.7}), function(x)
        return ((x:log() - 0.5) / 0.7):ndtr()
      end)
      for seed, alpha in ipairs {0.05, 0.4, 1, 2.5, 40, 5000} do
        local x = flare.full({n}, alpha, {dtype = dtype}):gamma(generator(seed + 5))
        local exact = flare.tensor({alpha}, {dtype = dtype}):item()
        assert.is_true(x:gt(0):all():item())
        fits(x, function(v) return shared("igamma", v, exact) end)
      end
    end)
  end

  it("counts", function()
    -- each count's share against its probability, by chi-squared over what is not rare
    local function counted(x, probability)
      local counts, chi, bins = {}, 0, 0
      for _, k in ipairs(x:to("i64"):totable()) do counts[k] = (counts[k] or 0) + 1 end
      for k = 0, 3000 do
        local want = n * probability(k)
        if want >= 10 then
          chi, bins = chi + ((counts[k] or 0) - want) ^ 2 / want, bins + 1
        end
      end
      assert.is_true(bins > 1 and chi < bins + 5 * math.sqrt(2 * bins), chi .. " of " .. bins)
    end
    for seed, p in ipairs {0.5, 0.2, 0.9} do
      counted(flare.geometric({n}, with(seed, {p = p})), function(k)
        return k > 0 and p * (1 - p) ^ (k - 1) or 0
      end)
    end
    for seed, rate in ipairs {0.3, 4, 9.9, 10, 30, 700} do
      local x = flare.full({n}, rate, {dtype = "f64"}):poisson(generator(seed))
      counted(x, function(k)
        local log = flare.tensor({k + 1}, {dtype = "f64"}):lgamma():item()
        return math.exp(k * math.log(rate) - rate - log)
      end)
    end
    assert.equal(0, flare.zeros(100):poisson():sum():item())
  end)
end)

describe("gamma", function()
  it("moves its numbers so that their quantiles stay", function()
    local alpha = (flare.rand({400}, generator(1)):to "f64" * 6):exp() * 0.05
    alpha:requires_grad_(true)
    local x = alpha:gamma(generator(2))
    x:sum():backward()
    local h = alpha:detach() * 1e-6
    local there = flare.igamma(alpha:detach() + h, x:detach() + alpha.grad * h)
    local back = flare.igamma(alpha:detach() - h, x:detach() - alpha.grad * h)
    local drift = (there - back):abs():max():item()
    assert.is_true(drift < 1e-9, drift)
    assert.is_true((alpha.grad - 1):abs():max():item() > 0.1)
  end)

  it("has a second derivative and refuses the third by name", function()
    -- of E[x^2] = alpha (alpha + 1): 2 in the mean over many numbers
    local alpha = flare.full({4000}, 3, {dtype = "f64", requires_grad = true})
    local y = alpha:gamma(generator(3)):square():mean() * 4000
    local first = flare.grad(y, {alpha}, {create_graph = true})
    assert.is_true(math.abs(first:mean():item() - 7) < 0.2, first:mean():item())
    local second = flare.grad(first:sum(), {alpha}, {create_graph = true})
    assert.is_true(math.abs(second:mean():item() - 2) < 0.1, second:mean():item())
    local ok, why = pcall(flare.grad, second:sum(), {alpha})
    assert.is_false(ok)
    assert.match("third derivative by a is not available", why)
  end)
end)

describe("filling in place", function()
  local function same(a, b) assert.same(a:totable(), b:totable()) end

  it("gives the numbers of the rows, to views as well", function()
    local x = flare.zeros(6, 5)
    for fill, row in pairs {
      uniform_ = function(g) return flare.rand({6, 5}, with(g, {low = 2, high = 3})) end,
      normal_ = function(g) return flare.randn({6, 5}, with(g, {mean = 2, std = 3})) end,
      cauchy_ = function(g) return flare.cauchy({6, 5}, with(g, {median = 2, sigma = 3})) end,
      log_normal_ = function(g) return flare.log_normal({6, 5}, with(g, {mean = 2, std = 3})) end,
    } do
      assert.is_true(rawequal(x, x[fill](x, 2, 3, generator(7))), fill)
      same(x, row(7))
      local wide = flare.zeros(6, 10)
      local part = wide[{{}, {1, 10, 2}}]
      part[fill](part, 2, 3, generator(7))
      same(part, x)
      assert.equal(0, wide[{{}, {2, 10, 2}}]:count_nonzero():item())
    end
    same(x:exponential_(3, generator(1)), flare.exponential({6, 5}, with(1, {rate = 3})))
    same(x:exponential_(generator(1)), flare.exponential({6, 5}, generator(1)))
    same(x:geometric_(0.3, generator(1)),
      flare.geometric({6, 5}, with(1, {p = 0.3, dtype = "f32"})))
    same(x:random_(3, 9, generator(1)), flare.randint(3, 9, {6, 5}, with(1, {dtype = "f32"})))
    same(x:bernoulli_(0.3, generator(1)), flare.full({6, 5}, 0.3):bernoulli(generator(1)))
    local p = flare.rand({5}, generator(2))
    same(x:bernoulli_(p, generator(1)), p:expand(6, 5):bernoulli(generator(1)))
    same(p:clone():bernoulli_(generator(1)), p:bernoulli(generator(1)))
  end)

  it("keeps dtypes and their ranges", function()
    for dtype, most in pairs {f32 = 2 ^ 24, f16 = 2048, bf16 = 256, f64 = 2 ^ 53, u8 = 256,
        i8 = 128, i16 = 32768, i32 = 2 ^ 31, i64 = 2 ^ 63} do
      local x = flare.zeros({4000}, {dtype = dtype}):random_(generator(1)):to "f64"
      local high = x:max():item()
      assert.is_true(x:min():item() >= 0 and high <= most and high > 0.95 * most, dtype)
    end
    local bits = flare.zeros({500}, {dtype = "bool"}):random_(generator(1))
    assert.is_true(bits:sum():item() > 200 and bits:sum():item() < 300)
    assert.equal("i32", flare.zeros({3}, {dtype = "i32"}):geometric_(0.5).dtype)
    assert.equal("u8", flare.zeros({3}, {dtype = "u8"}):bernoulli_(0.5).dtype)
  end)

  it("refuses what it cannot be, by its own name", function()
    local refused = expect.refused
    local x = flare.zeros(3)
    refused("exponential_: expected a number, got string", x.exponential_, x, "2")
    refused("exponential_ takes 1 number and a table of options", x.exponential_, x, 1, 2)
    refused("exponential: rate must be above 0, got -1", x.exponential_, x, -1)
    refused("geometric: p must be above 0 and at most 1, got nan", x.geometric_, x)
    refused("normal_: expected floats, got i64", x:to("i64").normal_, x:to "i64")
    refused("bernoulli: 2 is not a probability", x.bernoulli_, x, 2)
    refused("randint: low must be below high", x.random_, x, 3, 3)
    refused("unknown option 'gen'", x.normal_, x, 0, 1, {gen = 1})
    refused("generator: expected one made by", x.cauchy_, x, 0, 1, {generator = 3})
  end)
end)

describe("a generator", function()
  it("goes on where it was saved, for every row that draws", function()
    local g = flare.generator(11)
    local draws = {
      function() return flare.rand({7}, {generator = g}) end,
      function() return flare.randn({7}, {generator = g, dtype = "f64"}) end,
      function() return flare.exponential({7}, {generator = g}) end,
      function() return flare.full({7}, 0.7):gamma {generator = g} end,
      function() return flare.full({7}, 30):poisson {generator = g} end,
      function() return flare.geometric({7}, {p = 0.1, generator = g}) end,
      function() return flare.randperm(7, {generator = g}) end,
      function() return flare.zeros(7):cauchy_(0, 1, {generator = g}) end,
      function() return flare.dropout(flare.ones(7), {p = 0.5, generator = g}) end,
    }
    for k, draw in ipairs(draws) do
      local path = os.tmpname()
      local seed, offset = g:state()
      assert(flare.save(path, {seed = seed, offset = offset}))
      local first, second = draw():totable(), draw():totable()
      local _, now = g:state()
      assert.is_true(now > offset, k)
      local state = assert(flare.load(path))
      g:set_state(state.seed, state.offset)
      assert.same(first, draw():totable())
      assert.same(second, draw():totable())
      os.remove(path)
    end
  end)
end)
