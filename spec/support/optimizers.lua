-- Optimizers by name: what each does in one step, in plain Lua, from the paper that is named.
--
-- `step(p, g, s, t, o)` gives the new value of one number p with gradient g; s is a table of its
-- state, t the step from 1, o the options. `matrix(p, g, s, t, o)` does so for a matrix, a list of
-- rows. `defaults` are the options that the class must have when none are given.
local M = {}

-- (mean, mean of squares), which several keep.
local function moments(g, s, o)
  local b1, b2 = o.betas[1], o.betas[2]
  s.m = b1 * (s.m or 0) + (1 - b1) * g
  s.v = b2 * (s.v or 0) + (1 - b2) * g * g
  return s.m, s.v
end

-- Robbins and Monro 1951; momentum as in Sutskever et al. 2013, with PyTorch's rate outside.
M.SGD = {options = {momentum = 0.9, nesterov = true, weight_decay = 0.1},
  defaults = {lr = 1e-3, momentum = 0, weight_decay = 0},
  step = function(p, g, s, t, o)
    g = g + o.weight_decay * p
    s.b = t == 1 and g or o.momentum * s.b + g
    return p - o.lr * (g + o.momentum * s.b)
  end}

-- Kingma and Ba, arXiv:1412.6980, algorithm 1.
local function adam(p, g, s, t, o)
  local m, v = moments(g, s, o)
  return p - o.lr * (m / (1 - o.betas[1] ^ t)) / ((v / (1 - o.betas[2] ^ t)) ^ 0.5 + o.eps)
end
M.Adam = {options = {weight_decay = 0.1}, defaults = {lr = 1e-3, eps = 1e-8, weight_decay = 0},
  step = function(p, g, s, t, o) return adam(p, g + o.weight_decay * p, s, t, o) end}

-- Loshchilov and Hutter, arXiv:1711.05101, algorithm 2.
M.AdamW = {options = {weight_decay = 0.1}, defaults = {lr = 1e-3, eps = 1e-8, weight_decay = 0.01},
  step = function(p, g, s, t, o) return adam(p * (1 - o.lr * o.weight_decay), g, s, t, o) end}

-- Dettmers et al., arXiv:2110.02861; of parameters as small as these the moments have all bits.
M.Adam8bit, M.AdamW8bit = M.Adam, M.AdamW

-- Tieleman and Hinton 2012, lecture 6.5; centred as in Graves, arXiv:1308.0850.
M.RMSprop = {options = {momentum = 0.9, centered = true},
  defaults = {lr = 0.01, alpha = 0.99, eps = 1e-8},
  step = function(p, g, s, _, o)
    s.v = o.alpha * (s.v or 0) + (1 - o.alpha) * g * g
    s.m = o.alpha * (s.m or 0) + (1 - o.alpha) * g
    s.b = o.momentum * (s.b or 0) + g / ((s.v - s.m * s.m) ^ 0.5 + o.eps)
    return p - o.lr * s.b
  end}

-- Duchi, Hazan and Singer 2011.
M.Adagrad = {options = {lr_decay = 0.1}, defaults = {lr = 0.01, eps = 1e-10},
  step = function(p, g, s, t, o)
    s.v = (s.v or 0) + g * g
    return p - o.lr / (1 + (t - 1) * o.lr_decay) * g / (s.v ^ 0.5 + o.eps)
  end}

-- Chen et al., arXiv:2302.06675, algorithm 2.
M.Lion = {options = {weight_decay = 0.1}, defaults = {lr = 1e-4, weight_decay = 0},
  step = function(p, g, s, _, o)
    local b1, b2 = o.betas[1], o.betas[2]
    local m = s.m or 0
    local c = b1 * m + (1 - b1) * g
    s.m = b2 * m + (1 - b2) * g
    return p - o.lr * ((c > 0 and 1 or c < 0 and -1 or 0) + o.weight_decay * p)
  end}

-- Zeiler, arXiv:1212.5701, algorithm 1.
M.Adadelta = {defaults = {lr = 1, rho = 0.9, eps = 1e-6},
  step = function(p, g, s, _, o)
    s.v = o.rho * (s.v or 0) + (1 - o.rho) * g * g
    local d = (((s.d or 0) + o.eps) / (s.v + o.eps)) ^ 0.5 * g
    s.d = o.rho * (s.d or 0) + (1 - o.rho) * d * d
    return p - o.lr * d
  end}

-- Kingma and Ba, arXiv:1412.6980, algorithm 2.
M.Adamax = {defaults = {lr = 2e-3, eps = 1e-8},
  step = function(p, g, s, t, o)
    s.m = o.betas[1] * (s.m or 0) + (1 - o.betas[1]) * g
    s.u = math.max(o.betas[2] * (s.u or 0), math.abs(g) + o.eps)
    return p - o.lr / (1 - o.betas[1] ^ t) * s.m / s.u
  end}

-- Dozat 2016, with the schedule of momentum given there.
M.NAdam = {defaults = {lr = 2e-3, eps = 1e-8, momentum_decay = 4e-3},
  step = function(p, g, s, t, o)
    local function mu(k) return o.betas[1] * (1 - 0.5 * 0.96 ^ (k * o.momentum_decay)) end
    local m, v = moments(g, s, o)
    s.all = (s.all or 1) * mu(t)
    local mean = mu(t + 1) * m / (1 - s.all * mu(t + 1)) + (1 - mu(t)) * g / (1 - s.all)
    return p - o.lr * mean / ((v / (1 - o.betas[2] ^ t)) ^ 0.5 + o.eps)
  end}

