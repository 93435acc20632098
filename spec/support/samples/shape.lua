--- Arguments for the rows that make tensors, move elements or only look at them otherwise.
local A = require "spec.support.array"

local S = {}
local f = A.fill

S.copy = {
  {x = f{2, 3}}, {x = f{}}, {x = f{0, 2}}, {x = f{3, 1, 4}}, {x = f{515}, _grad = false},
  {x = A.bools{2, 3}},
}
for _, to in ipairs {"f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"} do
  table.insert(S.copy, {x = f({37}, {from = 0.1, to = 90}), dtype = to, _grad = false})
  table.insert(S.copy, {x = A.whole({19}, 0, 90), dtype = to})
end
table.insert(S.copy, {x = f{5}, dtype = "f64"})
table.insert(S.copy, {x = A.new({6}, {1e30, -1e30, 300, -300, 0/0, 1/0}), dtype = "i32",
  _grad = false, _dtypes = "f64"})
table.insert(S.copy, {x = A.new({4}, {300, -300, 70000, -1}, "i64"), dtype = "u8"})

S.assign = {
  {x = f{2, 3}, from = f({2, 3}, {seed = 2})},
  {x = f{2, 3}, from = f({3}, {seed = 2})},
  {x = f{2, 3, 2}, from = f({3, 1}, {seed = 2})},
  {x = f{2, 3}, from = 1.5},
  {x = f{2, 3}, from = f({}, {seed = 2})},
  {x = f{}, from = f({}, {seed = 2})},
  {x = f{0, 3}, from = f({3}, {seed = 2})},
  {x = f({4}, {dtype = "f32"}), from = f({4}, {seed = 2}), _grad = {"from"}},
  {x = A.whole({4}, 0, 9), from = f({4}, {seed = 2}), _grad = false},
  {x = f{2, 3}, from = f({2, 4}, {seed = 2}), _refused = "does not broadcast"},
  {x = f{2}, from = f({2, 2}, {seed = 2}), _refused = "does not broadcast"},
}

