--- Arguments for the composed rows over dims of space.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local floats = "f64 f32 f16 bf16"

S.im2col = {
  {x = f{2, 3, 5}, kernel = {2}}, {x = f{1, 2, 4, 5}, kernel = {2, 3}},
  {x = f{1, 2, 5, 5}, kernel = {2}, dilation = {2}, padding = {1}, stride = {2}},
  {x = f{2, 4, 5}, kernel = {2, 2}, padding = {1, 0}, stride = {1, 2}},
  {x = f{1, 1, 3, 3, 4}, kernel = {2}, stride = {1}}, {x = f{0, 2, 4}, kernel = {2}},
  {x = f{}, kernel = {2}, _refused = "must be"}, {x = f{1, 1, 2}, kernel = {3},
    _refused = "does not fit into"},
  {x = f{1, 1, 4}, kernel = {0}, _refused = "at least 1"},
}
S.fold = {
  {x = f{2, 6, 4}, size = {5}, kernel = {2}}, {x = f{1, 12, 9}, size = {4, 5}, kernel = {2, 3}},
  {x = f{1, 8, 9}, size = {5, 5}, kernel = {2}, dilation = {2}, padding = {1}, stride = {2}},
  {x = f{8, 6}, size = {3, 4}, kernel = {2}}, {x = f{1, 8, 12}, size = {3, 3, 4}, kernel = {2}},
  {x = f{0, 6, 4}, size = {5}, kernel = {2}},
  {x = f{}, size = {5}, kernel = {2}, _refused = "must be"},
  {x = f{2, 5, 4}, size = {5}, kernel = {2}, _refused = "needs a multiple"},
  {x = f{2, 6, 3}, size = {5}, kernel = {2}, _refused = "has 4 windows"},
}
S.pixel_shuffle = {
  {x = f{1, 8, 2, 3}, factor = 2}, {x = f{9, 1, 2}, factor = 3}, {x = f{2, 1, 4, 2, 2}, factor = 2},
  {x = f{0, 4, 2, 2}, factor = 2}, {x = f{}, factor = 2, _refused = "must be"},
  {x = f{6, 2, 2}, factor = 2, _refused = "does not divide"},
  {x = f{6, 2, 2}, factor = 0, _refused = "does not divide"},
}
S.pixel_unshuffle = {
  {x = f{1, 2, 4, 6}, factor = 2}, {x = f{1, 3, 6}, factor = 3}, {x = f{0, 1, 2, 2}, factor = 2},
  {x = f{}, factor = 2, _refused = "must be"},
  {x = f{1, 3, 2}, factor = 2, _refused = "does not divide"},
}
S.channel_shuffle = {
  {x = f{2, 6, 3}, groups = 2}, {x = f{1, 6, 2, 2}, groups = 3}, {x = f{2, 4}, groups = 4},
  {x = f{0, 4, 3}, groups = 2}, {x = f{}, groups = 2, _refused = "must be"},
  {x = f{2, 5}, groups = 2, _refused = "does not divide"},
}
S.adaptive_max_pool = {
  {x = f{1, 2, 7}, size = {3}}, {x = f{1, 2, 5, 7}, size = {3, 2}}, {x = f{2, 6, 4}, size = {2, 3}},
  {x = f{1, 2, 6, 4}, size = {3, 2}}, {x = f{1, 1, 3, 4, 5}, size = {2}},
  {x = f{1, 2, 3}, size = {5}}, {x = f{0, 2, 7}, size = {3}},
  {x = f{}, size = {2}, _refused = "must be"},
  {x = f{1, 2, 0}, size = {2}, _refused = "no largest element"},
}
local above = {from = 0.5, to = 3}
S.lp_pool = {
  {x = f{1, 2, 6}, p = 2, kernel = {2}}, {x = f({1, 2, 5, 4}, above), p = 3, kernel = {2, 3},
    stride = {1}},
  {x = f({2, 5, 5}, above), p = 1.5, kernel = {3, 3}, stride = {2, 2}, padding = {1}},
  {x = f({1, 1, 6}, above), p = 2, kernel = {4}, stride = {3}, ceil = true},
  {x = f({1, 1, 2, 3, 2}, above), p = 1, kernel = {2}, stride = {1}}, {x = f{0, 2, 4}, p = 2,
    kernel = {2}},
  {x = f{}, p = 2, kernel = {2}, _refused = "must be"},
  {x = f{1, 1, 4}, p = 0, kernel = {2}, _refused = "above 0"},
}
local function at(shape, list) return A.new(shape, list, "i64") end
S.max_unpool = {
  {x = f{1, 2, 3}, where = at({1, 2, 3}, {1, 4, 5, 2, 3, 6}), kernel = {2}},
  {x = f{2, 2, 2}, where = at({2, 2, 2}, {1, 4, 12, 9, 2, 3, 13, 11}), kernel = {2, 2},
    size = {4, 5}},
  {x = f{1, 1, 2, 2}, where = at({1, 1, 2, 2}, {1, 3, 7, 9}), kernel = {3}, stride = {2},
    padding = {1}},
  {x = f{0, 2, 3}, where = at({0, 2, 3}, {}), kernel = {2}},
  {x = f{}, where = at({}, {1}), kernel = {2}, _refused = "must be"},
  {x = f{1, 1, 2}, where = at({1, 1, 2}, {1, 5}), kernel = {2}, _refused = "5"},
  {x = f{1, 1, 2}, where = at({1, 1, 1}, {1}), kernel = {2}, _refused = "must be the same"},
}

