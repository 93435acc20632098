--- Arguments for convolutions and pooling, 1-d to 3-d.
local A = require "spec.support.array"
local reference = require "spec.support.reference.conv"

local S = {}
local f = A.fill
local function w(shape) return f(shape, {seed = 2, from = -1, to = 1}) end
local function b(n) return f({n}, {seed = 4}) end

S.conv = {
  {x = f{2, 2, 5}, weight = w{3, 2, 3}},
  {x = f{1, 2, 5}, weight = w{3, 2, 2}, bias = b(3), stride = {2}},
  {x = f{1, 2, 4, 4}, weight = w{2, 2, 3, 3}, bias = b(2), padding = {1}},
  {x = f{1, 2, 5, 4}, weight = w{2, 2, 3, 2}, stride = {2, 1}, padding = {1, 0}},
  {x = f{1, 2, 6, 5}, weight = w{2, 2, 2, 2}, dilation = {2, 3}, padding = {0, 1}},
  {x = f{1, 4, 4, 3}, weight = w{4, 2, 2, 2}, bias = b(4), groups = 2},
  {x = f{1, 3, 4, 4}, weight = w{3, 1, 3, 3}, groups = 3, padding = {1}}, -- a channel by itself
  {x = f{2, 3, 3}, weight = w{2, 2, 2, 2}, bias = b(2)}, -- no batch
  {x = f{1, 1, 3, 3, 3}, weight = w{2, 1, 2, 2, 2}, bias = b(2)},
  {x = f{1, 2, 3, 2, 2}, weight = w{2, 1, 2, 1, 2}, groups = 2, padding = {1, 0, 1}, stride = {2,
    1, 1}},
  {x = f{2, 3, 4, 4}, weight = w{5, 3, 1, 1}}, -- a product of matrices
  {x = f{0, 2, 5}, weight = w{3, 2, 3}}, {x = f{1, 2, 5}, weight = w{0, 2, 3}},
  {x = f{2, 5, 13, 17}, weight = w{9, 5, 3, 3}, bias = b(9), padding = {1}, _grad = false,
    _dtypes = "f64 f32 bf16"},
  {x = f{1, 9, 21, 17}, weight = w{9, 1, 5, 5}, groups = 9, padding = {2}, stride = {2},
    _grad = false,
    _dtypes = "f64 f32"},
  {x = f{3, 5, 40}, weight = w{4, 5, 7}, stride = {3}, dilation = {2}, padding = {4}, _grad = false,
    _dtypes = "f64 f32"},
  {x = f{}, weight = w{3, 2, 3}, _refused = "must be"},
  {x = f{1, 3, 5}, weight = w{3, 2, 3}, _refused = "do not fit"},
  {x = f{1, 2, 2}, weight = w{3, 2, 3}, _refused = "does not fit into"},
  {x = f{1, 2, 5}, weight = w{3, 2, 3}, bias = b(2), _refused = "bias must be"},
}
S.conv_input_grad, S.conv_weight_grad = {}, {}
for i = 1, 16 do
  local s = S.conv[i]
  local dy = f(reference.conv(s).shape, {seed = 7})
  local function with(more)
    for _, name in ipairs {"stride", "padding", "dilation", "groups", "_grad", "_dtypes"} do
      more[name] = s[name]
    end
    return more
  end
  S.conv_input_grad[i] = with{dy = dy, weight = s.weight, shape = s.x.shape}
  S.conv_weight_grad[i] = with{dy = dy, x = s.x, shape = s.weight.shape}
end
table.insert(S.conv_input_grad, {dy = f{1, 3, 3}, weight = w{3, 2, 3}, shape = {1, 2, 6},
  _refused = "convolution gives"})
table.insert(S.conv_weight_grad, {dy = f{1, 3, 3}, x = f{1, 2, 6}, shape = {3, 2, 3},
  _refused = "convolution gives"})

S.conv_transpose = {
  {x = f{2, 2, 4}, weight = w{2, 3, 3}},
  {x = f{1, 2, 4}, weight = w{2, 3, 3}, bias = b(3), stride = {2}},
  {x = f{1, 2, 3, 3}, weight = w{2, 2, 3, 3}, bias = b(2), stride = {2}, padding = {1},
    output_padding = {1}},
  {x = f{1, 4, 3, 2}, weight = w{4, 1, 2, 2}, groups = 2, dilation = {2}},
  {x = f{2, 3, 3}, weight = w{2, 2, 2, 2}, bias = b(2)},
  {x = f{1, 1, 2, 2, 2}, weight = w{1, 2, 2, 2, 2}, stride = {2, 1, 2}},
  {x = f{1, 2, 3, 2}, weight = w{2, 2, 2, 2}, bias = b(2), stride = {1, 2}, padding = {1, 0},
    dilation = {3, 2}, output_padding = {2, 1}},
  {x = f{0, 2, 4}, weight = w{2, 3, 3}}, {x = f{}, weight = w{2, 3, 3}, _refused = "do not fit"},
  {x = f{1, 2, 4}, weight = w{2, 3, 3}, output_padding = {1}, _refused = "smaller than the stride"},
}

-- --- pooling ---

