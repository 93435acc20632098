--- The numbers that quantised weights can have: scales and zeros of groups, rounding to them, and
-- the layout that the row `quantized_linear` reads.
local core = require "flare.core"

local M = {}

-- What integers are kept: 4 bits as 0 to 15, 8 bits as -128 to 127. `center` is the zero of a
-- symmetric grid, `steps` how many steps its magnitude has.
local formats = {
  [4] = {low = 0, high = 15, center = 8, steps = 7.5, dtype = "u8"},
  [8] = {low = -128, high = 127, center = 0, steps = 127, dtype = "i8"},
}
M.formats = formats

--- The scales, and zeros unless the grid is symmetric, that reach from the smallest to the largest
-- number of each group.
-- @param w f32 (..., numbers of a group)
-- @param o {bits =, symmetric =, dtype = of the scales}
-- @return scales in f32 as their dtype keeps them, and zeros in f32 or nil, each (...)
function M.params(w, o)
  local f = formats[o.bits]
  local low, high = w:amin{dims = {-1}}, w:amax{dims = {-1}}
  local scales
  if o.symmetric then
    scales = core.maximum(low:abs(), high:abs()) / f.steps
  else
    low, high = low:clamp{max = 0}, high:clamp{min = 0}
    scales = (high - low) / (f.high - f.low)
  end
  scales = scales:to(o.dtype):to "f32"
  scales = core.where(scales:eq(0), 1, scales)
  if o.symmetric then return scales end
  return scales, (f.low - low / scales):round():clamp(f.low, f.high)
end

--- The nearest integers, in f32; scales and zeros broadcast against w.
function M.round(w, scales, zeros, bits)
  local f = formats[bits]
  return ((w / scales):round() + (zeros or f.center)):clamp(f.low, f.high)
end

--- What integers mean.
function M.value(q, scales, zeros, bits) return (q - (zeros or formats[bits].center)) * scales end

--- Integers (rows, columns) as quantized_linear reads them.
function M.pack(q, bits)
  q = q:to(formats[bits].dtype)
  if bits == 8 then return q end
  local pairs_ = q:view(q.shape[1], q.shape[2] // 2, 2)
  return pairs_:select(3, 1):bitwise_or(pairs_:select(3, 2):shift_left(4)):contiguous()
end

--- Rounds a weight (rows, columns), f32, to the nearest numbers of its groups.
-- @param o {bits =, group = columns of a group, symmetric =, dtype = of the scales}
-- @return {weight =, scales =, zeros = or nil} for quantized_linear
function M.nearest(w, o)
  local rows, columns = w.shape[1], w.shape[2]
  local parts = w:view(rows, columns // o.group, o.group)
  local scales, zeros = M.params(parts, o)
  local q = M.round(parts, scales:unsqueeze(-1), zeros and zeros:unsqueeze(-1), o.bits)
  return M.packed(q:view(rows, columns), scales, zeros, o)
end

--- Integers, scales and zeros in f32 as the tensors of a layer.
function M.packed(q, scales, zeros, o)
  return {weight = M.pack(q, o.bits), scales = scales:to(o.dtype),
          zeros = zeros and zeros:to(formats[o.bits].dtype)}
end

return M
