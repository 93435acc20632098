--- Arguments for the rows of quantised weights. Sizes from 64 columns on are those that have
-- kernels for a few rows; more than 16 rows are multiplied with floats.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local function bytes(shape, seed) return A.whole(shape, 0, 255, seed or 3, "u8") end
local function signed(shape, seed) return A.whole(shape, -128, 127, seed or 5, "i8") end
local function scales(shape, seed) return f(shape, {from = 0.01, to = 0.1, seed = seed or 2}) end
local function zeros(shape, seed) return A.whole(shape, 0, 15, seed or 4, "u8") end

S.dequantize = {
  {weight = bytes{3, 4}, scales = scales{3, 2}, dtype = "f64"},
  {weight = bytes{3, 6}, scales = scales{3, 4}, zeros = zeros{3, 4}, dtype = "f64"}, -- groups of 3
  {weight = bytes{2, 3}, scales = scales{2, 6}, zeros = f{2, 6}, dtype = "f64"},
  {weight = signed{3, 5}, scales = scales{3, 1}, dtype = "f64"},
  {weight = signed{3, 6}, scales = scales{3, 3}, zeros = signed{3, 3}, dtype = "f64"},
  {weight = bytes{70, 96}, scales = scales{70, 96}, _grad = false},
  {weight = signed{5, 64}, scales = scales{5, 2}, dtype = "bf16", _grad = false},
  {weight = signed{5, 64}, scales = scales{5, 2}, dtype = "f16", _grad = false},
  {weight = bytes{0, 4}, scales = scales{0, 2}}, {weight = signed{3, 0}, scales = scales{3, 0}},
  {weight = signed{}, scales = scales{}, _refused = "must be i8 %(outputs, inputs%) or u8"},
  {weight = A.whole({2, 4}, 0, 9), scales = scales{2, 1}, _refused = "got i64"},
  {weight = bytes{2, 4}, scales = scales{2, 3}, _refused = "scales %(2, 3%) do not fit"},
  {weight = bytes{2, 4}, scales = scales{1, 2}, _refused = "must be %(2, groups%)"},
  {weight = bytes{2, 4}, scales = scales{2, 2}, zeros = zeros{2, 1}, _refused = "shape of scales"},
  {weight = bytes{2, 4}, scales = scales{2, 2}, dtype = "i32", _refused = "dtype must be a float"},
}

S.quantized_linear = {
  {x = f{3, 8}, weight = bytes{5, 4}, scales = scales{5, 2}},
  {x = f{8}, weight = bytes{5, 4}, scales = scales{5, 2}, zeros = zeros{5, 2}, bias = f{5}},
  {x = f{2, 2, 6}, weight = signed{4, 6}, scales = scales{4, 3}, zeros = f{4, 3}, bias = f{4}},
  {x = f{2, 7}, weight = signed{3, 7}, scales = scales{3, 1}},
  {x = f{0, 8}, weight = bytes{5, 4}, scales = scales{5, 2}},
  {x = f{3, 8}, weight = bytes{0, 4}, scales = scales{0, 2}},
  {x = f{3, 0}, weight = signed{2, 0}, scales = scales{2, 0}},
  {x = f{}, weight = bytes{5, 4}, scales = scales{5, 2}, _refused = "last size must be 8"},
  {x = f{3, 4}, weight = bytes{5, 4}, scales = scales{5, 2}, _refused = "last size must be 8"},
  {x = f{3, 8}, weight = bytes{5, 4}, scales = scales{5, 3}, _refused = "groups of one size"},
  {x = f{3, 8}, weight = bytes{5, 4}, scales = scales{5, 2}, bias = f{4},
   _refused = "must be %(5%)"},
}
local function add(rows, outputs, inputs, group, more)
  local s = {x = f{rows, inputs}, scales = scales{outputs, inputs // group}, _grad = false}
  s.weight = more.weight == "i8" and signed{outputs, inputs} or bytes{outputs, inputs // 2}
  if more.zeros then s.zeros = zeros{outputs, inputs // group} end
  if more.bias then s.bias = f{outputs} end
  table.insert(S.quantized_linear, s)
end
add(1, 9, 128, 32, {})
add(1, 9, 160, 32, {zeros = true}) -- the last block of 128 is not whole
add(5, 6, 192, 64, {zeros = true, bias = true})
add(4, 5, 256, 128, {zeros = true})
add(2, 5, 512, 256, {})
add(17, 70, 64, 32, {zeros = true, bias = true})
add(3, 5, 96, 48, {zeros = true}) -- a size without a kernel of its own
add(1, 9, 70, 70, {weight = "i8"})
add(6, 7, 96, 32, {weight = "i8", zeros = true})
add(20, 5, 96, 48, {weight = "i8", bias = true})
return S
