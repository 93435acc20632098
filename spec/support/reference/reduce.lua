--- References of the reductions, sorts and products of matrices.
local A = require "spec.support.array"

local R = {}
local nan, inf = 0/0, math.huge

-- f(list of values) for each group that falls together.
local function reduce(f)
  return function(a)
    local shape, kept, groups = A.groups(a.x, A.dim_set(a.dims, #a.x.shape))
    local out = {shape = a.keepdim and kept or shape, dtype = "f64"}
    for g, list in ipairs(groups) do
      local values = {}
      for k, at in ipairs(list) do values[k] = a.x[at] end
      out[g] = f(values, a)
    end
    return out
  end
end

-- By Kahan, so that long sums are exact enough to compare with; integers wrap.
local function sum(values)
  if math.type(values[1]) == "integer" then
    local s = 0
    for _, v in ipairs(values) do s = s + v end
    return s
  end
  local s, off, rough = 0.0, 0.0, 0.0
  for _, v in ipairs(values) do
    local y = v - off
    local t = s + y
    off = (t - s) - y
    s, rough = t, rough + v
  end
  return s == s and s or rough -- infinite, or NaN
end
R._sum = sum

local function mean(values)
  return sum(values) / #values
end

local function largest(values, sign)
  local best, at
  for k, v in ipairs(values) do
    if v ~= v then return v, k end
    if not best or sign * v > sign * best then best, at = v, k end
  end
  return best, at
end

R.sum = reduce(sum)
R.mean = reduce(mean)
R.prod = reduce(function(values)
  local p = math.type(values[1]) == "integer" and 1 or 1.0
  for _, v in ipairs(values) do p = p * v end
  return p
end)
R.amax = reduce(function(values) return (largest(values, 1)) end)
R.amin = reduce(function(values) return (largest(values, -1)) end)
R.any = reduce(function(values)
  for _, v in ipairs(values) do if v ~= 0 then return 1 end end
  return 0
end)
R.all = reduce(function(values)
  for _, v in ipairs(values) do if v == 0 then return 0 end end
  return 1
end)
R.count_nonzero = reduce(function(values)
  local n = 0
  for _, v in ipairs(values) do if v ~= 0 then n = n + 1 end end
  return n
end)

local function variance(values, a)
  local m, squares = mean(values), {}
  for k, v in ipairs(values) do squares[k] = (v - m) ^ 2 end
  return sum(squares) / math.max(0, #values - (a.correction or 1))
end
R.var = reduce(variance)
R.std = reduce(function(values, a) return math.sqrt(variance(values, a)) end)

R.logsumexp = reduce(function(values)
  if #values == 0 then return -inf end
  local top, terms = largest(values, 1), {}
  if top == inf or top == -inf or top ~= top then return top end
  for k, v in ipairs(values) do terms[k] = math.exp(v - top) end
  return top + math.log(sum(terms))
end)

R.norm = reduce(function(values, a)
  local p, terms = a.p or 2, {}
  for k, v in ipairs(values) do terms[k] = math.abs(v) end
  if p == inf then return #terms > 0 and largest(terms, 1) or 0 end
  if p == -inf then return largest(terms, -1) end
  for k, v in ipairs(terms) do
    terms[k] = p == 0 and (v ~= 0 and 1.0 or 0.0) or v ^ p
  end
  if p == 0 then return sum(terms) end
  return sum(terms) ^ (1 / p)
end)

-- Along one dim: values and positions.
local function along(sign, both)
  return function(a)
    local x = a.x
    if not a.dim then
      local _, at = largest(x, sign)
      return A.new({}, {at}, "i64")
    end
    local set = {[A.dim(a.dim, #x.shape)] = true}
    local shape, kept, groups = A.groups(x, set)
    local values = {shape = a.keepdim and kept or shape}
    local places = {shape = values.shape}
    for g, list in ipairs(groups) do
      local run = {}
      for k, at in ipairs(list) do run[k] = x[at] end
      values[g], places[g] = largest(run, sign)
    end
    return both and {values, places} or places
  end
end
R.max_dim, R.min_dim = along(1, true), along(-1, true)
R.argmax, R.argmin = along(1, false), along(-1, false)

function R.cumsum(a)
  local out = {shape = a.x.shape}
  A.each_run(a.x, A.dim(a.dim, #a.x.shape), function(list)
    local so_far = {}
    for k, at in ipairs(list) do
      so_far[k] = a.x[at]
      out[at] = sum(so_far)
    end
  end)
  return out
end

function R.sum_to(a)
  local out = A.zeros(a.shape, a.x.dtype)
  A.each(a.x.shape, function(index, k)
    local at = A.place(out, index)
    out[at] = out[at] + a.x[k]
  end)
  return out
end

-- --- sorting ---

-- Whether a comes before b: NaN is the largest.
local function before(a, b, descending)
  if descending then a, b = b, a end
  if a ~= a then return false end
  if b ~= b then return true end
  return a < b
end

local function sorted(x, dim, descending, take)
  local shape = A.copy_list(x.shape)
  if #shape > 0 then shape[dim] = take or shape[dim] end
  local values, places = {shape = shape}, {shape = shape}
  local frame = {shape = shape}
  A.each_run(x, dim, function(list)
    local order = {}
    for k = 1, #list do order[k] = k end
    table.sort(order, function(i, j)
      local p, q = x[list[i]], x[list[j]]
      if before(p, q, descending) then return true end
      if before(q, p, descending) then return false end
      return i < j
    end)
    if #list == 0 then return end
    local index = {}
    local at = list[1] - 1
    for d, step in ipairs(A.strides(x.shape)) do
      index[d] = at // step % x.shape[d] + 1
    end
    for k = 1, #shape > 0 and shape[dim] or 1 do
      index[dim] = #shape > 0 and k or nil
      local to = A.place(frame, index, #shape)
      values[to], places[to] = x[list[order[k]]], order[k]
    end
  end)
  return {values, places}
end

function R.sort(a)
  return sorted(a.x, A.dim(a.dim or -1, #a.x.shape), a.descending)
end

function R.topk(a)
  local largest_ = a.largest ~= false
  return sorted(a.x, A.dim(a.dim or -1, #a.x.shape), largest_, a.k)
end

-- --- products ---

function R.matmul(args)
  local a, b = args.a, args.b
  local row, column = #a.shape == 1, #b.shape == 1
  if row then a = A.reshape(a, {1, a.shape[1]}) end
  if column then b = A.reshape(b, {b.shape[1], 1}) end
  local na, nb = #a.shape, #b.shape
  local lead_a, lead_b = {table.unpack(a.shape, 1, na - 2)}, {table.unpack(b.shape, 1, nb - 2)}
  local shape = A.broadcast(lead_a, lead_b)
  local n, k, m = a.shape[na - 1], a.shape[na], b.shape[nb]
  local lead = #shape
  shape[lead + 1], shape[lead + 2] = n, m
  local zero = (math.type(a[1]) == "integer" and math.type(b[1]) == "integer") and 0 or 0.0
  local y = A.build(shape, function(index)
    local i, j = index[lead + 1], index[lead + 2]
    index[lead + 1], index[lead + 2] = i, 1
    local at = A.place(a, index)
    index[lead + 1], index[lead + 2] = 1, j
    local bt = A.place(b, index)
    index[lead + 1], index[lead + 2] = i, j
    local s = zero
    for e = 0, k - 1 do s = s + a[at + (k == 1 and 0 or e)] * b[bt + e * m] end
    return s
  end)
  if row then table.remove(y.shape, lead + 1) end
  if column then table.remove(y.shape) end
  return y
end

function R.outer(args)
  return A.build({args.a.shape[1], args.b.shape[1]},
    function(i) return args.a[i[1]] * args.b[i[2]] end)
end

function R.addmm(args)
  local y = R.matmul(args)
  local alpha, beta = args.alpha or 1, args.beta or 1
  return A.map(function(p, x)
    if beta == 0 then return alpha * p end
    return alpha * p + beta * x
  end, y, args.x)
end

function R.matmul_add(args)
  return {written = {c = A.map(function(p, c) return p + c end, R.matmul(args), args.c)}}
end

-- Sums over what belongs to each group.
function R.grouped_mm(args)
  local a, b, ends = args.a, args.b, args.ends
  local rows, cols, n = a.shape[1], a.shape[2], b.shape[#b.shape]
  local whole = #b.shape == 3
  local out = A.zeros(whole and {rows, n} or {ends.shape[1], rows, n})
  for group = 1, ends.shape[1] do
    local first, last = (ends[group - 1] or 0) + 1, ends[group]
    for i = whole and first or 1, whole and last or rows do
      for j = 1, n do
        local s = 0
        for k = whole and 1 or first, whole and cols or last do
          local at = whole and (group - 1) * cols + k or k
          s = s + a[(i - 1) * cols + k] * b[(at - 1) * n + j]
        end
        out[((whole and 0 or (group - 1) * rows) + i - 1) * n + j] = s
      end
    end
  end
  return out
end

local E = require "spec.support.reference.elementwise"
local acts = {
  none = function(v) return v end,
  relu = function(v) return math.max(v, 0) end,
  gelu = function(v) return E._gelu(v, "erf") end,
  gelu_tanh = function(v) return E._gelu(v, "tanh") end,
  silu = function(v) return v * E._sigmoid(v) end,
  tanh = E._tanh,
  sigmoid = E._sigmoid,
}

-- The second result is of use to backward only: what the activation was applied to, or empty.
function R.linear(args)
  local w = A.permute(args.weight, {2, 1})
  local pre = R.matmul{a = args.x, b = w}
  if args.bias then pre = A.map(function(p, b) return p + b end, pre, args.bias) end
  local act = args.act or "none"
  local kept = act == "gelu" or act == "gelu_tanh" or act == "silu"
  return {A.map(acts[act], pre), kept and pre or A.zeros{0}}
end

-- --- softmax ---

local function softmax(x, dim, log)
  local out = {shape = x.shape}
  A.each_run(x, A.dim(dim or -1, #x.shape), function(list)
    local top, terms = -inf, {}
    for _, at in ipairs(list) do if x[at] > top or x[at] ~= x[at] then top = x[at] end end
    for k, at in ipairs(list) do terms[k] = math.exp(x[at] - top) end
    local total = sum(terms)
    for k, at in ipairs(list) do
      out[at] = log and x[at] - top - math.log(total) or terms[k] / total
    end
  end)
  return out
end
R._softmax = softmax

function R.softmax(a) return softmax(a.x, a.dim) end
function R.log_softmax(a) return softmax(a.x, a.dim, true) end

-- dx_i = sum_j dy_j dy_j/dx_i, from the whole Jacobian.
local function through(jacobian)
  return function(a)
    local dx = {shape = a.y.shape}
    A.each_run(a.y, A.dim(a.dim or -1, #a.y.shape), function(list)
      for _, i in ipairs(list) do
        local s = 0.0
        for _, j in ipairs(list) do s = s + a.dy[j] * jacobian(a.y[i], a.y[j], i == j) end
        dx[i] = s
      end
    end)
    return dx
  end
end
R.softmax_backward = through(function(yi, yj, same) return yj * ((same and 1 or 0) - yi) end)
R.log_softmax_backward = through(function(yi, _, same)
  return (same and 1 or 0) - math.exp(yi)
end)

R._nan = nan
return R