S.full = {
  {shape = {2, 3}, value = 1.5}, {shape = {}, value = 2}, {shape = {0, 4}, value = 1},
  {shape = {3}, value = 7, dtype = "i64"}, {shape = {3}, value = 1, dtype = "bool"},
  {shape = {3}, value = -2.5, dtype = "bf16"}, {shape = {3}, value = 0, dtype = "f64"},
  {shape = {-1}, value = 0, _refused = "negative"}, {shape = {3}, _refused = "value is missing"},
}
S.fill = {
  {x = f{2, 3}, value = 1.5}, {x = f{}, value = 2}, {x = f{0, 4}, value = 1.0},
  {x = f{2, 3}, value = f({}, {seed = 2})}, {x = A.whole({4}, 0, 9), value = 3},
  {x = A.bools{4}, value = 1}, {x = f{300}, value = 0.25, _grad = false},
}
S.arange = {
  {start = 0, stop = 5}, {start = 1, stop = 8, step = 3}, {start = 5, stop = -3, step = -2},
  {start = 0, stop = 1, step = 0.25, dtype = "f32"}, {start = 0.5, stop = 9, dtype = "f64"},
  {start = 2, stop = 2}, {start = 0, stop = 100, dtype = "i8"},
  {start = 0, stop = 5, step = -1, _refused = "do not lead"},
  {start = 0, stop = 5, step = 0, _refused = "step other than 0"},
}
S.linspace = {
  {start = 0, stop = 1, steps = 5}, {start = -3, stop = 4, steps = 8, dtype = "f64"},
  {start = 2, stop = 2, steps = 1}, {start = 0, stop = 1, steps = 0},
  {start = 0, stop = 1, steps = 300, dtype = "f64"}, {start = 0, stop = 1, steps = -1,
    _refused = "at least 0 steps"},
}
S.eye = {
  {n = 3}, {n = 2, m = 4}, {n = 4, m = 2, dtype = "i64"}, {n = 0}, {n = 2, m = 0},
  {n = 3, dtype = "bool"}, {n = -1, _refused = "negative"},
}
S.cat = {
  {xs = {f{2, 3}, f({1, 3}, {seed = 2})}},
  {xs = {f{2, 3}, f({2, 2}, {seed = 2}), f({2, 1}, {seed = 3})}, dim = 2},
  {xs = {f{2, 1, 2}, f({2, 3, 2}, {seed = 2})}, dim = -2},
  {xs = {f{3}}},
  {xs = {f{0}, f({2, 2}, {seed = 2})}},
  {xs = {f{2, 0}, f({2, 3}, {seed = 2})}, dim = 2},
  {xs = {f{0, 2}, f({0, 2}, {seed = 2})}},
  {xs = {f{40, 7}, f({3, 7}, {seed = 2})}, _grad = false},
  {xs = {f{2}, A.whole({3}, 0, 9)}},
  {xs = {f{}, f{}}, _refused = "stack joins"},
  {xs = {f{2, 3}, f{2, 2}}, _refused = "differ in dim 1 only"},
  {xs = {}, _refused = "at least one"},
}
S.stack = {
  {xs = {f{2, 3}, f({2, 3}, {seed = 2})}}, {xs = {f{2, 3}, f({2, 3}, {seed = 2})}, dim = 2},
  {xs = {f{2, 3}, f({2, 3}, {seed = 2})}, dim = -1}, {xs = {f{}, f({}, {seed = 2})}},
  {xs = {f{0, 2}, f({0, 2}, {seed = 2})}, dim = 3}, {xs = {f{2}}},
  {xs = {f{2}, f{3}}, _refused = "must be the same"},
}
S.pad = {
  {x = f{2, 3}, pad = {1, 2}}, {x = f{2, 3}, pad = {1, 0, 2, 1}, value = 0.5},
  {x = f{2, 3}, pad = {-1, 1}}, {x = f{4}, pad = {-1, -2}},
  {x = f{2, 2, 3}, pad = {1, 1, 0, 2, 1, 0}},
  {x = f{}, pad = {}}, {x = f{0, 2}, pad = {0, 0, 1, 2}}, {x = f{2, 0}, pad = {0, 0, 1, 2}},
  {x = f{2, 4}, pad = {2, 3}, mode = "reflect"},
  {x = f{3, 4}, pad = {1, 0, 2, 1}, mode = "reflect"},
  {x = f{2, 3}, pad = {2, 4}, mode = "replicate"},
  {x = f{2, 2, 3}, pad = {1, 1, 2, 0}, mode = "replicate"},
  {x = f{2, 4}, pad = {3, 4}, mode = "circular"},
  {x = f{3, 3}, pad = {1, 2, 2, 1}, mode = "circular"},
  {x = f{37, 41}, pad = {3, 2, 1, 4}, _grad = false},
  {x = f{37, 41}, pad = {3, 2, 1, 4}, mode = "reflect", _grad = false},
  {x = f{2}, pad = {2, 2}, mode = "reflect", _refused = "too small"},
  {x = f{2}, pad = {1, 2, 3}, _refused = "two for each dim"},
  {x = f{}, pad = {1, 1}, _refused = "two for each dim"},
}
S.pad_backward = {
  {dy = f{2, 6}, shape = {2, 3}, pad = {1, 2}}, {dy = f{4, 3}, shape = {2, 3}, pad = {0, 0, 1, 1}},
  {dy = f{2, 3}, shape = {2, 3}, pad = {-1, 1}}, {dy = f{}, shape = {}, pad = {}},
  {dy = f{2, 9}, shape = {2, 4}, pad = {2, 3}, mode = "reflect"},
  {dy = f{5, 6}, shape = {3, 4}, pad = {1, 1, 2, 0}, mode = "reflect"},
  {dy = f{2, 9}, shape = {2, 3}, pad = {2, 4}, mode = "replicate"},
  {dy = f{4, 6}, shape = {2, 3}, pad = {1, 2, 1, 1}, mode = "circular"},
  {dy = f{0, 5}, shape = {0, 3}, pad = {1, 1}}, {dy = f{2, 3}, shape = {2, 0}, pad = {1, 2}},
  {dy = f{2, 3}, shape = {2, 3}, pad = {1, 2}, _refused = "must have"},
}
S.flip = {
  {x = f{2, 3}, dims = {1}}, {x = f{2, 3}, dims = {1, -1}}, {x = f{2, 3, 4}, dims = {2}},
  {x = f{5}, dims = {1}}, {x = f{0, 3}, dims = {1}}, {x = f{}, dims = {}},
  {x = f{33, 7}, dims = {1, 2}, _grad = false}, {x = f{2, 3}, dims = {3}, _refused = "no dim 3"},
}
S.roll = {
  {x = f{2, 3}, shifts = {1}}, {x = f{2, 3}, shifts = {-2}, dims = {2}},
  {x = f{3, 4}, shifts = {1, 7}, dims = {1, -1}}, {x = f{}, shifts = {3}},
  {x = f{0, 3}, shifts = {2}, dims = {1}}, {x = f{0}, shifts = {1}},
  {x = f{31, 9}, shifts = {11}, _grad = false},
  {x = f{2}, shifts = {1, 2}, _refused = "one for each"},
}
S["repeat"] = {
  {x = f{2, 3}, repeats = {2, 1}}, {x = f{2, 3}, repeats = {2, 1, 3}}, {x = f{3}, repeats = {2}},
  {x = f{}, repeats = {}}, {x = f{}, repeats = {2, 2}}, {x = f{0, 2}, repeats = {2, 3}},
  {x = f{2}, repeats = {0}}, {x = f{17, 5}, repeats = {3, 4}, _grad = false},
  {x = f{2, 3}, repeats = {2}, _refused = "one for each"},
}
S.repeat_interleave = {
  {x = f{2, 3}, repeats = 2, dim = 1}, {x = f{2, 3}, repeats = 3, dim = -1},
  {x = f{4}, repeats = 1, dim = 1}, {x = f{4}, repeats = 0, dim = 1},
  {x = f{0, 2}, repeats = 2, dim = 2}, {x = f{}, repeats = 2, dim = 1, _refused = "1 to 7 dims"},
  {x = f{4}, repeats = 3}, {x = f{2, 3}, repeats = 2}, {x = f{}, repeats = 2},
  {x = f{0, 2}, repeats = 3},
}
for _, name in ipairs {"tril", "triu"} do
  S[name] = {
    {x = f{3, 4}}, {x = f{4, 3}, diagonal = 1}, {x = f{3, 3}, diagonal = -1},
    {x = f{2, 3, 3}}, {x = f{3, 3}, diagonal = 9}, {x = f{3, 3}, diagonal = -9},
    {x = f{0, 3}}, {x = f{2, 0, 0}}, {x = f{40, 37}, diagonal = 2, _grad = false},
    {x = f{}, _refused = "needs matrices"}, {x = f{3}, _refused = "needs matrices"},
  }
