--- References of the rows of mathematics and statistics that are composed of others.
local A = require "spec.support.array"
local reduce = require "spec.support.reference.reduce"

local R = {}
local inf = math.huge

function R.rad2deg(a) return A.map(math.deg, a.x) end
function R.deg2rad(a) return A.map(math.rad, a.x) end

function R.logit(a)
  return A.map(function(x)
    if a.eps then x = math.max(a.eps, math.min(1 - a.eps, x)) end
    return math.log(x / (1 - x))
  end, a.x)
end

function R.nan_to_num(a)
  local top = 0x1.fffffffffffffp1023
  return A.map(function(x)
    if x ~= x then return a.nan or 0.0 end
    return x == inf and (a.posinf or top) or x == -inf and (a.neginf or -top) or x
  end, a.x)
end

function R.isclose(a)
  local rtol, atol = a.rtol or 1e-5, a.atol or 1e-8
  return A.map(function(x, y)
    if x == y or a.equal_nan and x ~= x and y ~= y then return true end
    local off = math.abs(x - y)
    return off < inf and off <= atol + rtol * math.abs(y)
  end, a.a, a.b)
end

function R.allclose(a)
  local list, all = R.isclose(a), true
  for k = 1, A.count(list.shape) do all = all and list[k] end
  return A.new({}, {all}, "bool")
end

-- --- over dims ---

