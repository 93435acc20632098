--- Arguments for the Fourier transforms and windows.
local A = require "spec.support.array"

local S = {}
local f = A.fill

S.dft = {
  {x = f{5, 2}}, {x = f{4, 2}, inverse = true}, {x = f{3, 6, 2}}, {x = f{6, 3, 2}, dim = 1},
  {x = f{2, 3, 4, 2}, dim = 2, scale = 0.5}, {x = f{1, 2}}, {x = f{2, 2}, inverse = true},
  {x = f{0, 2}}, {x = f{0, 3, 2}}, {x = f{3, 0, 2}}, {x = f{7, 2}}, {x = f{8, 2}}, {x = f{9, 2}},
  {x = f{37, 2}}, {x = f{2, 74, 2}, inverse = true, _grad = false, _dtypes = "f64 f32"},
  {x = f{3, 60, 2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{48, 5, 2}, dim = 1, _grad = false, _dtypes = "f64 f32"},
  {x = f{17, 16, 2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{}, _refused = "no dim"}, {x = f{4, 3}, _refused = "last dim of 2"},
  {x = f{4, 2}, dim = 2, _refused = "dim 2 is that of the pairs"},
  {x = f{4, 2}, dim = 3, _refused = "no dim 3"},
}
S.rdft = {
  {x = f{6}}, {x = f{5}}, {x = f{1}}, {x = f{2}}, {x = f{3, 8}}, {x = f{4, 3}, dim = 1},
  {x = f{2, 5, 3}, dim = 2, scale = 0.25}, {x = f{0, 4}}, {x = f{3, 4, 0}, dim = 1},
  {x = f{37}}, {x = f{74}, _grad = false, _dtypes = "f64 f32"},
  {x = f{20, 48}, _grad = false, _dtypes = "f64 f32"},
  {x = f{30, 19}, dim = 1, _grad = false, _dtypes = "f64 f32"},
  {x = f{}, _refused = "rdft: needs"}, {x = f{3, 0}, _refused = "something along dim"},
}
S.irdft = {
  {x = f{4, 2}, n = 6}, {x = f{3, 2}, n = 5}, {x = f{1, 2}, n = 1}, {x = f{2, 2}, n = 2},
  {x = f{3, 5, 2}, n = 8}, {x = f{3, 4, 2}, n = 4, dim = 1}, {x = f{2, 3, 3, 2}, n = 5, dim = 2,
    scale = 0.2},
  {x = f{0, 3, 2}, n = 4}, {x = f{3, 0, 2}, n = 4, dim = 1}, {x = f{19, 2}, n = 37},
  {x = f{2, 38, 2}, n = 74, _grad = false, _dtypes = "f64 f32"},
  {x = f{}, n = 4, _refused = "no dim"}, {x = f{3, 3}, n = 4, _refused = "last dim of 2"},
  {x = f{3, 2}, n = 6, _refused = "needs n / 2 %+ 1 = 4"},
  {x = f{3, 2}, n = 0, _refused = "irdft"}, {x = f{3, 2}, n = -4, _refused = "irdft"},
}
for _, name in ipairs {"hann_window", "hamming_window", "blackman_window"} do
  S[name] = {
    {n = 8}, {n = 7}, {n = 7, periodic = false}, {n = 1}, {n = 1, periodic = false}, {n = 0},
    {n = 2, periodic = false}, {n = 16, dtype = "f64"}, {n = 5, dtype = "bf16"},
    {n = -1, _refused = "must not be negative"},
  }
end
table.insert(S.hamming_window, {n = 9, alpha = 0.5, beta = 0.25, dtype = "f64"})

return S
