--- Arguments for attention and the recurrent cells.
local A = require "spec.support.array"
local reference = require "spec.support.reference.attention"

local S = {}
local f = A.fill
local function g(shape, seed) return f(shape, {from = -1, to = 1, seed = seed}) end

local allowed = A.bools({3, 4}, 5)
allowed[1], allowed[5], allowed[9] = 1, 1, 1
local blind = A.bools({3, 4}, 5)
for k = 5, 8 do blind[k] = 0 end -- query 2 sees nothing

S.attention = {
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 3}, 3)},
  {q = g{3, 2}, k = g({4, 2}, 2), v = g({4, 2}, 3)},
  {q = g{2, 3, 2}, k = g({2, 4, 2}, 2), v = g({2, 4, 2}, 3)},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 3, 2}, 2), v = g({1, 2, 3, 2}, 3), causal = true},
  {q = g{1, 1, 4, 2}, k = g({1, 1, 3, 2}, 2), v = g({1, 1, 3, 2}, 3), causal = true},
  {q = g{1, 2, 2, 2}, k = g({1, 2, 5, 2}, 2), v = g({1, 2, 5, 2}, 3), causal = true},
  {q = g{1, 2, 2, 2}, k = g({1, 1, 5, 2}, 2), v = g({1, 1, 5, 2}, 3), causal = true, dropout = 0.3,
    _seed = 9},
  {q = g{1, 4, 2, 2}, k = g({1, 2, 3, 2}, 2), v = g({1, 2, 3, 2}, 3), scale = 0.3}, -- shared heads
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3), mask = allowed},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3), mask = blind},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3), mask = g({3, 4}, 4)},
  {q = g{2, 2, 3, 2}, k = g({2, 2, 3, 2}, 2), v = g({2, 2, 3, 2}, 3), mask = g({2, 1, 1, 3}, 4),
    causal = true},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3), dropout = 0.4, _seed = 7},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 3, 2}, 2), v = g({1, 2, 3, 2}, 3), dropout = 0.3,
    causal = true, _seed = 8},
  {q = g{0, 2, 3, 2}, k = g({0, 2, 4, 2}, 2), v = g({0, 2, 4, 2}, 3)},
  {q = g{1, 2, 0, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3)},
  {q = g{1, 2, 70, 16}, k = g({1, 2, 150, 16}, 2), v = g({1, 2, 150, 8}, 3), _grad = false,
    _dtypes = "f64 f32 bf16"},
  {q = g{1, 1, 130, 20}, k = g({1, 1, 130, 20}, 2), v = g({1, 1, 130, 20}, 3), causal = true,
    _grad = false,
    _dtypes = "f64 f32"},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 2}, 2), v = g({1, 2, 4, 2}, 3), mask = allowed, _all = true},
  {q = g{}, k = g{}, v = g{}, _refused = "must be"},
  {q = g{1, 2, 3, 2}, k = g({1, 2, 4, 3}, 2), v = g({1, 2, 4, 2}, 3), _refused = "do not fit"},
}
S.attention_backward = {}
for i = 1, 17 do
  local s = S.attention[i]
  local out = reference.attention(s)
  if out[2] then -- else a query sees nothing
    local new = {dy = f(out[1].shape, {seed = 9}), y = out[1], lse = out[2], _grad = false}
    for _, name in ipairs {"q", "k", "v", "mask", "causal", "scale",
      "dropout"} do new[name] = s[name] end
    new.seed, new.offset = s._seed or 0, 0
    out[1].dtype, out[2].dtype = "f64", "f64"
    new._dtypes = "f64 f32"
    S.attention_backward[#S.attention_backward + 1] = new
  end
end

local function sums(...) return A.new({select("#", ...)}, {...}, "i64") end
S.attention_varlen = {
  {q = g{5, 2, 2}, k = g({5, 2, 2}, 2), v = g({5, 2, 3}, 3), cu_seqlens_q = sums(0, 2, 5)},
  {q = g{5, 4, 2}, k = g({5, 2, 2}, 2), v = g({5, 2, 2}, 3), cu_seqlens_q = sums(0, 1, 5),
    causal = true, scale = 0.3},
  {q = g{5, 1, 2}, k = g({7, 1, 2}, 2), v = g({7, 1, 2}, 3), cu_seqlens_q = sums(0, 2, 5),
    cu_seqlens_k = sums(0, 4, 7), causal = true},
  {q = g{5, 1, 2}, k = g({4, 1, 2}, 2), v = g({4, 1, 2}, 3), cu_seqlens_q = sums(0, 3, 3, 5),
    cu_seqlens_k = sums(0, 1, 2, 4), causal = true}, -- one without queries; queries see nothing
  {q = g{4, 1, 2}, k = g({4, 1, 2}, 2), v = g({4, 1, 2}, 3), cu_seqlens_q = sums(0, 2, 4),
    cu_seqlens_k = sums(0, 0, 3)}, -- one without keys, and a key behind the last
  {q = g{5, 2, 2}, k = g({5, 2, 2}, 2), v = g({5, 2, 2}, 3), cu_seqlens_q = sums(0, 3),
    causal = true}, -- rows behind the last
  {q = g{5, 2, 2}, k = g({5, 1, 2}, 2), v = g({5, 1, 2}, 3), cu_seqlens_q = sums(0, 3, 5),
    dropout = 0.4, _seed = 7},
  {q = g{2, 1, 2}, k = g({2, 1, 2}, 2), v = g({2, 1, 2}, 3), cu_seqlens_q = sums(0)},
  {q = g{0, 1, 2}, k = g({0, 1, 2}, 2), v = g({0, 1, 2}, 3), cu_seqlens_q = sums(0, 0)},
  {q = g{140, 2, 16}, k = g({140, 1, 16}, 2), v = g({140, 1, 8}, 3), causal = true,
    cu_seqlens_q = A.new({5}, {0, 70, 71, 71, 140}, "i32"), _grad = false,
    _dtypes = "f64 f32 bf16"},
  {q = g{5, 2, 2}, k = g({5, 2, 2}, 2), v = g({5, 2, 3}, 3), cu_seqlens_q = sums(0, 2, 5),
    _all = true},
  {q = g{5, 2}, k = g{5, 2}, v = g{5, 2}, cu_seqlens_q = sums(0, 5), _refused = "q must be"},
  {q = g{5, 2, 2}, k = g{5, 2, 3}, v = g{5, 2, 2}, cu_seqlens_q = sums(0, 5),
    _refused = "do not fit"},
  {q = g{5, 2, 2}, k = g{6, 2, 2}, v = g{6, 2, 2}, cu_seqlens_q = sums(0, 5),
    _refused = "need cu_seqlens_k"},
  {q = g{5, 2, 2}, k = g{6, 2, 2}, v = g{6, 2, 2}, cu_seqlens_q = sums(0, 5),
    cu_seqlens_k = sums(0, 3, 6), _refused = "both have one more"},
}
S.attention_varlen_backward = {}
for i = 1, 10 do
  local s = S.attention_varlen[i]
  local out = reference.attention_varlen(s)
  if out[2] then -- else a query sees nothing
    local new = {dy = f(out[1].shape, {seed = 9}), y = out[1], lse = out[2], seed = s._seed or 0,
                 offset = 0, _grad = {"dy"}, _dtypes = "f64 f32"} -- y, lse follow from q, k, v
    for _, name in ipairs {"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "causal", "scale",
      "dropout"} do new[name] = s[name] end
    out[1].dtype, out[2].dtype = "f64", "f64"
    table.insert(S.attention_varlen_backward, new)
  end
end

S.lstm_cell = {
  {gates = f{2, 12}, c = f({2, 3}, {seed = 2})}, {gates = f{8}, c = f({2}, {seed = 2})},
  {gates = f{2, 2, 4}, c = f({2, 2, 1}, {seed = 2})}, {gates = f{0, 12}, c = f({0, 3}, {seed = 2})},
  {gates = f{2, 0}, c = f({2, 0}, {seed = 2})}, {gates = f{2, 12}, c = f({2, 3},
  {seed = 2}), _all = true},
  {gates = f{9, 140}, c = f({9, 35}, {seed = 2}), _grad = false, _dtypes = "f64 f32"},
  {gates = f{}, c = f{}, _refused = "does not fit"},
  {gates = f{2, 8}, c = f{2, 3}, _refused = "does not fit"},
}
local function sequence(time, batch, n, more)
  local s = {gates = f{time, batch, 4 * n}, weight = f({4 * n, n}, {seed = 2}),
    h = f({batch, n}, {seed = 3}), c = f({batch, n}, {seed = 4})}
  for k, v in pairs(more or {}) do s[k] = v end
  return s
end
S.lstm = {
  sequence(3, 2, 3), sequence(2, 3, 2, {reverse = true}), sequence(1, 1, 1), sequence(0, 2, 3),
  sequence(2, 0, 3), sequence(2, 2, 0), sequence(2, 2, 2, {_all = true}),
  sequence(5, 17, 9, {_grad = false, _dtypes = "f64 f32"}),
  sequence(4, 33, 70, {_grad = false, _dtypes = "f64 f32", reverse = true}),
  sequence(2, 2, 3, {weight = f{12, 4}, _refused = "needs gates"}),
  sequence(2, 2, 3, {gates = f{}, weight = f{}, h = f{}, c = f{}, _refused = "needs gates"}),
}
S.gru_cell = {
  {gi = f{2, 9}, gh = f({2, 9}, {seed = 2}), h = f({2, 3}, {seed = 3})},
  {gi = f{6}, gh = f({6}, {seed = 2}), h = f({2}, {seed = 3})},
  {gi = f{2, 9}, gh = f({2, 9}, {seed = 2}), h = f({2, 3}, {seed = 3}), _all = true},
  {gi = f{0, 9}, gh = f({0, 9}, {seed = 2}), h = f({0, 3}, {seed = 3})},
  {gi = f{9, 105}, gh = f({9, 105}, {seed = 2}), h = f({9, 35},
  {seed = 3}), _grad = false, _dtypes = "f64 f32"},
  {gi = f{}, gh = f{}, h = f{}, _refused = "does not fit"},
}
local function gru(time, batch, n, more)
  local s = {gates = f{time, batch, 3 * n}, weight = f({3 * n, n}, {seed = 2}),
    bias = f({3 * n}, {seed = 4}), h = f({batch, n}, {seed = 3})}
  for k, v in pairs(more or {}) do s[k] = v or nil end -- false: left out
  return s
end
S.gru = {
  gru(3, 2, 3), gru(2, 3, 2, {reverse = true, bias = false}), gru(1, 1, 1), gru(0, 2, 3),
  gru(2, 0, 3), gru(2, 2, 0), gru(2, 2, 2, {_all = true}),
  gru(5, 17, 9, {_grad = false, _dtypes = "f64 f32"}),
  gru(4, 33, 70, {_grad = false, _dtypes = "f64 f32", reverse = true}),
  gru(2, 2, 3, {weight = f{9, 4}, _refused = "needs gates"}),
  gru(2, 2, 3, {bias = f{3}, _refused = "needs gates"}),
  gru(2, 2, 3, {gates = f{}, weight = f{}, h = f{}, _refused = "needs gates"}),
}
S.gru_backward = {{dy = f{}, weight = f{}, h = f{}, y = f{}, act = f{}, _refused = "needs act"}}
for _, i in ipairs {1, 2, 3, 4, 5, 6, 8, 9} do
  local s = S.gru[i]
  local out = reference.gru(s)
  for _, x in ipairs(out) do x.dtype = "f64" end
  local function with(dy, dact)
    table.insert(S.gru_backward, {dy = dy and f(out[1].shape, {seed = 5}) or nil,
      dact = dact and f(out[2].shape, {seed = 7}) or nil, weight = s.weight, h = s.h, y = out[1],
      act = out[2], reverse = s.reverse, _grad = s._grad, _dtypes = "f64 f32"})
  end
  with(true, i < 8)
  if i < 3 then
    with(true, false)
    with(false, true)
  end
end
S.lstm_backward = {}
for _, i in ipairs {1, 2, 3, 4, 5, 6, 8, 9} do
  local s = S.lstm[i]
  local out = reference.lstm(s)
  for _, x in ipairs(out) do x.dtype = "f64" end
  local function with(dy, dcs, dact)
    table.insert(S.lstm_backward, {dy = dy and f(out[1].shape, {seed = 5}) or nil,
      dcs = dcs and f(out[1].shape, {seed = 6}) or nil,
      dact = dact and f(out[3].shape, {seed = 7}) or nil, weight = s.weight, c = s.c,
      cs = out[2], act = out[3], reverse = s.reverse, _grad = s._grad, _dtypes = "f64 f32"})
  end
  with(true, true, i < 8)
  if i < 3 then
    with(true, false, false)
    with(false, true, false)
    with(false, false, true)
  end
end
table.insert(S.lstm_backward, {dy = f{}, weight = f{}, c = f{}, cs = f{}, act = f{},
  _refused = "needs act"})
S.lstm_cell_backward, S.gru_cell_backward = {}, {}
for _, i in ipairs {1, 2, 4, 7} do
  local s = S.lstm_cell[i]
  local out = reference.lstm_cell(s)
  for _, x in ipairs(out) do x.dtype = "f64" end
  local function with(dh, dc)
    table.insert(S.lstm_cell_backward, {dh = dh and f(s.c.shape, {seed = 5}) or nil,
      dc = dc and f(s.c.shape, {seed = 6}) or nil, c = s.c, c2 = out[2], act = out[3],
        _dtypes = "f64 f32"})
  end
  with(true, true)
  if i == 1 then
    with(true, false)
    with(false, true)
  end
end
for _, i in ipairs {1, 2, 4, 5} do
  local s = S.gru_cell[i]
  local out = reference.gru_cell(s)
  out[2].dtype = "f64"
  table.insert(S.gru_cell_backward, {dy = f(s.h.shape, {seed = 5}), gh = s.gh, h = s.h,
    act = out[2],
    _dtypes = "f64 f32"})
end

return S