end
S.as_strided_backward = {
  {dy = f{2, 3}, shape = {3, 4}, size = {2, 3}, stride = {4, 1}, offset = 5},
  {dy = f{4, 3}, shape = {6}, size = {4, 3}, stride = {1, 1}},
  {dy = f{3}, shape = {4}, size = {3}, stride = {0}, offset = 2},
  {dy = f{3}, shape = {4}, size = {3}, stride = {-1}, offset = 3},
  {dy = f{}, shape = {5}, size = {}, stride = {}, offset = 4},
  {dy = f{0}, shape = {2, 2}, size = {0}, stride = {1}},
  {dy = f{20, 21}, shape = {40, 60}, size = {20, 21}, stride = {120, 2}, offset = 1, _grad = false},
  {dy = f{2}, shape = {2}, size = {2}, stride = {2}, _refused = "outside"},
}

-- --- views ---

S.view = {
  {x = f{2, 3}, shape = {3, 2}}, {x = f{2, 3, 4}, shape = {6, 4}}, {x = f{2, 3}, shape = {-1}},
  {x = f{6}, shape = {2, -1, 1}}, {x = f{}, shape = {1, 1}}, {x = f{1, 1}, shape = {}},
  {x = f{0, 2}, shape = {5, 0}}, {x = f{2, 3}, shape = {4}, _refused = "6 elements"},
  {x = f{2, 3}, shape = {-1, -1}, _refused = "only one"},
}
for _, s in ipairs(S.view) do s._contiguous = true end
S.reshape = {
  {x = f{2, 3}, shape = {3, 2}}, {x = f{2, 3, 4}, shape = {4, 6}}, {x = f{6}, shape = {2, -1}},
  {x = f{}, shape = {1}}, {x = f{0, 2}, shape = {0}},
  {x = f{2, 3}, shape = {5}, _refused = "6 elements"},
}
S.flatten = {
  {x = f{2, 3, 2}}, {x = f{2, 3, 2}, first = 2}, {x = f{2, 3, 2}, last = 2}, {x = f{}},
  {x = f{2, 0, 2}, first = 2, last = 3},
  {x = f{2, 3}, first = 2, last = 1, _refused = "comes after"},
}
S.contiguous = {{x = f{2, 3}}, {x = f{}}, {x = f{0, 2}}, {x = f{4, 1, 2}}}
S.permute = {
  {x = f{2, 3, 4}, dims = {3, 1, 2}}, {x = f{2, 3}, dims = {-1, -2}}, {x = f{3}, dims = {1}},
  {x = f{}, dims = {}}, {x = f{2, 0, 3}, dims = {2, 3, 1}},
  {x = f{2, 3}, dims = {1}, _refused = "1 dims named"},
  {x = f{2, 3}, dims = {1, 1}, _refused = "named twice"},
}
S.transpose = {
  {x = f{2, 3}}, {x = f{2, 3, 4}, dim0 = 1, dim1 = -1}, {x = f{2, 3, 4}, dim0 = 3, dim1 = 2},
  {x = f{3}, dim0 = 1, dim1 = 1}, {x = f{}, dim0 = 1, dim1 = 1}, {x = f{0, 3}},
  {x = f{2, 3}, dim0 = 1, dim1 = 3, _refused = "no dim1 3"},
}
S.expand = {
  {x = f{2, 1, 3}, shape = {2, 4, 3}}, {x = f{3}, shape = {2, 3}}, {x = f{1}, shape = {-1}},
  {x = f{2, 1}, shape = {3, -1, 2}}, {x = f{}, shape = {2, 2}}, {x = f{}, shape = {}},
  {x = f{1, 3}, shape = {0, 3}}, {x = f{0}, shape = {2, 0}},
  {x = f{2}, shape = {3}, _refused = "does not expand"},
}
S.squeeze = {
  {x = f{1, 3, 1}}, {x = f{1, 3, 1}, dims = {3}}, {x = f{1, 3, 1}, dims = {1, 2}}, {x = f{2}},
  {x = f{}}, {x = f{1, 0}},
}
S.unsqueeze = {
  {x = f{2, 3}, dim = 1}, {x = f{2, 3}, dim = 3}, {x = f{2, 3}, dim = -1}, {x = f{2, 3}, dim = -3},
  {x = f{}, dim = 1}, {x = f{0}, dim = 2},
  {x = f{2}, dim = 4, _refused = "no dim 4 in a result of 2"},
}
S.narrow = {
  {x = f{4, 3}, dim = 1, start = 2, length = 2}, {x = f{4, 3}, dim = 2, start = -2, length = 2},
  {x = f{7, 2}, dim = 1, start = 1, length = 3, step = 3},
  {x = f{7, 2}, dim = 1, start = 6, length = 3, step = -2},
  {x = f{2, 4}, dim = 2, start = -1, length = 4, step = -1},
  {x = f{4}, dim = 1, start = 2, length = 3, step = -1, _refused = "do not lie within"},
  {x = f{4}, dim = 1, start = 2, length = 1, step = 0, _refused = "a step not 0"},
  {x = f{4}, dim = 1, start = 1, length = 0},
  {x = f{4}, dim = 1, start = 5, length = 0}, {x = f{0, 2}, dim = 1, start = 1, length = 0},
  {x = f{0, 2}, dim = 2, start = 2, length = 1},
  {x = f{4}, dim = 1, start = 3, length = 3, _refused = "do not lie within"},
  {x = f{4}, dim = 1, start = 0, length = 1, _refused = "count from 1"},
  {x = f{}, dim = 1, start = 1, length = 1, _refused = "no dims"},
}
S.select = {
  {x = f{4, 3}, dim = 1, index = 2}, {x = f{4, 3}, dim = -1, index = -1},
  {x = f{3}, dim = 1, index = 3},
  {x = f{2, 0}, dim = 1, index = 1}, {x = f{3}, dim = 1, index = 4, _refused = "out of range"},
  {x = f{}, dim = 1, index = 1, _refused = "no dims"},
}
S.diagonal = {
  {x = f{3, 4}}, {x = f{4, 3}, offset = 1}, {x = f{4, 3}, offset = -2}, {x = f{3, 3}, offset = 5},
  {x = f{2, 3, 4}, dim1 = 3, dim2 = 1}, {x = f{2, 3, 3}, offset = 1, dim1 = -2, dim2 = -1},
  {x = f{0, 3}}, {x = f{3, 0, 2}, dim1 = 1, dim2 = 3},
  {x = f{3}, _refused = "diagonal"}, {x = f{}, _refused = "diagonal"},
}
S.unfold = {
  {x = f{7}, dim = 1, size = 3, step = 2}, {x = f{3, 5}, dim = 2, size = 2, step = 1},
  {x = f{4, 3}, dim = 1, size = 2, step = 1}, {x = f{}, dim = 1, size = 1, step = 1},
  {x = f{5, 0}, dim = 1, size = 2, step = 2},
  {x = f{3}, dim = 1, size = 4, step = 1, _refused = "do not fit"},
}
S.as_strided = {
  {x = f{3, 4}, size = {2, 2}, stride = {4, 1}, offset = 5},
  {x = f{6}, size = {4, 3}, stride = {1, 1}},
  {x = f{4}, size = {3}, stride = {-1}, offset = 3}, {x = f{4}, size = {3}, stride = {0}},
  {x = f{}, size = {}, stride = {}}, {x = f{4}, size = {0}, stride = {1}},
  {x = f{0}, size = {0, 2}, stride = {2, 1}},
  {x = f{4}, size = {3}, stride = {2}, _refused = "outside"},
}
for _, s in ipairs(S.as_strided) do s._contiguous = true end -- it sees memory, not elements

