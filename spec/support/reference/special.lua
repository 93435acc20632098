--- Special functions by what defines them: integrals, series far longer than needed, inversion.
-- They take what elementwise.lua has already.
local abs, exp, log, pi, sqrt = math.abs, math.exp, math.log, math.pi, math.sqrt
local inf, nan = math.huge, 0/0

return function(R)
  local M = {}

  -- --- Bessel functions: integrals of periodic functions, which sums over a circle are ---

  local function circle(order, x, f)
    local n, sum = 64 + 2 * math.floor(abs(x) + order), 0
    for k = 0, n - 1 do sum = sum + f(2 * pi * k / n) end
    return sum / n
  end

  local function bessel_j(n, x)
    if x ~= x then return x end
    if abs(x) == inf then return 0.0 end
    return circle(n, x, function(t) return math.cos(n * t - x * math.sin(t)) end)
  end
  function M.bessel_j0(x) return bessel_j(0, x) end
  function M.bessel_j1(x) return bessel_j(1, x) end

  -- Samples have the same values in several dtypes and on several devices.
  local function remembered(f)
    local known = {}
    return function(x)
      if x ~= x then return x end
      known[x] = known[x] or f(x)
      return known[x]
    end
  end

  -- Neumann's series (Abramowitz and Stegun 9.1.88).
  local euler = 0.57721566490153286
  local function of_second_kind(x, f)
    if x == 0 then return -inf end
    if x == inf then return 0.0 end
    return x > 0 and f(log(x / 2) + euler, x // 2 + (x < 30 and 16 or 40)) or nan
  end
  M.bessel_y0 = remembered(function(x)
    return of_second_kind(x, function(l, n)
      local sum = l * bessel_j(0, x)
      for k = 1, n do sum = sum - 2 * (-1) ^ k * bessel_j(2 * k, x) / k end
      return 2 / pi * sum
    end)
  end)
  M.bessel_y1 = remembered(function(x)
    return of_second_kind(x, function(l, n)
      local sum = (l - 1) * bessel_j(1, x) - bessel_j(0, x) / x
      for k = 1, n do
        sum = sum - (-1) ^ k * (2 * k + 1) / (k * (k + 1)) * bessel_j(2 * k + 1, x)
      end
      return 2 / pi * sum
    end)
  end)

  local function bessel_ie(n, x)
    if x ~= x then return x end
    if abs(x) == inf then return 0.0 end
    return circle(n, x, function(t) return exp(x * math.cos(t) - abs(x)) * math.cos(n * t) end)
  end
  function M.i0e(x) return bessel_ie(0, x) end
  function M.i1e(x) return bessel_ie(1, x) end
  function M.i0(x) return abs(x) == inf and inf or bessel_ie(0, x) * exp(abs(x)) end
  function M.i1(x) return abs(x) == inf and x or bessel_ie(1, x) * exp(abs(x)) end

  -- --- the normal distribution ---

  local function erfcx(x)
    if x > 2.5 then return R._erfc_far(x) * exp(x * x) end
    return exp(x * x) * (1 - R._erf(x))
  end
  function M.erfcx(x)
    if x > 20 then -- by its asymptotic series: exp(x^2) has no place in a double
      local sum, term = 1, 1
      for k = 1, 12 do
        term = -term * (2 * k - 1) / (2 * x * x)
        sum = sum + term
      end
      return sum / (x * sqrt(pi))
    end
    return erfcx(x)
  end
  local function erfc(x) return x > 2.5 and R._erfc_far(x) or 1 - R._erf(x) end
  function M.ndtr(x) return 0.5 * erfc(-x / sqrt(2)) end
  function M.log_ndtr(x)
    if x > -2 then return R._log1p(-0.5 * erfc(x / sqrt(2))) end
    return log(0.5 * M.erfcx(-x / sqrt(2))) - x * x / 2
  end
  function M.ndtri(p)
    if p == 0 then return -inf elseif p == 1 then return inf end
    if not (p > 0 and p < 1) then return nan end
    if p > 0.5 then return -M.ndtri(1 - p) end
    local low, high = -40, 0
    for _ = 1, 14 do
      local y = (low + high) / 2
      if M.log_ndtr(y) < log(p) then low = y else high = y end
    end
    local y = (low + high) / 2
    for _ = 1, 5 do
      y = y - (M.log_ndtr(y) - log(p)) * M.erfcx(-y / sqrt(2)) / sqrt(2 / pi)
    end
    return y
  end
  function M.entr(x) return x > 0 and -x * log(x) or x == 0 and 0 or x < 0 and -inf or x end

  -- --- gamma functions ---

  function M.polygamma(x, n)
    if n == 0 then return R._digamma(x) end
    local sum, factor, s = 0, -1, n + 1
    for k = 1, n do factor = -factor * k end
    while x < 60 do
      sum = sum + x ^ -s
      x = x + 1
    end
    sum = sum + x ^ -n / n + x ^ -s / 2 + s * x ^ (-s - 1) / 12
    sum = sum - s * (s + 1) * (s + 2) * x ^ (-s - 3) / 720
    return factor * (sum + s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * x ^ (-s - 5) / 30240)
  end

  function M.zeta(s, q)
    if s == 1 then return inf end
    if s < 1 or q <= 0 and q ~= math.floor(q) and s ~= math.floor(s) then return nan end
    if q <= 0 and q == math.floor(q) then return inf end
    local sum, w = 0, q
    while w < 200 do
      sum = sum + w ^ -s
      w = w + 1
    end
    return sum + w ^ (1 - s) / (s - 1) + w ^ -s / 2 + s * w ^ (-s - 1) / 12
      - s * (s + 1) * (s + 2) * w ^ (-s - 3) / 720
  end

  -- The integral of f from 0 to x, which may be steep at the ends (Takahasi and Mori 1974).
  local function integral(x, f)
    local sum, step = 0, 1 / 32
    for k = -200, 200 do
      local u = k * step
      local e = exp(-pi * (exp(u) - exp(-u)) / 2)
      local s = 1 / (1 + e)
      if s > 0 and e > 0 then
        sum = sum + f(x * s) * s * (e / (1 + e)) * pi * (exp(u) + exp(-u)) / 2
      end
    end
    return sum * step * x
  end

  -- of t^(a - 1) exp(-t) g(t), by its value at x
  local function moment(a, x, g)
    return integral(x, function(t) return exp((a - 1) * log(t / x) + x - t) * g(t) end)
  end

  -- the same for a g whose mean is 0: from the other end where that is nearer
  local function balanced(a, x, g)
    if x < a + 1 then return moment(a, x, g) end
    return -integral(120, function(t)
      return exp((a - 1) * log(1 + t / x) - t) * g(x + t)
    end)
  end

  function M.igamma(a, x)
    local front = exp((a - 1) * log(x) - x - R._lgamma(a))
    return front * moment(a, x, function() return 1 end)
  end
  function M.igammac(a, x) return 1 - M.igamma(a, x) end
  function M.gamma_da(a, x)
    local d = M.polygamma(a, 0)
    return -balanced(a, x, function(t) return log(t) - d end)
  end
  function M.gamma_daa(a, x)
    local d, d1 = M.polygamma(a, 0), M.polygamma(a, 1)
    return -balanced(a, x, function(t) return (log(t) - d) ^ 2 - d1 end)
      - M.gamma_da(a, x) * (log(x) - d)
  end
  return M
end
