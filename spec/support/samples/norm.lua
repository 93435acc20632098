--- Arguments for the normalisations and the losses.
local A = require "spec.support.array"
local reference = require "spec.support.reference.norm"

local S = {}
local f = A.fill
local inf = math.huge

local function w(shape, seed) return f(shape, {from = 0.5, to = 1.5, seed = seed or 2}) end
local function b(shape, seed) return f(shape, {from = -1, to = 1, seed = seed or 3}) end

-- --- normalisations ---

S.layer_norm = {
  {x = f{2, 4}}, {x = f{2, 4}, weight = w{4}, bias = b{4}}, {x = f{2, 4}, weight = w{4}},
  {x = f{2, 4}, bias = b{4}}, {x = f{5}, weight = w{5}, bias = b{5}},
  {x = f{2, 3, 4}, weight = w{3, 4}, bias = b{3, 4}, dims = 2},
  {x = f{2, 3, 2}, dims = 3, eps = 0.1},
  {x = f{0, 4}, weight = w{4}, bias = b{4}}, {x = f{2, 0}, _grad = false},
  {x = f{7, 300}, weight = w{300}, bias = b{300}, _grad = false, _dtypes = "f32 bf16"},
  {x = f({2, 64}, {from = 1000, to = 1001}), _grad = false, _dtypes = "f64"},
  {x = f{3, 8}, weight = w{8}, bias = b{8}, dtype = "bf16", _grad = false},
  {x = f{3, 9}, weight = w{9}, dtype = "f16", _grad = false},
  {x = f{9}, dtype = "f32", _grad = false},
  {x = f{0, 4}, weight = w{4}, dtype = "bf16", _grad = false},
  {x = f{2, 3}, dtype = "i64", _refused = "layer_norm: dtype is a float type, not i64"},
  {x = f{}, _refused = "cannot normalise"},
  {x = f{2, 3}, weight = w{2}, _refused = "x must end with weight's sizes"},
}
S.rms_norm = {
  {x = f{2, 4}}, {x = f{2, 4}, weight = w{4}}, {x = f{5}, weight = w{5}, eps = 0.1},
  {x = f{2, 3, 4}, weight = w{3, 4}, dims = 2}, {x = f{0, 4}, weight = w{4}},
  {x = f{2, 0}, _grad = false},
  {x = f{7, 300}, weight = w{300}, _grad = false, _dtypes = "f32 bf16"},
  {x = f{3, 8}, weight = w{8}, dtype = "bf16", _grad = false},
  {x = f{3, 9}, dtype = "f16", _grad = false}, {x = f{9}, dtype = "f32", _grad = false},
  {x = f{}, _refused = "cannot normalise"},
  {x = f{2, 3}, dtype = "bool", _refused = "rms_norm: dtype is a float type, not bool"},
}
S.group_norm = {
  {x = f{2, 4}, groups = 2}, {x = f{2, 4, 3}, weight = w{4}, bias = b{4}, groups = 2},
  {x = f{2, 4, 2, 2}, weight = w{4}, groups = 4}, {x = f{2, 4, 3}, bias = b{4}, groups = 1},
  {x = f{0, 4, 3}, weight = w{4}, bias = b{4}, groups = 2},
  {x = f{2, 4, 0}, groups = 2, _grad = false},
  {x = f{3, 8, 9, 7}, weight = w{8}, bias = b{8}, groups = 4, _grad = false, _dtypes = "f32"},
  {x = f{2, 3}, groups = 2, _refused = "cannot be divided"},
  {x = f{}, groups = 1, _refused = "shape"},
}
local function running(n)
  return f({n}, {seed = 5, from = -0.5, to = 0.5}), f({n}, {seed = 6, from = 0.5, to = 2})