S.movedim = {
  {x = f{2, 3, 4}, from = {1}, to = {3}}, {x = f{2, 3, 4}, from = {3, 1}, to = {1, 2}},
  {x = f{2, 3, 4}, from = {-1}, to = {1}}, {x = f{2, 0, 4}, from = {1}, to = {2}},
  {x = f{}, from = {1}, to = {1}}, {x = f{2, 3}, from = {1, 2}, to = {1}, _refused = "places"},
  {x = f{2, 3}, from = {3}, to = {1}, _refused = "3"},
  {x = f{2, 3}, from = {1, 1}, to = {1, 2}, _refused = ""},
}
S.tile = {
  {x = f{2, 3}, repeats = {2}}, {x = f{2, 3}, repeats = {2, 3}}, {x = f{3}, repeats = {2, 1, 2}},
  {x = f{}, repeats = {3}}, {x = f{2, 0}, repeats = {2}}, {x = f{2, 3}, repeats = {0, 1}},
  {x = f{2, 3}, repeats = {}}, {x = f{2}, repeats = {-1}, _refused = "cannot repeat"},
}

S.unflatten = {
  {x = f{2, 6}, dim = 2, sizes = {2, 3}}, {x = f{6, 2}, dim = 1, sizes = {-1, 2, 1}},
  {x = f{4}, dim = -1, sizes = {4}}, {x = f{0, 2}, dim = 1, sizes = {0, 3}},
  {x = f{}, dim = 1, sizes = {1}, _refused = "cannot be divided"},
  {x = f{2, 6}, dim = 2, sizes = {4, -1}, _refused = "dim 2 of %(2, 6%)"},
  {x = f{2, 6}, dim = 2, sizes = {2, 2}, _refused = "cannot be divided"},
  {x = f{2, 6}, dim = 2, sizes = {-1, -1}, _refused = "cannot be divided"},
}
S.diag = {
  {x = f{3}}, {x = f{3}, offset = 2}, {x = f{2}, offset = -1}, {x = f{3, 4}},
  {x = f{4, 3}, offset = -2}, {x = f{0}}, {x = f{0}, offset = 2}, {x = f{3, 0}},
  {x = f{}, _refused = "vector or a matrix"}, {x = f{2, 2, 2}, _refused = "vector or a matrix"},
}
S.diag_embed = {
  {x = f{3}}, {x = f{2, 3}}, {x = f{2, 3}, offset = 1, dim1 = 1, dim2 = 2},
  {x = f{2, 3}, offset = -1, dim1 = 3, dim2 = 1}, {x = f{0, 2}}, {x = f{2, 0}, offset = 1},
  {x = f{}, _refused = "needs two dims"},
  {x = f{2}, dim1 = 1, dim2 = 1, _refused = "needs two dims"},
}

return S
