--- Which dtype a result has, worked out from a row's signature; and how near results of
-- each dtype must be to the reference.
local A = require "spec.support.array"

local M = {}

local kind = {c128 = 4, c64 = 4, f64 = 3, f32 = 3, f16 = 3, bf16 = 3, i64 = 2, i32 = 2, i16 = 2,
  i8 = 2, u8 = 1, bool = 0}
local rank = {c128 = 11, c64 = 10, f64 = 9, f32 = 8, f16 = 7, bf16 = 7, i64 = 6, i32 = 5, i16 = 4,
  i8 = 3, u8 = 2, bool = 1}

M.kind = kind

local part = {c128 = "f64", c64 = "f32"}
local whole = {f64 = "c128", f32 = "c64"}

-- What numbers lift: u8 and an integer are of one kind.
local function level(d) return kind[d] >= 3 and 2 or kind[d] > 0 and 1 or 0 end

--- Of two tensors with dims: the higher kind wins; of one kind the larger; f16 and bf16
-- meet in f32, i8 and u8 in i16.
function M.promote(a, b)
  if not a or a == b then return b or a end
  if not b then return a end
  local pair = {[a] = true, [b] = true}
  if pair.f16 and pair.bf16 then return "f32" end
  if pair.i8 and pair.u8 then return "i16" end
  return rank[a] > rank[b] and a or b
end

-- Tensors with dims first; tensors without, then numbers, only lift the kind.
local function promote_all(list)
  local groups = {}
  for _, v in ipairs(list) do
    local number = not A.is(v)
    local g = number and 3 or #v.shape == 0 and 2 or 1
    local d
    if not number then
      d = v.complex and whole[v.dtype] or v.dtype
    else
      d = math.type(v) == "float" and "f32" or math.type(v) == "integer" and "i64" or "bool"
    end
    groups[g] = M.promote(groups[g], d)
  end
  local r = groups[1]
  for g = 2, 3 do
    local d = groups[g]
    if not r then r = d
    elseif d and level(d) > level(r) then r = M.promote(r, d) end
  end
  return r
end

M.promote_all = promote_all

local function inputs(args, names)
  local list = {}
  for name in names:gmatch "[%w_]+" do
    local v = args[name]
    if type(v) == "table" and not v.shape then
      for _, x in ipairs(v) do list[#list + 1] = x end
    elseif v ~= nil then
      list[#list + 1] = v
    end
  end
  return list
end

--- The dtypes of all results of a row with these arguments.
function M.results(row, args)
  local list = {}
  local rules = row.signature:match "%->%s*(.*)$"
  if rules == "none" then return list end
  rules = rules:gsub("%b()", function(s) return (s:gsub(",", "+")) end)
  for rule in rules:gmatch "[^,;]+" do
    rule = rule:gsub("%s", ""):gsub("^[%w_]+:", "")
    local f, names = rule:match "^(%w+)%((.*)%)$"
    local d
    if f then
      d = promote_all(inputs(args, names))
      local float = d and kind[d] == 3
      if f == "complex" then d = part[d] and d or whole[d] or "c64" end
      if f == "real" or f == "float" or f == "wide" then d = part[d] or d end
      d = d or "i64" -- an optional input that is not there
      float = float or kind[d] >= 3
      if f == "float" and not float then d = "f32" end
      if f == "acc" and not float then d = "i64" end
      if f == "wide" then d = d == "f64" and "f64" or "f32" end
    elseif kind[rule] then
      d = rule
    else
      local of
      for _, p in ipairs(row.params) do if p.name == rule then of = p end end
      assert(of, row.name .. ": what is " .. rule)
      local given = args[rule]
      if of.type == "dtype" then
        d = given or of.default
        if not d then
          for _, p in ipairs(row.params) do
            if p.kind == "tensor" then d = promote_all(inputs(args, p.name)) break end
          end
        end
        d = d or "f32"
      else
        d = promote_all(inputs(args, rule)) or "f32" -- an optional input that is not there
      end
    end
    list[#list + 1] = d
  end
  return list
end

--- The one table of tolerances: relative and absolute, by dtype. f16 and bf16 compute in
-- f32 and round once, which is half a unit in the last place: 2^-11 and 2^-8.
M.tolerance = {
  f64 = {1e-11, 1e-12},
  f32 = {4e-6, 1e-6},
  f16 = {1.0e-3, 1e-6},
  bf16 = {8e-3, 1e-6},
}

--- What needs more, by row, as factors of both figures: operators made of several others
-- round after each, and some functions make much of a small difference.
M.factor = {
  bce_loss = 3, bce_with_logits = 3, kl_div = 3, resample = 3, interpolate = 4, grid_sample = 8,
}

--- What may be lost where terms of about this size cancel: rounded to the row's dtype each,
-- or summed in f32 (f64) and rounded once.
M.rounded = {
  addmm = 2, kl_div = 1, cross = 8, conv_transpose = 2, attention = 1,
  quantized_linear = 4,
}
M.summed = {
  matmul = 4, matmul_add = 4, grouped_mm = 4, linear = 4, lstm = 4, lstm_backward = 8, gru = 4,
  gru_backward = 8, conv_input_grad = 8, conv_weight_grad = 40,
  dft = 20, rdft = 20, irdft = 20, fft = 9, ifft = 9, rfft = 9, irfft = 9, fft2 = 20, ifft2 = 20,
  rfft2 = 20, irfft2 = 20, fftn = 20, ifftn = 20, rfftn = 20, irfftn = 20, stft = 20, istft = 20,
}

--- Gradients in f32 and bf16 that need more, where what is saved was rounded.
M.gradient_factor = {
}

function M.near(got, want, dtype, row)
  if got == want or (got ~= got and want ~= want) then return true end
  local t = M.tolerance[dtype]
  if not t then return false end
  local wide = M.tolerance[dtype == "f64" and "f64" or "f32"]
  return math.abs(got - want) <= (M.factor[row] or 1) * (t[2] + t[1] * math.abs(want))
    + t[1] * (M.rounded[row] or 0) + wide[1] * (M.summed[row] or 0)
end

--- The same for gradients, with figures of their own where there are any.
function M.near_gradient(got, want, dtype, row)
  local factor = M.gradient_factor[row]
  if not factor then return M.near(got, want, dtype, row) end
  local t = M.tolerance[dtype]
  return got == want or math.abs(got - want) <= factor * (t[2] + t[1] * (1 + math.abs(want)))
end

return M
