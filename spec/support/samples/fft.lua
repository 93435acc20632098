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
  {x = f{256, 2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{320, 2}, inverse = true, _grad = false, _dtypes = "f64 f32"},
  {x = f{146, 2}, _grad = false, _dtypes = "f64 f32"},
  {x = f{4, 3, 2}, dims = 2}, {x = f{2, 3, 4, 5, 2}, dims = 3, inverse = true, scale = 0.5},
  {x = f{4, 3, 2, 2}, dim = 2, dims = 2},
  {x = f{3, 1, 4, 2}, dims = 3}, {x = f{0, 3, 2}, dims = 2},
  {x = f{12, 18, 10, 2}, dims = 3, _grad = false, _dtypes = "f64 f32"},
  {x = f{4, 2}, dims = 2, _refused = "dims is 2, but can be 1 to 1 at dim 1"},
  {x = f{2, 2, 2, 2, 2}, dims = 4, _refused = "dims is 4, but can be 1 to 3"},
  {x = f{4, 2}, dims = 0, _refused = "dims is 0"},
  {x = f{}, _refused = "no dim"}, {x = f{4, 3}, _refused = "last dim of 2"},
  {x = f{4, 2}, dim = 2, _refused = "dim 2 is that of the pairs"},
  {x = f{4, 2}, dim = 3, _refused = "no dim 3"},
}
S.rdft = {
  {x = f{6}}, {x = f{5}}, {x = f{1}}, {x = f{2}}, {x = f{3, 8}}, {x = f{4, 3}, dim = 1},
  {x = f{2, 5, 3}, dim = 2, scale = 0.25}, {x = f{0, 4}}, {x = f{3, 4, 0}, dim = 1},
  {x = f{37}}, {x = f{74}, _grad = false, _dtypes = "f64 f32"},
  {x = f{20, 48}, _grad = false, _dtypes = "f64 f32"},
  {x = f{512}, _grad = false, _dtypes = "f64 f32"},
  {x = f{30, 19}, dim = 1, _grad = false, _dtypes = "f64 f32"},
  {x = f{3, 4}, dims = 2}, {x = f{2, 3, 5}, dims = 2, scale = 0.5}, {x = f{2, 3, 4}, dims = 3},
  {x = f{3, 4, 2}, dim = 2, dims = 2}, {x = f{4, 1}, dims = 2},
  {x = f{3, 12, 18, 10}, dims = 3, _grad = false, _dtypes = "f64 f32"},
  {x = f{3, 15, 21}, dims = 2, _grad = false, _dtypes = "f64 f32"},
  {x = f{4}, dims = 2, _refused = "dims is 2"},
  {x = f{}, _refused = "rdft: needs"}, {x = f{3, 0}, _refused = "something along dim"},
}
S.irdft = {
  {x = f{4, 2}, n = 6}, {x = f{3, 2}, n = 5}, {x = f{1, 2}, n = 1}, {x = f{2, 2}, n = 2},
  {x = f{3, 5, 2}, n = 8}, {x = f{3, 4, 2}, n = 4, dim = 1}, {x = f{2, 3, 3, 2}, n = 5, dim = 2,
    scale = 0.2},
  {x = f{0, 3, 2}, n = 4}, {x = f{3, 0, 2}, n = 4, dim = 1}, {x = f{19, 2}, n = 37},
  {x = f{2, 38, 2}, n = 74, _grad = false, _dtypes = "f64 f32"},
  {x = f{257, 2}, n = 512, _grad = false, _dtypes = "f64 f32"},
  {x = f{20, 9, 2}, n = 16, _grad = false, _dtypes = "f64 f32"},
  {x = f{4, 3, 2}, n = 4, dims = 2}, {x = f{2, 3, 3, 2}, n = 5, dims = 2, scale = 0.5},
  {x = f{2, 3, 4, 2}, n = 6, dims = 3}, {x = f{3, 3, 2, 2}, n = 4, dim = 2, dims = 2},
  {x = f{3, 1, 2}, n = 1, dims = 2},
  {x = f{3, 12, 18, 6, 2}, n = 10, dims = 3, _grad = false, _dtypes = "f64 f32"},
  {x = f{3, 15, 11, 2}, n = 21, dims = 2, _grad = false, _dtypes = "f64 f32"},
  {x = f{4, 2}, n = 6, dims = 2, _refused = "dims is 2"},
  {x = f{}, n = 4, _refused = "no dim"}, {x = f{3, 3}, n = 4, _refused = "last dim of 2"},
  {x = f{3, 2}, n = 6, _refused = "needs n / 2 %+ 1 = 4"},
  {x = f{3, 2}, n = 0, _refused = "irdft"}, {x = f{3, 2}, n = -4, _refused = "irdft"},
}
for _, name in ipairs {"hann_window", "hamming_window", "blackman_window", "bartlett_window",
    "kaiser_window"} do
  S[name] = {
    {n = 8}, {n = 7}, {n = 7, periodic = false}, {n = 1}, {n = 1, periodic = false}, {n = 0},
    {n = 2, periodic = false}, {n = 16, dtype = "f64"}, {n = 5, dtype = "bf16"},
    {n = -1, _refused = "must not be negative"},
  }
