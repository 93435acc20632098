--- Values of an image between its elements.
local core = require "flare.core"

local M = {}

-- Mirrors coordinates at both borders until they are within.
local function reflect(at, low, high)
  local range = high - low
  if range <= 0 then return at * 0 end
  local away = (at - low):remainder(2 * range)
  return low + core.where(away:gt(range), 2 * range - away, away)
end

-- The elements of x (batch, channels, sizes ...) at whole coordinates, a list of (batch, points).
local function pick(x, at, padding, borders)
  local index, valid
  local rank = #at
  for d = 1, rank do
    local size, i = x.shape[d + 2], at[d]
    if padding == "zeros" then
      local inside = i:ge(0):logical_and(i:lt(size))
      valid = valid and valid:logical_and(inside) or inside
    elseif padding == "reflection" then
      i = reflect(i, borders[d][1], borders[d][2])
    end
    i = i:clamp(0, math.max(size - 1, 0)):to("i64")
    index = index and index * size + i or i
  end
  local flat = x:flatten(3)
  local batch, channels, points = x.shape[1], x.shape[2], index.shape[2]
  index = index:unsqueeze(2):expand(batch, channels, points)
  local values = flat:gather(3, index, {base = 0})
  return valid and values * valid:unsqueeze(2):to(x.dtype) or values
end

local weights = {
  linear = {first = 0, function(r) return 1 - r end, function(r) return r end},
  cubic = {first = -1},
}
for k = -1, 2 do -- Keys' kernel at the distances of four neighbours, with a = -0.75
  weights.cubic[k + 2] = function(r)
    local t = (r - k):abs()
    if k == 0 or k == 1 then return (1.25 * t - 2.25) * t * t + 1 end
    return ((-0.75 * t + 3.75) * t - 6) * t + 3
  end
end

-- Sums over all combinations of neighbours.
local function blend(x, at, padding, borders, kind)
  local taps, floors, rank = weights[kind], {}, #at
  for d = 1, rank do floors[d] = at[d]:floor() end
  local sum
  local function visit(d, whole, weight)
    if d > rank then
      local part = pick(x, whole, padding, borders) * weight:unsqueeze(2)
      sum = sum and sum + part or part
      return
    end
    for k, f in ipairs(taps) do
      whole[d] = floors[d] + (taps.first + k - 1)
      local w = f(at[d] - floors[d])
      visit(d + 1, whole, weight and weight * w or w)
    end
  end
  visit(1, {})
  return sum
end

--- Linear interpolation.
-- @param x (batch, channels, sizes ...)
-- @param at a list of coordinates, one (batch, points) for each spatial dim
-- @return (batch, channels, points)
function M.linear(x, at, padding, borders)
  return blend(x, at, padding, borders, "linear")
end

local modes = {bilinear = "linear", linear = "linear", bicubic = "cubic", cubic = "cubic",
               nearest = "nearest"}

function M.GridSample(n, x, grid)
  local padding = n:choice("padding_mode", "zeros",
                           {zeros = true, border = true, reflection = true})
  return x:grid_sample(grid, {mode = modes[n:choice("mode", "linear", modes)], padding = padding,
                              align_corners = n.attr.align_corners == 1})
end

function M.AffineGrid(n, theta, size)
  local sizes = table.move(n:list(size), 3, theta.shape[2] + 2, 1, {})
  local rank, grid = #sizes, {}
  for d = rank, 1, -1 do
    local count = sizes[d]
    local half = n.attr.align_corners == 1 and 1 or 1 - 1 / count
    local line = core.linspace(-half, half, count, {device = theta.device}):to(theta.dtype)
    if count == 1 then line = line * 0 - (n.attr.align_corners == 1 and 1 or 0) end
    local shape = {}
    for k = 1, rank do shape[k] = k == d and count or 1 end
    grid[#grid + 1] = line:reshape(shape):expand(sizes)
  end
  grid[#grid + 1] = core.ones_like(grid[1])
  local points = core.stack(grid, rank + 1):reshape(-1, rank + 1)
  local y = points:matmul(theta:transpose(2, 3))
  return y:reshape(theta.shape[1], table.unpack(table.move({rank}, 1, 1, rank + 1,
                                                          table.move(sizes, 1, rank, 1, {}))))
end

return M
