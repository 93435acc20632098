--- Arguments for the random rows; `_seed` is the generator's.
local A = require "spec.support.array"

local S = {}
local f = A.fill

S.rand = {
  {shape = {2, 3}, _seed = 1}, {shape = {}, _seed = 2}, {shape = {0, 3}, _seed = 2},
  {shape = {301}, _seed = 3, low = -2, high = 5},
  {shape = {301}, _seed = 2 ^ 40 | 0, dtype = "f64"},
  {shape = {150}, _seed = 5, dtype = "f16"}, {shape = {150}, _seed = 5, dtype = "bf16"},
  {shape = {2}, _seed = 1, dtype = "i32", _refused = "must be a float"},
  {shape = {2}, _seed = 1, low = 2, high = 1, _refused = "must not be above"},
}
S.randn = {
  {shape = {2, 3}, _seed = 1}, {shape = {}, _seed = 2}, {shape = {0, 3}, _seed = 2},
  {shape = {301}, _seed = 3, mean = 10, std = 2}, {shape = {301}, _seed = 4, dtype = "f64"},
  {shape = {150}, _seed = 5, dtype = "f16"}, {shape = {150}, _seed = 5, dtype = "bf16"},
  {shape = {2}, _seed = 1, std = -1, _refused = "at least 0"},
}
S.randint = {
  {low = 0, high = 10, shape = {2, 3}, _seed = 1}, {low = -5, high = 6, shape = {300}, _seed = 2},
  {low = 0, high = 256, shape = {200}, _seed = 3, dtype = "u8"},
  {low = 1, high = 2, shape = {}, _seed = 3},
  {low = 0, high = 3, shape = {0}, _seed = 3},
  {low = 0, high = 100, shape = {150}, _seed = 4, dtype = "f32"},
  {low = 3, high = 3, shape = {2}, _seed = 1, _refused = "below high"},
  {low = 0, high = 300, shape = {2}, _seed = 1, dtype = "u8", _refused = "cannot hold"},
}
S.randperm = {
  {n = 10, _seed = 1}, {n = 300, _seed = 2}, {n = 1, _seed = 3}, {n = 0, _seed = 4},
  {n = 100, _seed = 5, dtype = "i32"}, {n = -1, _seed = 1, _refused = "negative"},
}
local function drawn(wrong, says, more)
  local list = {
    {shape = {2, 3}, _seed = 1}, {shape = {}, _seed = 2}, {shape = {0, 3}, _seed = 2},
    {shape = {301}, _seed = 3}, {shape = {301}, _seed = 2 ^ 40 | 0, dtype = "f64"},
    {shape = {150}, _seed = 5, dtype = "f16"}, {shape = {150}, _seed = 5, dtype = "bf16"},
    {shape = {2}, _seed = 1, dtype = "i32", _refused = "must be a float"},
  }
  more.shape, more._seed = {200}, 6
  wrong.shape, wrong._seed, wrong._refused = {2}, 1, says
  list[#list + 1], list[#list + 2] = more, wrong
  return list
end
S.exponential = drawn({rate = 0}, "must be above 0", {rate = 4})
S.cauchy = drawn({sigma = -1}, "must be above 0", {median = 2, sigma = 0.5})
S.log_normal = drawn({std = -1}, "at least 0", {mean = -1, std = 0.5})
S.geometric = {
  {shape = {2, 3}, p = 0.5, _seed = 1}, {shape = {}, p = 0.1, _seed = 2},
  {shape = {0}, p = 1, _seed = 3},
  {shape = {301}, p = 0.02, _seed = 4}, {shape = {3}, p = 1, _seed = 5, dtype = "f32"},
  {shape = {150}, p = 0.3, _seed = 5, dtype = "u8"},
  {shape = {2}, p = 0, _seed = 1, _refused = "above 0"},
  {shape = {2}, p = 1.5, _seed = 1, _refused = "at most 1"},
}
local function shapes(shape, from, to) return f(shape, {from = from, to = to}) end
S.gamma = {
  {alpha = shapes({2, 3}, 0.3, 4), _seed = 1}, {alpha = shapes({}, 1, 2), _seed = 2},
  {alpha = f{0, 3}, _seed = 3}, {alpha = shapes({200}, 0.05, 1), _seed = 4},
  {alpha = shapes({200}, 1, 300), _seed = 5},
  {alpha = A.new({2}, {1, 0}), _seed = 1, _refused = "0 is no shape"},
  {alpha = A.new({2}, {math.huge, 1}), _seed = 1, _refused = "inf is no shape"},
}
for _, s in ipairs(S.gamma) do s._grad = false end -- random_spec.lua knows what it must be
S.poisson = {
  {rate = shapes({2, 3}, 0.3, 4), _seed = 1}, {rate = shapes({}, 1, 2), _seed = 2},
  {rate = f{0, 3}, _seed = 3}, {rate = shapes({200}, 0, 12), _seed = 4},
  {rate = shapes({200}, 9, 300), _seed = 5, _dtypes = "f64 f32"},
  {rate = A.new({2}, {0, -1}), _seed = 1, _refused = "-1 is no rate"},
}
local function p(shape) return f(shape, {from = 0.05, to = 0.95}) end
S.bernoulli = {
  {p = p{2, 3}, _seed = 1}, {p = p{}, _seed = 2}, {p = p{0, 3}, _seed = 3}, {p = p{400}, _seed = 4},
  {p = A.new({4}, {0, 1, 0, 1}), _seed = 5}, {p = A.new({1},
  {1.5}), _seed = 1, _refused = "not a probability"},
}
S.dropout = {
  {x = f{2, 3}, _seed = 1}, {x = f{}, _seed = 2, p = 0.1}, {x = f{0, 3}, _seed = 3},
  {x = f{400}, _seed = 4, p = 0.3, _grad = false}, {x = f{2, 3}, _seed = 5, p = 0},
  {x = f{2, 3}, _seed = 5, p = 1},
  {x = f{2, 3}, _seed = 1, p = 1.5, _refused = "from 0 to 1"},
}
S.dropout_backward = {
  {dy = f{2, 3}, seed = 7, offset = 3}, {dy = f{}, seed = 7, offset = 0, p = 0.25},
  {dy = f{0}, seed = 7, offset = 0}, {dy = f{333}, seed = A.new({},
  {9}, "i64"), offset = A.new({}, {5}, "i64"),
    p = 0.7, _grad = false},
}
S.multinomial = {
  {p = p{5}, n = 3, _seed = 1}, {p = p{2, 5}, n = 5, _seed = 2},
  {p = p{2, 4}, n = 2000, replacement = true, _seed = 3},
  {p = A.new({4}, {0, 1, 0, 2}), n = 50, replacement = true, _seed = 4},
  {p = A.new({4}, {0, 1, 0, 2}), n = 2, _seed = 4}, {p = p{0, 3}, n = 2, _seed = 5},
  {p = p{3}, n = 0, _seed = 5},
  {p = p{3}, n = 4, _seed = 1, _refused = "without replacement"},
  {p = p{}, n = 1, _seed = 1, _refused = "classes"},
  {p = A.new({2}, {-1, 1}), n = 1, _seed = 1, _refused = "not negative"},
}

return S
