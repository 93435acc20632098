--- References of the optimizer steps, as their papers and PyTorch's documentation write them.
local A = require "spec.support.array"
local reduce = require "spec.support.reference.reduce"

local R = {}

local function number(v) return A.is(v) and v[1] or v end

-- Runs rule(element's values, one of each group) over everything; what it changes is written.
local function stepping(groups, rule)
  return function(a)
    local n = type(groups) == "function" and groups(a) or groups
    local count, new = #a.xs // n, {}
    for i, x in ipairs(a.xs) do new[i] = A.reshape(x, x.shape) end
    for i = 1, count do
      for k = 1, A.count(a.xs[i].shape) do
        local v = {}
        for g = 1, n do v[g] = a.xs[(g - 1) * count + i][k] end
        rule(v, a, number(a.lr or a.weight or a.scale or 0))
        for g = 1, n do new[(g - 1) * count + i][k] = v[g] end
      end
    end
    return {written = {xs = new}}
  end
end

R.sgd_step = stepping(function(a) return 2 + (a.moments or 1) end, function(v, a, lr)
  local g = (a.maximize and -v[2] or v[2]) + (a.weight_decay or 0) * v[1]
  local momentum = a.momentum or 0
  if momentum ~= 0 then
    v[3] = a.first and g or momentum * v[3] + (1 - (a.dampening or 0)) * g
    g = a.nesterov and g + momentum * v[3] or v[3]
  end
  v[1] = v[1] - lr * g
end)

R.adam_step = stepping(function(a) return a.amsgrad and 5 or 4 end, function(v, a, lr)
  local b1, b2, t = a.beta1 or 0.9, a.beta2 or 0.999, number(a.step)
  local g, decay = a.maximize and -v[2] or v[2], a.weight_decay or 0
  if a.decoupled then v[1] = v[1] * (1 - lr * decay) else g = g + decay * v[1] end
  v[3] = b1 * v[3] + (1 - b1) * g
  v[4] = b2 * v[4] + (1 - b2) * g * g
  local second = v[4]
  if a.amsgrad then
    v[5] = math.max(v[5], v[4])
    second = v[5]
  end
  local mean, deviation = v[3] / (1 - b1 ^ t), math.sqrt(second / (1 - b2 ^ t))
  v[1] = v[1] - lr * mean / (deviation + (a.eps or 1e-8))
end)

-- The number of the code whose number is nearest to x, the lower of two.
local function nearest(map, from, x)
  local best = 0
  for k = 1, 255 do
    if math.abs(map[from + k + 1] - x) < math.abs(map[from + best + 1] - x) then best = k end
  end
  return best
end

function R.adam8_step(a)
  local n, block = A.count(a.p.shape), a.block or 256
  local p, new = A.reshape(a.p, a.p.shape), {{}, {}}
  local codes, scales = {a.mean, a.square}, {a.mean_scales, a.square_scales}
  local b1, b2, t, lr = a.beta1 or 0.9, a.beta2 or 0.999, number(a.step), number(a.lr)
  local decay = a.weight_decay or 0
  for k = 1, n do
    local v = {}
    for s = 1, 2 do
      v[s] = a.maps[256 * (s - 1) + codes[s][k] + 1] * scales[s][(k - 1) // block + 1]
    end
    local g = a.g[k]
    if a.decoupled then p[k] = p[k] * (1 - lr * decay) else g = g + decay * p[k] end
    new[1][k], new[2][k] = b1 * v[1] + (1 - b1) * g, b2 * v[2] + (1 - b2) * g * g
    p[k] = p[k] - lr * (new[1][k] / (1 - b1 ^ t))
      / (math.sqrt(new[2][k] / (1 - b2 ^ t)) + (a.eps or 1e-8))
  end
  local out = {}
  for s = 1, 2 do
    local most, code = {}, {}
    for k = 1, n do
      local b = (k - 1) // block + 1
      most[b] = math.max(most[b] or 0, math.abs(new[s][k]))
    end
    for k = 1, n do
      code[k] = nearest(a.maps, 256 * (s - 1), new[s][k] / most[(k - 1) // block + 1])
    end
    out[2 * s - 1], out[2 * s] = A.new({n}, code, "u8"), A.new({#most}, most)
  end
  return {written = {p = p, mean = out[1], mean_scales = out[2], square = out[3],
                     square_scales = out[4]}}
end

R.rmsprop_step = stepping(function(a)
  return 3 + ((a.momentum or 0) ~= 0 and 1 or 0) + (a.centered and 1 or 0)
end, function(v, a, lr)
  local alpha, momentum = a.alpha or 0.99, a.momentum or 0
  local g = v[2] + (a.weight_decay or 0) * v[1]
  v[3] = alpha * v[3] + (1 - alpha) * g * g
  local second, velocity = v[3], 4
  if a.centered then
    v[4] = alpha * v[4] + (1 - alpha) * g
    second, velocity = second - v[4] ^ 2, 5
  end
  local by = g / (math.sqrt(math.max(second, 0)) + (a.eps or 1e-8))
  if momentum ~= 0 then
    v[velocity] = momentum * v[velocity] + by
    by = v[velocity]
  end
  v[1] = v[1] - lr * by
end)

R.adagrad_step = stepping(3, function(v, a, lr)
  local g = v[2] + (a.weight_decay or 0) * v[1]
  v[3] = v[3] + g * g
  v[1] = v[1] - lr * g / (math.sqrt(v[3]) + (a.eps or 1e-10))
end)

R.lion_step = stepping(3, function(v, a, lr)
  local b1, b2 = a.beta1 or 0.9, a.beta2 or 0.99
  local u = b1 * v[3] + (1 - b1) * v[2]
  v[1] = v[1] * (1 - lr * (a.weight_decay or 0)) - lr * (u > 0 and 1 or u < 0 and -1 or 0)
  v[3] = b2 * v[3] + (1 - b2) * v[2]
end)

R.lerp_step = stepping(2, function(v, _, weight) v[1] = v[1] + weight * (v[2] - v[1]) end)
R.assign_step = stepping(2, function(v) v[1] = v[2] end)
R.scale_step = stepping(1, function(v, _, scale) v[1] = v[1] * scale end)

function R.global_norm(a)
  local all = {shape = {0}}
  for _, x in ipairs(a.xs) do
    table.move(x, 1, A.count(x.shape), #all + 1, all)
  end
  all.shape[1] = #all
  return reduce.norm{x = all, p = a.p}
end

return R