local function known(f)
  return function(a)
    local shape, kept, groups = A.groups(a.x, A.dim_set(a.dims, #a.x.shape))
    local out = {shape = a.keepdim and kept or shape}
    for g, list in ipairs(groups) do
      local values = {}
      for _, at in ipairs(list) do
        if a.x[at] == a.x[at] then values[#values + 1] = a.x[at] end
      end
      out[g] = f(values)
    end
    return out
  end
end

R.nansum = known(reduce._sum)
R.nanmean = known(function(values) return reduce._sum(values) / #values end)
function R.var_mean(a) return {reduce.var(a), reduce.mean(a)} end
function R.std_mean(a) return {reduce.std(a), reduce.mean(a)} end

function R.dist(a)
  return reduce.norm {x = A.map(function(x, y) return x - y end, a.a, a.b), p = a.p}
end

function R.cov(a)
  local x, one = a.x, #a.x.shape == 1
  local rows, n = one and 1 or x.shape[1], x.shape[#x.shape]
  local out = {shape = one and {} or {rows, rows}}
  local means = {}
  for i = 1, rows do
    means[i] = reduce._sum({table.unpack(x, (i - 1) * n + 1, i * n)}) / n
  end
  for i = 1, rows do
    for j = 1, rows do
      local s = 0
      for k = 1, n do
        s = s + (x[(i - 1) * n + k] - means[i]) * (x[(j - 1) * n + k] - means[j])
      end
      out[(i - 1) * rows + j] = s / math.max(n - (a.correction or 1), 0)
    end
  end
  return out
end

-- --- along one dim ---

-- f(values) gives the new values of each run.
local function runs(x, dim, size, f)
  local shape = A.copy_list(x.shape)
  shape[dim] = size
  local out = {shape = shape}
  local places = {}
  A.each_run({shape = shape}, dim, function(list, g) places[g] = list end)
  A.each_run(x, dim, function(list, g)
    local values = {}
    for k, at in ipairs(list) do values[k] = x[at] end
    for k, v in ipairs(f(values, list)) do out[places[g][k]] = v end
  end)
  return out
end

function R.diff(a)
  local dim, n = A.dim(a.dim or -1, #a.x.shape), a.n or 1
  return runs(a.x, dim, math.max(0, a.x.shape[dim] - n), function(v)
    for _ = 1, n do
      local w = {}
      for k = 1, #v - 1 do w[k] = A.convert(v[k + 1] - v[k], a.x.dtype) end
      v = w
    end
    return v
  end)
end

function R.trapezoid(a)
  local y = a.y
  local dim = A.dim(a.dim or -1, #y.shape)
  local out = runs(y, dim, 1, function(v, list)
    local s = 0
    for k = 2, #v do
      local step = a.dx or 1
      if a.x and #a.x.shape == 1 then step = a.x[k] - a.x[k - 1]
      elseif a.x then step = a.x[list[k]] - a.x[list[k - 1]] end
      s = s + step * (v[k] + v[k - 1]) / 2
    end
    return {s}
  end)
  table.remove(out.shape, dim)
  return out
end

function R.argsort(a) return reduce.sort(a)[2] end

function R.msort(a) return reduce.sort({x = a.x, dim = 1})[1] end

-- --- products ---

local function added(product)
  return function(a)
    local p, beta = product(a), a.beta or 1
    return A.map(function(y, x)
      local scaled = (a.alpha or 1) * y
      return beta == 0 and scaled or beta * x + scaled
    end, p, a.x)
  end
end

R.addmv = added(reduce.matmul)
R.baddbmm = added(reduce.matmul)
R.addr = added(function(a) return reduce.outer {a = a.a, b = a.b} end)
R.addbmm = added(function(a)
  local p = reduce.matmul(a)
  return reduce.sum {x = p, dims = {1}}
end)

-- --- running, sorted, counted ---

function R.cumprod(a)
  local out = {shape = a.x.shape}
  A.each_run(a.x, A.dim(a.dim, #a.x.shape), function(list)
    local p = math.type(a.x[1]) == "integer" and 1 or 1.0
    for _, at in ipairs(list) do
      p = p * a.x[at]
      out[at] = p
    end
  end)
  return out
end

local function extremes(sign)
  return function(a)
    local values, places = {shape = a.x.shape}, {shape = a.x.shape}
    A.each_run(a.x, A.dim(a.dim, #a.x.shape), function(list)
      local best, at
      for k, e in ipairs(list) do
        local v = a.x[e]
        if k == 1 or v ~= v or sign * v >= sign * best then best, at = v, k end
        values[e], places[e] = best, at
      end
    end)
    return {values, places}
  end
end
R.cummax, R.cummin = extremes(1), extremes(-1)

-- f(sorted values, their places) gives a value and a place for each line.
local function picked(f)
  return function(a)
    local x = a.x
    local nd = #x.shape
    local set = a.dim and {[A.dim(a.dim, nd)] = true} or A.dim_set(nil, nd)
    local shape, kept, groups = A.groups(x, set)
    local values = {shape = a.keepdim and kept or shape}
    local places = {shape = values.shape}
    for g, list in ipairs(groups) do
      local line = {shape = {#list}}
      for k, at in ipairs(list) do line[k] = x[at] end
      local s = reduce.sort {x = line}
      values[g], places[g] = f(s[1], s[2], #list, a)
    end
    return {values, places}
  end
end

local function last_dim(f)
  return function(a)
    return f({x = a.x, k = a.k, dim = a.dim or -1, keepdim = a.keepdim})
  end
end

R.kthvalue = last_dim(picked(function(v, at, _, a) return v[a.k], at[a.k] end))
R.median = picked(function(v, at, n)
  local k = v[n] ~= v[n] and n or (n + 1) // 2
  return v[k], at[k]
end)
R.mode = last_dim(picked(function(v, at, n)
  local best, most, count = 1, 0, 0
  for k = 1, n do
    count = k > 1 and v[k] == v[k - 1] and count + 1 or 1
    if count > most then best, most = k, count end
  end
  return v[best], at[best]
end))
local quantiles = picked(function(v, _, n, a)
  if v[n] ~= v[n] then return v[n], 0 end
  local at = a.q * (n - 1)
  local low = math.floor(at)
  local part, how = at - low, a.interpolation or "linear"
  if how == "lower" then part = 0
  elseif how == "higher" then part = math.ceil(part)
  elseif how == "midpoint" then part = part > 0 and 0.5 or 0
  elseif how == "nearest" then part = part > 0.5 and 1 or 0 end
  local under, over = v[low + 1], v[math.min(low + 2, n)]
  if part == 0 then return under, 0 end
  if part == 1 or under == over then return over, 0 end
  if under == -math.huge then return over == math.huge and 0/0 or under, 0 end
  return under + part * (over - under), 0
end)
function R.quantile(a) return quantiles(a)[1] end

local function before(x, v, w) -- rows of elements, NaN the largest
  for k = 1, #v do
    local p, q = x[v[k]], x[w[k]]
    if p < q or p == p and q ~= q then return true end
    if p ~= q then return false end
  end
  return v.number < w.number
end

local function differ(x, v, w)
  for k = 1, #v do if x[v[k]] ~= x[w[k]] then return true end end
  return false
end

-- Runs of equal elements, or of equal slices along dim; in order first if `sorted`.
function R._distinct(a, sorted)
  local x, shape = a.x, A.copy_list(a.x.shape)
  local d = a.dim and #shape > 0 and A.dim(a.dim, #shape) or nil
  local n, rows = d and shape[d] or A.count(shape), {}
  for k = 1, n do rows[k] = {number = k} end
  A.each(shape, function(index, k) table.insert(rows[d and index[d] or k], k) end)
  if sorted then table.sort(rows, function(v, w) return before(x, v, w) end) end
  local firsts, counts, inverse = {}, {}, {shape = d and {n} or shape}
  for k, row in ipairs(rows) do
    if k == 1 or differ(x, row, rows[k - 1]) then
      firsts[#firsts + 1], counts[#counts + 1] = row, 0
    end
    counts[#counts] = counts[#counts] + 1
    inverse[row.number] = #firsts
  end
  counts.shape = {#counts}
  if not d then shape, d = {n}, 1 end
  local out = A.copy_list(shape)
  out[d] = #firsts
  local place = {}
  local values = A.build(out, function(index)
    local number = index[d]
    place[number] = (place[number] or 0) + 1
    return x[firsts[number][place[number]]]
  end)
  return {values, inverse, counts}
end

function R.unique(a) return R._distinct(a, true) end

function R.searchsorted(a)
  local last = #a.sorted.shape
  local n = a.sorted.shape[last]
  local x = A.is(a.x) and a.x or A.new({}, {a.x})
  local width = x.shape[#x.shape] or 1
  return A.build(x.shape, function(_, k)
    local from = last > 1 and (k - 1) // width * n or 0
    local place = 1
    for i = from + 1, from + n do
      if a.sorted[i] < x[k] or a.right and a.sorted[i] == x[k] then place = place + 1 end
    end
    return place
  end)
end

function R.bucketize(a)
  return R.searchsorted {sorted = a.boundaries, x = a.x, right = a.right}
end

function R.bincount(a)
  local n = a.minlength or 0
  for k = 1, A.count(a.x.shape) do n = math.max(n, a.x[k]) end
  local out = A.zeros({n}, a.weight and a.weight.dtype or "i64")
  for k = 1, A.count(a.x.shape) do
    out[a.x[k]] = out[a.x[k]] + (a.weight and a.weight[k] or 1)
  end
  return out
end

return R