end
table.insert(S.kaiser_window, {n = 9, beta = 3, dtype = "f64"})
table.insert(S.hamming_window, {n = 9, alpha = 0.5, beta = 0.25, dtype = "f64"})

-- --- complex tensors ---

local function c(shape) return A.complex(f(shape)) end
local norms = {"backward", "ortho", "forward"}

local function add(name, list)
  S[name] = S[name] or {}
  for _, s in ipairs(list) do table.insert(S[name], s) end
end

for _, name in ipairs {"fft", "ifft"} do
  add(name, {
    {x = c{5, 2}}, {x = f{4}}, {x = c{3, 4, 2}, dim = 1}, {x = c{2, 3, 2}, n = 5},
    {x = c{2, 5, 2}, n = 3}, {x = f{2, 3}, n = 4, dim = 1}, {x = c{0, 3, 2}}, {x = f{0, 3}},
    {x = A.whole({4}, -3, 3)}, {x = A.bools{5}},
    {x = f{}, _refused = "1 dims for a tensor of shape %(%)"},
    {x = f{3, 0}, _refused = "0 is no length"}, {x = f{3}, n = 0, _refused = "0 is no length"},
    {x = f{3}, dim = 2, _refused = "no dim 2"},
  })
  for _, norm in ipairs(norms) do add(name, {{x = c{4, 2}, norm = norm}}) end
end
add("rfft", {
  {x = f{6}}, {x = f{5}}, {x = f{3, 4}, dim = 1}, {x = f{3}, n = 6}, {x = f{2, 5}, n = 3},
  {x = f{0, 4}}, {x = A.whole({4}, -3, 3)}, {x = f{}, _refused = "for a tensor of shape %(%)"},
  {x = c{4, 2}, _refused = "must be real"}, {x = f{3, 0}, _refused = "0 is no length"},
})
add("irfft", {
  {x = c{4, 2}}, {x = c{4, 2}, n = 5}, {x = c{3, 4, 2}, dim = 1}, {x = c{3, 2}, n = 8}, {x = f{3}},
  {x = c{2, 4, 2}, n = 3}, {x = c{0, 3, 2}}, {x = f{}, _refused = "for a tensor of shape %(%)"},
  {x = c{1, 2}, _refused = "0 is no length"},
})
for _, name in ipairs {"rfft", "irfft"} do
  for _, norm in ipairs(norms) do add(name, {{x = f{4}, norm = norm}}) end
end
for _, name in ipairs {"fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn"} do
  add(name, {{x = c{3, 3, 2}}, {x = c{2, 3, 4, 2}, dims = {1, 3}},
    {x = c{2, 3, 2}, s = {4, 3}}, {x = c{2, 3, 2, 2}, s = {2, 3}, dims = {3, 2}, norm = "ortho"}})
