--- The luminance of red, green, blue, by ITU-R 601.
local core = require "flare.core"

--- @param x a tensor that has red, green, blue along dim; integers are rounded in parts of 2^16, as
--   Pillow does
-- @return a tensor of the same dtype that has one element along dim
return function(x, dim)
  local shape, floats = {}, x.dtype:find "^b?f%d"
  for d = 1, x:dim() do shape[d] = d == dim and 3 or 1 end
  local parts = core.tensor(floats and {0.299, 0.587, 0.114} or {19595, 38470, 7471},
                            {dtype = floats and x.dtype or "i64", device = x.device}):view(shape)
  local sum = ((floats and x or x:to "i64") * parts):sum{dim = dim, keepdim = true}
  return floats and sum or ((sum + 32768):floor_div(65536)):to(x.dtype)
end