S.resample = {
  {x = f{2, 5}, dim = 2, size = 9, start = -0.25, step = 0.5, _dtypes = floats},
  {x = f{5, 2}, dim = 1, size = 3, start = 0.5, step = 1.5, _dtypes = floats},
  {x = f{2, 5, 2}, dim = 2, size = 4, start = -1.5, step = 2, outside = 7, _dtypes = floats},
  {x = f{6}, dim = 1, size = 8, start = -0.3, step = 0.7, mode = "cubic", _dtypes = floats},
  {x = f{6}, dim = 1, size = 8, start = -0.3, step = 0.7, mode = "cubic", cubic = -0.5,
    exclude_outside = true, _dtypes = floats},
  {x = f{2, 9}, dim = 2, size = 4, start = 0.7, step = 2.3, antialias = true, _dtypes = floats},
  {x = f{9, 2}, dim = 1, size = 4, start = 0.7, step = 2.3, antialias = true,
    exclude_outside = true, mode = "cubic", _dtypes = floats},
  {x = f{2, 150}, dim = 2, size = 3, start = 20.3, step = 41.5, antialias = true,
    _grad = false, _dtypes = "f64 f32"}, -- a product of matrices
  {x = f{150}, dim = 1, size = 3, start = -20.3, step = 41.5, antialias = true, mode = "cubic",
    exclude_outside = true, _grad = false, _dtypes = "f64 f32"},
  {x = f{4}, dim = 1, size = 0, _dtypes = floats}, {x = f{}, dim = 1, size = 1, _dtypes = floats},
  {x = f{0, 4}, dim = 2, size = 3, step = 1.5, _dtypes = floats},
  {x = f{3}, dim = 1, size = 2, step = 1 / 0, _refused = "cannot make"},
  {x = f{0}, dim = 1, size = 2, _refused = "cannot make"},
  {x = f{3}, dim = 1, size = -1, _refused = "cannot make"},
  {x = A.whole({4}, 0, 9), dim = 1, size = 2, _refused = "mode = nearest only"},
}
for _, rounding in ipairs {"floor", "ceil", "half_down", "half_up"} do
  table.insert(S.resample, {x = f{2, 4}, dim = 2, size = 7, start = -0.5, step = 0.75,
    mode = "nearest", rounding = rounding})
  table.insert(S.resample, {x = f{3}, dim = 1, size = 9, step = 1 / 3, mode = "nearest",
    rounding = rounding})
