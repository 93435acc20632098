--- A line search for the strong Wolfe conditions, sufficient decrease and small slope: bracketing,
-- then zooming in by cubic interpolation (Nocedal and Wright, Numerical Optimization, algorithms
-- 3.5 and 3.6).

local DECREASE, CURVATURE, MOST = 1e-4, 0.9, 25

-- The minimum of the cubic through two points with values and slopes, kept inside [low, high].
local function cubic(a, fa, ga, b, fb, gb, low, high)
  low, high = low or math.min(a, b), high or math.max(a, b)
  local d1 = ga + gb - 3 * (fa - fb) / (a - b)
  local square = d1 * d1 - ga * gb
  if square < 0 then return (low + high) / 2 end
  local d2 = math.sqrt(square)
  local at
  if a <= b then
    at = b - (b - a) * ((gb + d2 - d1) / (gb - ga + 2 * d2))
  else
    at = a - (a - b) * ((ga + d2 - d1) / (ga - gb + 2 * d2))
  end
  if at ~= at then return (low + high) / 2 end
  return math.min(math.max(at, low), high)
end

--- @param try function(t) -> value, slope, gradient at step t
-- @param t first guess
-- @param value, slope, gradient at step 0
-- @param tolerance the search ends when the step changes by less
-- @return t, value, gradient of the step taken
return function(try, t, value, slope, gradient, tolerance)
  local before = {t = 0, f = value, d = slope, g = gradient}
  local low, high
  local n = 0
  local function at(step)
    local f, d, g = try(step)
    n = n + 1
    return {t = step, f = f, d = d, g = g}
  end
  local function enough(p)
    return p.f <= value + DECREASE * p.t * slope
  end
  local now = at(t)
  while n < MOST do
    if not enough(now) or (n > 1 and now.f >= before.f) or now.f ~= now.f then
      low, high = before, now
      break
    end
    if math.abs(now.d) <= -CURVATURE * slope then return now.t, now.f, now.g end
    if now.d >= 0 then
      low, high = now, before
      break
    end
    local least = now.t + 0.01 * (now.t - before.t)
    local guess = cubic(before.t, before.f, before.d, now.t, now.f, now.d, least, now.t * 10)
    before, now = now, at(guess)
  end
  if not low then return now.t, now.f, now.g end
  if low.f > high.f then low, high = high, low end
  while n < MOST and math.abs(high.t - low.t) * math.abs(low.d) > tolerance do
    local guess
    if high.f ~= high.f or high.f == math.huge then
      guess = (low.t + high.t) / 2
    else
      guess = cubic(low.t, low.f, low.d, high.t, high.f, high.d)
      -- a guess at the edge would not shrink the bracket
      local width = math.abs(high.t - low.t)
      local left = math.min(low.t, high.t)
      guess = math.min(math.max(guess, left + 0.1 * width), left + 0.9 * width)
    end
    local p = at(guess)
    if not enough(p) or p.f >= low.f or p.f ~= p.f then
      high = p
    else
      if math.abs(p.d) <= -CURVATURE * slope then return p.t, p.f, p.g end
      if p.d * (high.t - low.t) >= 0 then high = low end
      low = p
    end
  end
  return low.t, low.f, low.g
end