end
local rm, rv = running(3)
local own = {"x", "weight", "bias"}
S.batch_norm = {
  {x = f{4, 3}, _grad = own}, {x = f{4, 3}, weight = w{3}, bias = b{3}, _grad = own},
  {x = f{2, 3, 4}, weight = w{3}, bias = b{3}, running_mean = rm, running_var = rv, _grad = own},
  {x = f{2, 3, 2, 2}, bias = b{3}, running_mean = rm, running_var = rv, momentum = 0.3, eps = 0.01,
    _grad = own},
  {x = f{2, 3, 4}, weight = w{3}, bias = b{3}, running_mean = rm, running_var = rv,
    training = false,
    _grad = own},
  {x = f{1, 3}, running_mean = rm, running_var = rv, training = false, _grad = own},
  {x = f{0, 3}, weight = w{3}, bias = b{3}, running_mean = rm, running_var = rv, training = false,
    _grad = own},
  {x = f{9, 3, 7, 5}, weight = w{3}, bias = b{3}, running_mean = rm, running_var = rv,
    _grad = false,
    _dtypes = "f32 bf16"},
  {x = f{1, 3}, _refused = "more than one value"}, {x = f{2, 3}, training = false,
    _refused = "only train"}, {x = f{}, _refused = "shape"},
}

-- Their fused gradients, of consistent statistics.
local function backward(forward, list, keep)
  local samples = {}
  for i, s in ipairs(list) do
    local out = reference[forward](s)
    local new = {dy = f(s.x.shape, {seed = 20 + i}), x = s.x, weight = s.weight, dims = s.dims,
      groups = s.groups, training = s.training, _dtypes = "f64 f32", _grad = s._grad}
    if keep == 2 then new.rstd = out[2] else new.mean, new.rstd = out[2], out[3] end
    for _, name in ipairs {"mean", "rstd"} do if new[name] then new[name].dtype = "f64" end end
    samples[i] = new
  end
  samples[1]._dtypes = nil
  return samples
end
S.layer_norm_backward = backward("layer_norm", {S.layer_norm[2], S.layer_norm[1], S.layer_norm[6],
  S.layer_norm[5], S.layer_norm[8], {x = f{6, 130}, weight = w{130}}})
S.rms_norm_backward = backward("rms_norm", {S.rms_norm[2], S.rms_norm[1], S.rms_norm[4],
  S.rms_norm[5], {x = f{6, 130}, weight = w{130}}}, 2)
S.group_norm_backward = backward("group_norm", {S.group_norm[2], S.group_norm[1], S.group_norm[3],
  S.group_norm[5], {x = f{2, 6, 5, 5}, weight = w{6}, groups = 3}})
S.batch_norm_backward = backward("batch_norm", {S.batch_norm[2], S.batch_norm[1], S.batch_norm[5],
  S.batch_norm[7], {x = f{4, 3, 5, 5}, weight = w{3}}})

-- --- cross-entropy ---

local function t(shape, classes, seed) return A.whole(shape, 1, classes, seed or 4) end
local function soft(shape) -- rows that sum to 1 along the classes
  local p = f(shape, {from = 0.1, to = 1, seed = 6})
  A.each_run(p, #shape > 1 and 2 or 1, function(list)
    local s = 0
    for _, at in ipairs(list) do s = s + p[at] end
    for _, at in ipairs(list) do p[at] = p[at] / s end
  end)
  return p
