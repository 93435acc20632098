--- References of the normalisations and the losses.
local A = require "spec.support.array"
local reduce = require "spec.support.reference.reduce"
local sum = reduce._sum

local R = {}

-- --- normalisation: groups of elements that share a mean ---

-- The element numbers of each group, and for each element its channel (for weight and bias).
local function by_rows(x, dims)
  local set = {}
  for d = #x.shape - dims + 1, #x.shape do set[d] = true end
  local shape, _, groups = A.groups(x, set)
  local width = {table.unpack(x.shape, #x.shape - dims + 1)}
  local n = A.count(width)
  return groups, shape, width, function(at) return n == 0 and 1 or (at - 1) % n + 1 end
end

local function channel_of(x)
  local inner = A.count{table.unpack(x.shape, 3)}
  return function(at) return (at - 1) // inner % x.shape[2] + 1 end
end

local function by_channel(x)
  local set = {}
  for d = 1, #x.shape do set[d] = d ~= 2 end
  local shape, _, groups = A.groups(x, set)
  return groups, shape, {x.shape[2]}, channel_of(x)
end

local function by_groups(x, n)
  local inner = A.count{table.unpack(x.shape, 3)}
  local frame = A.reshape(x, {x.shape[1], n, x.shape[2] // n * inner})
  local _, _, groups = A.groups(frame, {[3] = true})
  return groups, {x.shape[1], n}, {x.shape[2]}, channel_of(x)
end

local function statistics(x, groups, shape, eps, centre)
  local mean, rstd = {shape = shape}, {shape = shape}
  local var = {shape = shape}
  for g, list in ipairs(groups) do
    local values, squares = {}, {}
    for k, at in ipairs(list) do values[k] = x[at] end
    local m = centre and sum(values) / #values or 0
    for k, v in ipairs(values) do squares[k] = (v - m) ^ 2 end
    mean[g], var[g] = m, sum(squares) / #squares
    rstd[g] = 1 / math.sqrt(var[g] + eps)
  end
  return mean, rstd, var
end

local function apply(a, x, groups, mean, rstd, channel)
  local y = {shape = x.shape}
  for g, list in ipairs(groups) do
    for _, at in ipairs(list) do
      local v = (x[at] - mean[g]) * rstd[g]
      if a.weight then v = v * a.weight[channel(at)] end
      if a.bias then v = v + a.bias[channel(at)] end
      y[at] = v
    end
  end
  return y
end

-- dx through the group's statistics; sums for weight and bias.
local function backward(a, groups, width, channel, centre, fixed)
  local x, dy = a.x, a.dy
  local dx = {shape = x.shape}
  local dw, db = A.zeros(a.weight and width or {0}), A.zeros(a.weight and width or {0})
  for g, list in ipairs(groups) do
    local mean, rstd = a.mean and a.mean[g] or 0, a.rstd[g]
    local h, hx, n = {}, {}, #list
    for k, at in ipairs(list) do
      local c = channel(at)
      local hat = (x[at] - mean) * rstd
      h[k] = dy[at] * (a.weight and a.weight[c] or 1)
      hx[k] = h[k] * hat
      if a.weight then
        dw[c] = dw[c] + dy[at] * hat
        db[c] = db[c] + dy[at]
      end
    end
    local sh, shx = sum(h), sum(hx)
    for k, at in ipairs(list) do
      local hat = (x[at] - mean) * rstd
      dx[at] = rstd * (fixed and h[k] or h[k] - hat * shx / n - (centre and sh / n or 0))
    end
  end
  return centre == false and {dx, dw} or {dx, dw, db}
end

function R.layer_norm(a)
  local groups, shape, _, channel = by_rows(a.x, a.dims or 1)
  local mean, rstd = statistics(a.x, groups, shape, a.eps or 1e-5, true)
  return {apply(a, a.x, groups, mean, rstd, channel), mean, rstd}
end

function R.rms_norm(a)
  local groups, shape, _, channel = by_rows(a.x, a.dims or 1)
  local mean, rstd = statistics(a.x, groups, shape, a.eps or 1e-5, false)
  return {apply(a, a.x, groups, mean, rstd, channel), rstd}
end

function R.group_norm(a)
  local groups, shape, _, channel = by_groups(a.x, a.groups)
  local mean, rstd = statistics(a.x, groups, shape, a.eps or 1e-5, true)
  return {apply(a, a.x, groups, mean, rstd, channel), mean, rstd}
end

function R.batch_norm(a)
  local groups, shape, _, channel = by_channel(a.x)
  if a.training == false then
    local rstd = A.map(function(v) return 1 / math.sqrt(v + (a.eps or 1e-5)) end, a.running_var)
    return {apply(a, a.x, groups, a.running_mean, rstd, channel), a.running_mean, rstd}
  end
  local mean, rstd, var = statistics(a.x, groups, shape, a.eps or 1e-5, true)
  local out = {apply(a, a.x, groups, mean, rstd, channel), mean, rstd}
  local by, n = a.momentum or 0.1, groups[1] and #groups[1] or 0
  if a.running_mean then
    out.written = {
      running_mean = A.map(function(r, m) return n == 0 and r or r + by * (m - r) end,
        a.running_mean, mean),
      running_var = A.map(function(r, v)
        return n == 0 and r or r + by * (v * n / (n - 1) - r)
      end, a.running_var, var),
    }
  end
  return out
end

function R.layer_norm_backward(a)
  local groups, _, width, channel = by_rows(a.x, a.dims or 1)
  return backward(a, groups, width, channel, true)
end

function R.rms_norm_backward(a)
  local groups, _, width, channel = by_rows(a.x, a.dims or 1)
  return backward(a, groups, width, channel, false)
end

function R.group_norm_backward(a)
  local groups, _, width, channel = by_groups(a.x, a.groups)
  return backward(a, groups, width, channel, true)
end

function R.batch_norm_backward(a)
  local groups, _, width, channel = by_channel(a.x)
  return backward(a, groups, width, channel, true, a.training == false)
end

-- --- losses ---

local function reduced(loss, how, divisor)
  how = how or "mean"
  if how == "none" then return loss end
  local s = sum(loss) or 0.0
  if #loss == 0 then s = 0.0 end
  if how == "mean" then s = s / (divisor or #loss) end
  return A.new({}, {s})
end

local function log_probabilities(x, dim)
  return reduce._softmax(x, dim, true)
end

-- For each sample (a run along the classes) f(list of element numbers, sample).
local function each_sample(x, f)
  local dim = #x.shape > 1 and 2 or 1
  A.each_run(x, dim, f)
end

local function samples_shape(x)
  local shape = A.copy_list(x.shape)
  table.remove(shape, #shape > 1 and 2 or 1)
  return shape
end

local function weight_of(a, c) return a.weight and a.weight[c] or 1 end

-- Losses before reduction, and what the mean divides by.
local function cross_entropy_terms(a, logp)
  local smooth, loss, total = a.label_smoothing or 0, {shape = samples_shape(a.x)}, 0
  local soft = A.is_float(a.target.dtype)
  local base = a.base or 1
  each_sample(a.x, function(list, n)
    local classes, l = #list, 0.0
    for c, at in ipairs(list) do
      local q
      if soft then q = a.target[at]
      else q = a.target[n] == c - 1 + base and 1 or 0 end
      q = (1 - smooth) * q + smooth / classes
      if q ~= 0 then l = l - weight_of(a, c) * q * logp[at] end
    end
    if soft then total = total + 1
    elseif a.target[n] == a.ignore_index then l = 0.0
    else total = total + weight_of(a, a.target[n] + 1 - base) end
    loss[n] = l
  end)
  return loss, total
end

function R.cross_entropy(a)
  local logp = log_probabilities(a.x, #a.x.shape > 1 and 2 or 1)
  local loss, total = cross_entropy_terms(a, logp)
  local lse = {shape = samples_shape(a.x)}
  each_sample(a.x, function(list, n)
    local top = list[1]
    for _, at in ipairs(list) do if a.x[at] > a.x[top] then top = at end end
    lse[n] = a.x[top] - logp[top]
  end)
  return {reduced(loss, a.reduction, total), lse}
end

-- d loss / dx = (softmax(x) sum(weights) - weights), each sample by what flows back.
function R.cross_entropy_backward(a)
  local dx, smooth = {shape = a.x.shape}, a.label_smoothing or 0
  local soft, base = A.is_float(a.target.dtype), a.base or 1
  each_sample(a.x, function(list, n)
    local q, all = {}, 0
    for c, at in ipairs(list) do
      local t
      if soft then t = a.target[at]
      else t = a.target[n] == c - 1 + base and 1 or 0 end
      q[c] = weight_of(a, c) * ((1 - smooth) * t + smooth / #list)
      all = all + q[c]
    end
    local dy = #a.dy.shape == 0 and a.dy[1] or a.dy[n]
    if a.reduction == nil or a.reduction == "mean" then dy = dy / a.total[1] end
    if not soft and a.target[n] == a.ignore_index then dy = nil end
    for c, at in ipairs(list) do
      dx[at] = dy and dy * (math.exp(a.x[at] - a.lse[n]) * all - q[c]) or 0.0
    end
  end)
  return dx
end

function R.cross_entropy_total(a)
  local total, base = 0.0, a.base or 1
  if A.is_float(a.target.dtype) then
    local shape = a.target.shape
    total = A.count(shape) / shape[#shape > 1 and 2 or 1]
  else
    for n = 1, A.count(a.target.shape) do
      local c = a.target[n]
      if c ~= a.ignore_index then total = total + weight_of(a, c + 1 - base) end
    end
  end
  return {shape = {}, total}
end

function R.nll_loss(a)
  local loss, total = {shape = samples_shape(a.x)}, 0
  each_sample(a.x, function(list, n)
    local t = a.target[n]
    loss[n] = 0.0
    if t ~= a.ignore_index then
      loss[n] = -weight_of(a, t) * a.x[list[t]]
      total = total + weight_of(a, t)
    end
  end)
  return reduced(loss, a.reduction, total)
end

local function pairwise(f)
  return function(a)
    return reduced(A.map(function(x, t) return f(x, t, a) end, a.x, a.target), a.reduction)
  end
end

R.mse_loss = pairwise(function(x, t) return (x - t) ^ 2 end)
R.l1_loss = pairwise(function(x, t) return math.abs(x - t) end)
R.smooth_l1_loss = pairwise(function(x, t, a)
  local beta, d = a.beta or 1, math.abs(x - t)
  return d < beta and d * d / (2 * beta) or d - beta / 2
end)
R.huber_loss = pairwise(function(x, t, a)
  local delta, d = a.delta or 1, math.abs(x - t)
  return d < delta and d * d / 2 or delta * (d - delta / 2)
end)

local function weighted(loss, a)
  if a.weight then loss = A.map(function(l, w) return l * w end, loss, a.weight) end
  return reduced(loss, a.reduction)
end

local function held_log(x) return math.max(-100, math.log(x)) end

function R.bce_input(a) return a.x end

function R.bce_loss(a)
  return weighted(A.map(function(x, t)
    return -(t * held_log(x) + (1 - t) * held_log(1 - x))
  end, a.x, a.target), a)
end

function R.bce_with_logits(a)
  return weighted(A.map(function(x, t, p)
    local away = math.max(-x, 0) + math.log(1 + math.exp(-math.abs(x)))
    return (1 - t) * x + (1 + ((p or 1) - 1) * t) * away
  end, a.x, a.target, a.pos_weight or 1), a)
end

function R.kl_div(a)
  local loss = A.map(function(x, t)
    if a.log_target then return math.exp(t) * (t - x) end
    return (t > 0 and t * math.log(t) or 0) - t * x
  end, a.x, a.target)
  if a.reduction == "batchmean" then
    local s = reduced(loss, "sum")
    s[1] = s[1] / (a.x.shape[1] or 1)
    return s
  end
  return reduced(loss, a.reduction)
end

function R.cosine_similarity(args)
  local shape = A.broadcast(args.a, args.b)
  local a = A.build(shape, function(i) return A.get(args.a, i) end)
  local b = A.build(shape, function(i) return A.get(args.b, i) end)
  local eps = args.eps or 1e-8
  local out_shape, _, groups = A.groups(a, {[A.dim(args.dim or 2, #shape)] = true})
  local out = {shape = out_shape}
  for g, list in ipairs(groups) do
    local ab, aa, bb = 0.0, 0.0, 0.0
    for _, at in ipairs(list) do
      ab, aa, bb = ab + a[at] * b[at], aa + a[at] ^ 2, bb + b[at] ^ 2
    end
    out[g] = ab / (math.max(math.sqrt(aa), eps) * math.max(math.sqrt(bb), eps))
  end
  return out
end

function R.normalize(a)
  local p, eps, out = a.p or 2, a.eps or 1e-12, {shape = a.x.shape}
  A.each_run(a.x, A.dim(a.dim or 2, #a.x.shape), function(list)
    local values = {shape = {#list}}
    for k, at in ipairs(list) do values[k] = a.x[at] end
    local n = math.max(reduce.norm({x = values, p = p})[1], eps)
    for k, at in ipairs(list) do out[at] = values[k] / n end
  end)
  return out
end

return R
