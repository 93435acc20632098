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

return R
