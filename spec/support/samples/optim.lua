--- Arguments for the optimizer steps: two tensors in each group, one of them a number.
local A = require "spec.support.array"

local S = {}
local f = A.fill

-- Parameters, gradients, then groups of state; those of `above` are not negative.
local function groups(n, above, shapes)
  local xs = {}
  for g = 1, n do
    for i, shape in ipairs(shapes or {{3, 4}, {}}) do
      local from = above and above[g] and 0.1 or -2
      xs[#xs + 1] = f(shape, {seed = 3 * g + i, from = from, to = 2, avoid = {0}})
    end
  end
  return xs
end

local function all(n, above, list)
  for _, s in ipairs(list) do
    s.xs = s.xs or groups(s._groups or n, s._above or above)
    s._grad = false
  end
  local function like(first, shapes, dtypes)
    local s = {xs = groups(first._groups or n, first._above or above, shapes), _grad = false,
      _dtypes = dtypes}
    for k, v in pairs(first) do if s[k] == nil then s[k] = v end end
    return s
  end
  table.insert(list, like(list[1], {{0}, {2, 0}}))
  table.insert(list, like(list[1], {{}}))
  table.insert(list, like(list[2], {{700}, {3}, {1, 55}}, "f64 f32 bf16"))
  return list
end

local lr = 0.1
local scalar = A.scalar(0.05)
S.sgd_step = all(2, nil, {
  {lr = lr, moments = 0}, {lr = scalar, moments = 0, weight_decay = 0.1},
  {lr = lr, moments = 0, maximize = true, weight_decay = 0.1},
  {lr = lr, momentum = 0.9, _groups = 3}, {lr = lr, momentum = 0.9, dampening = 0.5, _groups = 3},
  {lr = lr, momentum = 0.9, nesterov = true, weight_decay = 0.1, _groups = 3},
  {lr = lr, momentum = 0.9, dampening = 0.5, first = true, maximize = true, _groups = 3},
  {lr = lr, moments = 2, _refused = "moments is 2"},
  {lr = lr, moments = 0, xs = {f{2}, f{3}}, _refused = "has shape"},
  {lr = lr, moments = 0, xs = {f{2}, f{2}, f{2}}, _refused = "not 2 groups"},
})
local squares, three = {[4] = true}, {[3] = true}
S.adam_step = all(4, squares, {
  {lr = lr, step = 1}, {lr = scalar, step = A.scalar(3), weight_decay = 0.1},
  {lr = lr, step = 10, weight_decay = 0.1, decoupled = true, beta1 = 0.8, beta2 = 0.9, eps = 1e-3},
  {lr = lr, step = 2, maximize = true},
  {lr = lr, step = 5, amsgrad = true, moments = 3, _groups = 5, _above = {[4] = true, [5] = true}},
  {lr = lr, step = 1, moments = 3, _refused = "moments is 3"},
})
-- Numbers that f32 has, as have their products with the scales below.
local function maps()
  local list = {}
  for k = 0, 255 do list[#list + 1] = (k - 127) / 128 end
  for k = 0, 255 do list[#list + 1] = k * k / 65536 end
  return A.new({2, 256}, list)
end
local function eighth(o)
  local n = A.count(o.shape)
  local size = math.max(o.block or 256, 1)
  local blocks = (n + size - 1) // size
  local means, squares_of, scales = {}, {}, {}
  for k = 1, n do means[k], squares_of[k] = k * 37 % 256, k * 91 % 256 end
  for k = 1, blocks do scales[k] = (k % 5 + 1) / 4 end
  local s = {lr = lr, step = 3, maps = maps(), p = f(o.shape, {seed = 1}),
    g = f(o.shape, {seed = 2}), mean = A.new({n}, means, "u8"),
    mean_scales = A.new({blocks}, scales, "f32"), square = A.new({n}, squares_of, "u8"),
    square_scales = A.new({blocks}, scales, "f32"),
    _grad = false, _dtypes = "f64 f32"}
  for key, v in pairs(o) do if key ~= "shape" then s[key] = v end end
  return s
end
S.adam8_step = {
  eighth{shape = {3, 4}}, eighth{shape = {}, step = A.scalar(1), lr = scalar},
  eighth{shape = {0}}, eighth{shape = {5, 7}, block = 8, weight_decay = 0.1},
  eighth{shape = {700}, weight_decay = 0.1, decoupled = true, beta1 = 0.8, beta2 = 0.9,
         eps = 1e-3},
  eighth{shape = {1100}, block = 512}, eighth{shape = {4}, block = 0, _refused = "block must be"},
  eighth{shape = {4}, g = f{5}, _refused = "its gradient"},
  eighth{shape = {4}, mean = A.new({3}, {1, 2, 3}, "u8"), _refused = "must be u8"},
  eighth{shape = {4}, maps = f{2, 3}, _refused = "maps must be"},
}
S.rmsprop_step = all(3, three, {
  {lr = lr}, {lr = scalar, alpha = 0.9, eps = 1e-3, weight_decay = 0.1},
  {lr = lr, momentum = 0.9, moments = 2, _groups = 4},
  {lr = lr, centered = true, moments = 2, _groups = 4, alpha = 0.8, eps = 0.1},
  {lr = lr, centered = true, momentum = 0.5, moments = 3, _groups = 5, alpha = 0.8, eps = 0.1},
})
S.adagrad_step = all(3, three, {{lr = lr}, {lr = scalar, eps = 1e-3, weight_decay = 0.1}})
S.lion_step = all(3, nil, {{lr = lr}, {lr = scalar, beta1 = 0.8, beta2 = 0.9, weight_decay = 0.1}})
S.lerp_step = all(2, nil, {{weight = 0.3}, {weight = A.scalar(0.75)}})
S.assign_step = all(2, nil, {{}, {}, {xs = {f{2}, f{3}}, _refused = "has shape"}})
S.scale_step = all(1, nil, {{scale = 0.3}, {scale = A.scalar(-2)}, {scale = 1}})
local many = {}
for k = 1, 20 do many[k] = f({2}, {seed = k}) end
S.global_norm = {
  {xs = {f{3, 4}, f({}, {seed = 2}), f({5}, {seed = 3})}}, {xs = {f{3, 4}, f({5},
  {seed = 3})}, p = 1},
  {xs = {f{3, 4}, f({5}, {seed = 3})}, p = 1 / 0}, {xs = {f{3, 4}}, p = 3}, {xs = {f{0}, f{2}}},
  {xs = {f{}}}, {xs = {f{0}}}, {xs = {f{2000}, f({20000}, {seed = 3})}, _dtypes = "f64 f32 bf16"},
  {xs = {f{2}}, p = -1, _refused = "at least 0"}, {xs = many}, {xs = many, p = 1 / 0},
}
-- centred, what is left of the mean of squares may be a small difference
for _, s in ipairs(S.rmsprop_step) do if s.centered then s._dtypes = "f64 f32" end end

return S