end
for _, name in ipairs {"fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"} do
  add(name, {{x = f{2, 3, 3}}, {x = f{3, 3}, norm = "forward"}, {x = f{0, 2, 3}},
    {x = f{}, _refused = "for a tensor of shape %(%)"},
    {x = f{2, 3}, s = {2}, dims = {1, 2}, _refused = "1 lengths and 2 dims"}})
end
S.rfftn[3], S.irfftn[7], S.fftn[7], S.ifftn[7] = {x = f{0, 3}, s = {3}}, {x = f{0, 3}, s = {3}},
  {x = f{0, 3}, s = {3}}, {x = f{0, 3}, s = {3}}
for _, name in ipairs {"fftn", "ifftn", "rfftn", "irfftn"} do
  add(name, {{x = f{2, 2, 3, 2, 3}, _grad = false}, {x = f{2, 3, 2, 4}, dims = {3, 2, 4}}})
end

for _, name in ipairs {"fftshift", "ifftshift"} do
  S[name] = {
    {x = f{5}}, {x = f{4}}, {x = f{2, 3}}, {x = f{2, 3, 4}, dims = {2}}, {x = f{1}}, {x = f{}},
    {x = f{0, 3}}, {x = A.whole({5}, -3, 3)}, {x = c{5, 2}}, {x = c{2, 3, 2}, dims = {2}},
    {x = f{2}, dims = {2}, _refused = "no dim 2"},
  }
end
for _, name in ipairs {"fftfreq", "rfftfreq"} do
  S[name] = {{n = 4}, {n = 5}, {n = 1}, {n = 6, d = 0.25, dtype = "f64"},
    {n = 0, _refused = "at least 1"}}
end

S.stft = {
  {x = f{12}, n_fft = 4}, {x = f{2, 12}, n_fft = 4, hop = 2, window = f({4}, {from = 0.1, to = 1})},
  {x = f{12}, n_fft = 5, hop = 3, center = false}, {x = f{9}, n_fft = 4, normalized = true},
  {x = f{9}, n_fft = 4, onesided = false, hop = 4}, {x = f{0, 8}, n_fft = 4},
  {x = f{9}, n_fft = 5, win_length = 2, window = f({2}, {from = 0.1, to = 1})},
  {x = f{}, n_fft = 4, _refused = "stft: needs"}, {x = f{3}, n_fft = 9, _refused = "enough for"},
  {x = f{9}, n_fft = 4, window = f{3}, _refused = "a window of win_length"},
  {x = f{9}, n_fft = 0, _refused = "n_fft"}, {x = f{9}, n_fft = 4, hop = 0, _refused = "hop > 0"},
  {x = c{9, 2}, n_fft = 4, _refused = "c128"},
}
local w4 = f({4}, {from = 0.5, to = 1})
S.istft = {
  {x = c{3, 5, 2}, n_fft = 4, hop = 2, window = w4}, {x = c{3, 5, 2}, n_fft = 4, hop = 2},
  {x = c{2, 3, 4, 2}, n_fft = 5, hop = 2, center = false},
  {x = c{3, 5, 2}, n_fft = 4, hop = 2, normalized = true, length = 7},
  {x = c{4, 3, 2}, n_fft = 4, hop = 2, onesided = false}, {x = c{0, 3, 4, 2}, n_fft = 4, hop = 2},
  {x = c{3, 4, 2}, n_fft = 4, hop = 2, length = 12},
  {x = f{}, n_fft = 4, _refused = "istft: needs"},
  {x = f{3, 4}, n_fft = 4, _refused = "needs complex"},
  {x = c{4, 4, 2}, n_fft = 4, _refused = "with 3 frequencies"},
  {x = c{3, 4, 2}, n_fft = 4, length = -1, _refused = "no length"},
}

return S