end
local x1 = {"x"}
S.cross_entropy = {
  {x = f{3, 4}, target = t({3}, 4)}, {x = f{3, 4}, target = t({3}, 4), reduction = "sum"},
  {x = f{3, 4}, target = t({3}, 4), reduction = "none"},
  {x = f{3, 4}, target = t({3}, 4), weight = w{4}},
  {x = f{3, 4}, target = t({3}, 4), weight = w{4}, label_smoothing = 0.2},
  {x = f{3, 4}, target = t({3}, 4), label_smoothing = 0.1, reduction = "none"},
  {x = f{4, 3}, target = A.new({4}, {1, -100, 3, 2}, "i64"), ignore_index = -100},
  {x = f{4, 3}, target = A.new({4}, {1, 2, 3, 2}, "i32"), ignore_index = 2, weight = w{3},
    label_smoothing = 0.3},
  {x = f{4}, target = A.new({}, {3}, "i64")}, {x = f{2, 3, 2}, target = t({2, 2}, 3)},
  {x = f{2, 3, 2, 2}, target = t({2, 2, 2}, 3), weight = w{3}, reduction = "none"},
  {x = f{3, 4}, target = soft{3, 4}}, {x = f{4}, target = soft{4}, reduction = "sum"},
  {x = f{2, 3, 2}, target = soft{2, 3, 2}, weight = w{3}, label_smoothing = 0.1},
  {x = f{0, 4}, target = t({0}, 4), reduction = "sum"},
  {x = f{0, 4}, target = t({0}, 4), reduction = "none"},
  {x = A.new({2, 3}, {900, 901, 902, -900, -901, -902}), target = t({2}, 3), _dtypes = "f64 f32"},
  {x = A.new({2, 3}, {-inf, 1, 2, 3, -inf, 0}), target = A.new({2}, {2, 1}, "i64"), _grad = false,
    _dtypes = "f64 f32"},
  {x = f{40, 97}, target = t({40}, 97), _grad = false, _dtypes = "f64 f32 bf16"},
  {x = f{3, 4}, target = A.new({3}, {1, 5, 2}, "i64"), _refused = "5"},
  {x = f{3, 4}, target = A.new({3}, {1, 0, 2}, "i64"), _refused = "0"},
  {x = f{}, target = t({}, 1), _refused = "scores have shape"},
  {x = f{3, 4}, target = t({4}, 4), _refused = "take targets"},
  {x = f{3, 4}, target = t({3}, 4), weight = w{3}, _refused = "weight has one number"},
}
S.cross_entropy_backward = {}
for _, i in ipairs {1, 2, 3, 4, 5, 7, 9, 10, 12, 14, 15} do
  local s = S.cross_entropy[i]
  local out = reference.cross_entropy(s)
  local total = 0
  local smooth = A.is_float(s.target.dtype)
  for n = 1, A.count(out[2].shape) do
    local c = s.target[n]
    total = total + (smooth and 1 or c == s.ignore_index and 0 or s.weight and s.weight[c] or 1)
  end
  out[1].dtype, out[2].dtype = "f64", "f64"
  table.insert(S.cross_entropy_backward, {
    dy = f(out[1].shape, {seed = 30 + i}), x = s.x, target = s.target, weight = s.weight,
      lse = out[2],
    total = A.new({}, {total}), ignore_index = s.ignore_index, label_smoothing = s.label_smoothing,
    reduction = s.reduction, _dtypes = "f64 f32"})
end

S.cross_entropy_total = {
  {target = t({3}, 4)}, {target = t({2, 2}, 3), dtype = "f64"}, {target = A.new({}, {3}, "i64")},
  {target = t({3}, 4), weight = w{4}}, {target = soft{3, 4}, weight = w{4}, _dtypes = "f64 f32"},
  {target = A.new({4}, {1, -100, 3, 2}, "i64"), ignore_index = -100},
  {target = A.new({4}, {1, 2, 3, 2}, "i32"), ignore_index = 2, weight = w{3}},
  {target = soft{4}, _dtypes = "f64 f32 bf16"}, {target = t({0}, 4)},
  {target = t({700}, 9), weight = w{9}},
  {target = A.new({3}, {1, 5, 2}, "i64"), weight = w{4}, _refused = "5"},
  {target = A.new({3}, {1, 0, 2}, "i64"), _refused = "0"},
  {target = t({3}, 4), weight = w{2, 2}, _refused = "weight has one number"},
}

S.nll_loss = {
  {x = f{3, 4}, target = t({3}, 4)}, {x = f{3, 4}, target = t({3}, 4), reduction = "none"},
  {x = f{3, 4}, target = t({3}, 4), weight = w{4}}, {x = f{4}, target = A.new({}, {3}, "i64")},
  {x = f{2, 3, 2}, target = t({2, 2}, 3), weight = w{3}, reduction = "sum"},
  {x = f{4, 3}, target = A.new({4}, {1, -100, 3, 2}, "i64"), ignore_index = -100, weight = w{3}},
  {x = f{0, 4}, target = t({0}, 4), reduction = "sum"},
  {x = f{}, target = t({}, 1), _refused = "take targets"},
  {x = f{3, 4}, target = t({4}, 4), _refused = ""},
}

-- --- other losses ---