S.max_pool = {
  {x = f{1, 2, 6}, kernel = {2}}, {x = f{1, 2, 7}, kernel = {3}, stride = {2}, padding = {1}},
  {x = f{1, 2, 4, 4}, kernel = {2}},
  {x = f{1, 1, 5, 4}, kernel = {3, 2}, stride = {2, 1}, padding = {1, 0}},
  {x = f{1, 1, 5, 5}, kernel = {2}, stride = {2}, ceil = true},
  {x = f{2, 4, 4}, kernel = {2, 2}, stride = {1}},
  {x = f{1, 1, 5, 5}, kernel = {2}, dilation = {2}, stride = {1}},
  {x = f{1, 1, 4, 4, 4}, kernel = {2}},
  {x = f{0, 2, 4}, kernel = {2}}, {x = f{2, 6}, kernel = {2}},
  {x = A.new({1, 1, 6}, {1, 1, 0 / 0, 2, 3, 3}), kernel = {2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{2, 5, 21, 23}, kernel = {3}, stride = {2}, padding = {1}, _grad = false,
    _dtypes = "f64 f32 bf16 i32"},
  {x = f{3, 4, 65}, kernel = {2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{1, 1, 2, 5}, kernel = {3}, stride = {2}, ceil = true}, -- beyond the end at once
  {x = f{1, 2, 3}, kernel = {2}, stride = {3}, dilation = {3}, ceil = true},
  {x = f{}, kernel = {2}, _refused = "must be"},
  {x = f{1, 1, 2}, kernel = {3}, _refused = "does not fit"},
  {x = f{1, 1, 4}, kernel = {2}, padding = {2}, _refused = "padding"},
}
S.max_pool_backward = {}
for _, i in ipairs {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13} do
  local s = S.max_pool[i]
  local out = reference.max_pool(s)
  table.insert(S.max_pool_backward, {dy = f(out[1].shape, {seed = 7}),
    where = A.new(out[2].shape, out[2], "i64"), shape = s.x.shape,
    spatial = #s.x.shape - (i == 6 and 1 or i == 10 and 1 or 2), _grad = s._grad})
  if not s.dilation then -- windows without gaps may be named
    local more = {}
    for name, value in pairs(S.max_pool_backward[#S.max_pool_backward]) do more[name] = value end
    local n = more.spatial
    local function full(list, missing)
      local all = {}
      for d = 1, n do all[d] = list and (list[d] or list[1]) or missing and missing[d] or 0 end
      return all
    end
    more.kernel = full(s.kernel)
    more.stride = full(s.stride, more.kernel)
    more.padding = full(s.padding)
    table.insert(S.max_pool_backward, more)
  end
end
S.avg_pool = {
  {x = f{1, 2, 6}, kernel = {2}}, {x = f{1, 2, 7}, kernel = {3}, stride = {2}, padding = {1}},
  {x = f{1, 2, 7}, kernel = {3}, stride = {2}, padding = {1}, count_pad = false},
  {x = f{1, 2, 4, 4}, kernel = {2}},
  {x = f{1, 1, 5, 4}, kernel = {3, 2}, stride = {2, 1}, padding = {1, 0}},
  {x = f{1, 1, 5, 5}, kernel = {2}, stride = {2}, ceil = true},
  {x = f{1, 1, 6, 6}, kernel = {3}, stride = {2}, padding = {1}, ceil = true},
  {x = f{1, 1, 6, 6}, kernel = {3}, stride = {2}, padding = {1}, ceil = true, count_pad = false},
  {x = f{2, 4, 4}, kernel = {2, 2}, stride = {1}}, {x = f{1, 1, 4, 4, 4}, kernel = {2}},
  {x = f{0, 2, 4}, kernel = {2}}, {x = f{2, 6}, kernel = {2}},
  {x = f{2, 5, 21, 23}, kernel = {3}, stride = {2}, padding = {1}, _grad = false,
    _dtypes = "f64 f32 bf16"},
  {x = f{}, kernel = {2}, _refused = "must be"},
}
S.avg_pool_backward = {}
for i = 1, 12 do
  local s = S.avg_pool[i]
  S.avg_pool_backward[i] = {dy = f(reference.avg_pool(s).shape, {seed = 7}), shape = s.x.shape,
    kernel = s.kernel, stride = s.stride, padding = s.padding, count_pad = s.count_pad}
end
for _, count_pad in ipairs {true, false} do
  local s = {x = f{1, 1, 2, 5}, kernel = {3}, stride = {2}, ceil = true, count_pad = count_pad}
  table.insert(S.avg_pool, s)
  table.insert(S.avg_pool_backward, {dy = f(reference.avg_pool(s).shape, {seed = 7}),
    shape = s.x.shape, kernel = {3}, stride = {2}, count_pad = count_pad})
end
S.adaptive_avg_pool = {
  {x = f{1, 2, 7}, size = {3}}, {x = f{1, 2, 5, 7}, size = {3, 2}}, {x = f{2, 5, 7}, size = {2, 3}},
  {x = f{1, 2, 4, 4}, size = {1}}, {x = f{1, 1, 3, 4, 5}, size = {2, 2, 2}},
  {x = f{1, 2, 3}, size = {5}},
  {x = f{0, 2, 7}, size = {3}},
  {x = f{3, 4, 31, 29}, size = {7, 6}, _grad = false, _dtypes = "f64 f32 bf16"},
  {x = f{}, size = {2}, _refused = "must be"},
}
S.adaptive_avg_pool_backward = {}
for i = 1, 7 do
  local s = S.adaptive_avg_pool[i]
  S.adaptive_avg_pool_backward[i] = {dy = f(reference.adaptive_avg_pool(s).shape, {seed = 7}),
    shape = s.x.shape}
end

return S