-- Liu et al., arXiv:1908.03265, algorithm 2; rectified above 5 as PyTorch does.
M.RAdam = {defaults = {lr = 1e-3, eps = 1e-8},
  step = function(p, g, s, t, o)
    local m, v = moments(g, s, o)
    local b2 = o.betas[2]
    local most = 2 / (1 - b2) - 1
    local length = most - 2 * t * b2 ^ t / (1 - b2 ^ t)
    m = m / (1 - o.betas[1] ^ t)
    if length <= 5 then return p - o.lr * m end
    local r = (((length - 4) * (length - 2) * most)
      / ((most - 4) * (most - 2) * length)) ^ 0.5
    return p - o.lr * m * r * (1 - b2 ^ t) ^ 0.5 / (v ^ 0.5 + o.eps)
  end}

-- Riedmiller and Braun 1993, without taking steps back.
M.Rprop = {options = {sizes = {1e-6, 1e-4}}, defaults = {lr = 0.01},
  step = function(p, g, s, t, o)
    if t == 1 then s.size = o.lr end
    local turn = g * (s.g or 0)
    local by = turn > 0 and o.etas[2] or turn < 0 and o.etas[1] or 1
    s.size = math.min(math.max(s.size * by, o.sizes[1]), o.sizes[2])
    s.g = turn < 0 and 0 or g
    return p - (s.g > 0 and 1 or s.g < 0 and -1 or 0) * s.size
  end}

-- Polyak and Juditsky 1992, with the rates of Bottou's page on SGD.
M.ASGD = {defaults = {lr = 0.01, lambda = 1e-4, alpha = 0.75},
  step = function(p, g, _, t, o)
    local rate = o.lr / (1 + o.lambda * o.lr * (t - 1)) ^ o.alpha
    return p - rate * (g + o.lambda * p)
  end}

local function each(a, f)
  local out = {}
  for i, row in ipairs(a) do
    out[i] = {}
    for j, x in ipairs(row) do out[i][j] = f(x, i, j) end
  end
  return out
end

local function rms(a)
  local sum, n = 0, 0
  each(a, function(x) sum, n = sum + x * x, n + 1 return 0 end)
  return (sum / n) ^ 0.5
end

-- Shazeer and Stern, arXiv:1804.04235, algorithm 4 with the relative step of section 8.
M.Adafactor = {defaults = {lr = 0.01, beta2_decay = -0.8, limit = 1},
  loose = 1e-4, -- eps is that of the dtype, and the step goes by the size of the weights
  matrix = function(p, g, s, t, o)
    local share, rows, columns = t ^ o.beta2_decay, #g, #g[1]
    s.r, s.c = s.r or {}, s.c or {}
    local r, c = {}, {}
    each(g, function(x, i, j)
      r[i], c[j] = (r[i] or 0) + x * x / columns, (c[j] or 0) + x * x / rows
      return 0
    end)
    local mean = 0
    for i = 1, rows do
      s.r[i] = (1 - share) * (s.r[i] or 0) + share * r[i]
      mean = mean + s.r[i] / rows
    end
    for j = 1, columns do s.c[j] = (1 - share) * (s.c[j] or 0) + share * c[j] end
    local u = each(g, function(x, i, j) return x / (s.r[i] * s.c[j] / mean) ^ 0.5 end)
    local size = math.max(o.floor, rms(p)) * math.min(o.lr, 1 / t ^ 0.5)
    local limit = math.max(1, rms(u) / o.limit)
    return each(p, function(x, i, j) return x - size * u[i][j] / limit end)
  end}

local function product(a, b)
  local out = {}
  for i = 1, #a do
    out[i] = {}
    for j = 1, #b[1] do
      local sum = 0
      for k = 1, #b do sum = sum + a[i][k] * b[k][j] end
      out[i][j] = sum
    end
  end
  return out
end

local function turned(a)
  local out = {}
  for j = 1, #a[1] do
    out[j] = {}
    for i = 1, #a do out[j][i] = a[i][j] end
  end
  return out
end

-- Jordan 2024 (kellerjordan.github.io/posts/muon), with decoupled weight decay.
M.Muon = {options = {dtype = "f64"}, defaults = {lr = 1e-3, momentum = 0.95, weight_decay = 0.1},
  loose = 1e-4, -- its polynomial is not a contraction: rounding of gradients comes out larger
  matrix = function(p, g, s, _, o)
    s.m = s.m or each(g, function() return 0 end)
    s.m = each(g, function(x, i, j) return o.momentum * s.m[i][j] + (1 - o.momentum) * x end)
    local x = each(g, function(v, i, j)
      return (1 - o.momentum) * v + o.momentum * s.m[i][j]
    end)
    local norm = rms(x) * (#x * #x[1]) ^ 0.5
    x = each(x, function(v) return v / norm end)
    local c = o.coefficients
    for _ = 1, o.steps do
      local a = product(x, turned(x))
      local aa = product(a, a)
      local b = product(each(a, function(v, i, j) return c[2] * v + c[3] * aa[i][j] end), x)
      x = each(x, function(v, i, j) return c[1] * v + b[i][j] end)
    end
    local rate = o.lr * math.max(1, #p / #p[1]) ^ 0.5
    return each(p, function(v, i, j) return v * (1 - o.lr * o.weight_decay) - rate * x[i][j] end)
  end}

-- Liu and Nocedal 1989: the first step goes along the gradient, no longer than its 1-norm allows.
M.LBFGS = {options = {line_search = "none", max_iter = 1}, defaults = {lr = 1, history = 10},
  closure = true, one = true,
  matrix = function(p, g, _, _, o)
    local sum = 0
    each(g, function(x) sum = sum + math.abs(x) return 0 end)
    return each(p, function(x, i, j) return x - o.lr * math.min(1, 1 / sum) * g[i][j] end)
  end}

return M