-- Same shapes, each reduction; `x` and `y` make values.
local function losses(x, y, more)
  local list = {
    {x = x{2, 3}, target = y{2, 3}}, {x = x{2, 3}, target = y{2, 3}, reduction = "sum"},
    {x = x{2, 3}, target = y{2, 3}, reduction = "none"}, {x = x{}, target = y{}},
    {x = x{0, 2}, target = y{0, 2}, reduction = "sum"},
    {x = x{0, 2}, target = y{0, 2}, reduction = "none"},
    {x = x{0, 2}, target = y{0, 2}, _grad = false},
    {x = x{257}, target = y{257}, _grad = false, _dtypes = "f64 f32"},
    {x = x{2, 3}, target = y{3}, _refused = "x has shape"},
  }
  for _, s in ipairs(more or {}) do list[#list + 1] = s end
  return list
end
local function y1(shape) return f(shape, {seed = 9, from = 2.5, to = 4}) end
S.mse_loss, S.l1_loss = losses(f, y1), losses(f, y1)
local function bends(name)
  local function near(shape) return f(shape, {seed = 1.3, from = -0.3, to = 0.3, avoid = {0}}) end
  local function zero(shape) return A.zeros(shape) end
  return losses(f, y1, {
    {x = near{2, 3}, target = zero{2, 3}}, {x = f{2, 3}, target = y1{2, 3}, [name] = 0.5},
    {x = f({8}, {from = -2, to = 2, avoid = {-0.7, 0, 0.7}}), target = zero{8}, [name] = 0.7}})
end
S.smooth_l1_loss, S.huber_loss = bends "beta", bends "delta"
table.insert(S.huber_loss, {x = f{2}, target = y1{2}, delta = 0, _refused = "above 0"})
local function p(shape) return f(shape, {from = 0.1, to = 0.9}) end
local function q(shape) return f(shape, {from = 0.1, to = 0.9, seed = 8}) end
S.bce_input = {
  {x = p{2, 3}}, {x = p{}}, {x = p{0, 3}}, {x = p{400}, _grad = false},
  {x = A.new({4}, {0, 1, 0, 1}), _grad = false},
  {x = A.new({2}, {0.5, 3}), _refused = "from 0 to 1, got 3"},
  {x = A.new({2}, {-0.5, 0.5}), _refused = "from 0 to 1, got %-0.5"},
}
S.bce_loss = losses(p, q, {
  {x = p{2, 3}, target = q{2, 3}, weight = w{2, 3}}, {x = p{2, 3}, target = q{2, 3}, weight = w{3}},
  {x = A.new({4}, {0, 1, 0, 1}), target = A.new({4},
  {0, 1, 1, 0}), _grad = false, _dtypes = "f64 f32"}})
S.bce_with_logits = losses(f, q, {
  {x = f{2, 3}, target = q{2, 3}, weight = w{2, 3}},
  {x = f{2, 3}, target = q{2, 3}, pos_weight = w{3}},
  {x = f{2, 3}, target = q{2, 3}, weight = w{2, 1}, pos_weight = w{3}, reduction = "none"},
  {x = A.new({4}, {80, -80, 800, -800}), target = A.new({4}, {0, 1, 1, 0}), _dtypes = "f64 f32"}})
S.kl_div = losses(f, q, {
  {x = f{2, 3}, target = q{2, 3}, reduction = "batchmean"},
  {x = f{2, 3}, target = b{2, 3}, log_target = true},
  {x = f{2, 2}, target = A.new({2, 2}, {0, 0.5, 0.25, 0}), _grad = x1}})
S.cosine_similarity = {
  {a = f{2, 3}, b = b{2, 3}}, {a = f{2, 3}, b = b{2, 3}, dim = 1},
  {a = f{2, 3, 2}, b = b{2, 3, 2}, dim = -1},
  {a = f{3}, b = b{3}, dim = 1}, {a = f{2, 3}, b = b{1, 3}}, {a = f{0, 3}, b = b{0, 3}},
  {a = A.zeros{2, 3}, b = b{2, 3}, _grad = false}, {a = f{}, b = b{}, dim = 1},
  {a = f{2, 40}, b = b{2, 40}, eps = 0.1, _grad = false, _dtypes = "f64 f32"},
}
S.normalize = {
  {x = f{2, 3}}, {x = f{2, 3}, dim = 1}, {x = f({2, 3}, {avoid = {0}, gap = 0.3}), p = 1},
  {x = f{2, 3, 2}, dim = -1, p = 3}, {x = f{4}, dim = 1}, {x = f({}, {seed = 4}), dim = 1},
  {x = f{0, 3}}, {x = A.zeros{2, 3}, _grad = false},
}

return S