end
S.interpolate = {
  {x = f{1, 2, 3}, size = {7}}, {x = f{1, 2, 3, 4}, scale = 2}, {x = f{1, 1, 5}, size = {3},
    mode = "nearest_exact"},
  {x = f{1, 2, 3}, size = {5}, mode = "linear", _dtypes = floats},
  {x = f{1, 1, 3, 4}, size = {5, 2}, mode = "linear", align_corners = true, _dtypes = floats},
  {x = f{1, 1, 2, 3, 2}, scale = 1.5, mode = "linear", _dtypes = floats},
  {x = f{1, 1, 4, 3}, size = {5}, mode = "cubic", _dtypes = floats},
  {x = f{1, 1, 7, 5}, size = {3, 2}, mode = "linear", antialias = true, _dtypes = floats},
  {x = f{1, 1, 7, 5}, size = {3, 2}, mode = "cubic", antialias = true, _dtypes = floats},
  {x = f{1, 2, 5, 4}, size = {2, 3}, mode = "area", _dtypes = floats},
  {x = f{0, 2, 3}, size = {5}, mode = "linear", _dtypes = floats},
  {x = f{1, 1, 4}, size = {1}, mode = "linear", align_corners = true, _dtypes = floats},
  {x = f{}, size = {2}, _refused = "must be"}, {x = f{1, 1, 3}, _refused = "needs a size"},
  {x = f{1, 1, 3}, scale = 0.1, _refused = "at least 1 element"},
  {x = f{1, 1, 3, 3}, size = {1, 2, 3}, _refused = "one for each"},
}
local function g(shape, seed) return f(shape, {seed = seed or 3, from = -1.4, to = 1.4}) end
S.grid_sample = {
  {x = f{0, 2, 3, 3}, grid = g{0, 2, 2, 2}},
  {x = f{}, grid = g{1, 2, 2, 2}, _refused = "must be"},
  {x = f{1, 1, 2, 2}, grid = g{1, 2, 2, 3}, _refused = "must be"},
  {x = f{1, 1, 2, 2, 2}, grid = g{1, 2, 2, 2, 3}, mode = "cubic", _refused = "2 dims of space"},
}
for _, padding in ipairs {"zeros", "border", "reflection"} do
  for _, align in ipairs {false, true} do
    for _, mode in ipairs {"nearest", "linear", "cubic"} do
      table.insert(S.grid_sample, {x = f{2, 2, 3, 4}, grid = g{2, 2, 3, 2}, mode = mode,
        padding = padding, align_corners = align, _grad = mode == "nearest" and {"x"} or nil})
    end
    table.insert(S.grid_sample, {x = f{1, 2, 2, 3, 3}, grid = g{1, 2, 1, 2, 3}, padding = padding,
      align_corners = align})
  end
end

S.resample_backward = {
  {dy = f{2, 9}, dim = 2, size = 5, start = -0.25, step = 0.5}, {dy = f{}, dim = 1, size = 1},
  {dy = f{3, 2}, dim = 1, size = 5, start = 0.5, step = 1.5, mode = "nearest"},
  {dy = f{2, 4, 2}, dim = 2, size = 5, start = -1.5, step = 2, outside = 7},
  {dy = f{2, 40}, dim = 2, size = 20, start = -0.25, step = 0.5, _grad = false},
  {dy = f{8}, dim = 1, size = 6, start = -0.3, step = 0.7, mode = "cubic"},
  {dy = f{4}, dim = 1, size = 9, start = 0.7, step = 2.3, antialias = true},
  {dy = f{0}, dim = 1, size = 4}, {dy = f{4}, dim = 1, size = 0, _refused = "4 of 0 elements"},
  {dy = f{}, dim = 1, size = 2, _refused = "one element"},
}
S.grid_sample_backward = {
  {dy = f{2, 2, 2, 3}, x = f{2, 2, 3, 4}, grid = g{2, 2, 3, 2}},
  {dy = f{1, 1, 2, 3}, x = f{1, 1, 3, 4}, grid = g{1, 2, 3, 2}, mode = "cubic"},
  {dy = f{1, 2, 1, 2}, x = f{1, 2, 3, 2}, grid = g{1, 1, 2, 2}, padding = "border"},
  {dy = f{1, 1, 1, 2, 1}, x = f{1, 1, 2, 3, 2}, grid = g{1, 1, 2, 1, 3}, padding = "reflection",
    align_corners = true},
  {dy = f{0, 2, 2, 2}, x = f{0, 2, 3, 3}, grid = g{0, 2, 2, 2}},
  {dy = f{1, 2, 2, 3}, x = f{1, 2, 3, 4}, grid = g{1, 3, 2, 2}, _refused = "dy has shape"},
  {dy = f{1, 1, 2, 2}, x = f{1, 1, 2, 2}, grid = g{1, 2, 2, 3}, _refused = "must be"},
  {dy = f{}, x = f{}, grid = g{}, _refused = "must be"},
}

return S
