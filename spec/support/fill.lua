-- Tensors of known values for specs: sin(0.7 k + c), the k-th element counted from 1 in row
-- order, in f64. The figures that specs compare with were made from the same values.
local flare = require "flare"

local M = {}

function M.fill(shape, c)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local list = {}
  for k = 1, n do list[k] = math.sin(0.7 * k + c) end
  return flare.tensor(list, {dtype = "f64"}):view(shape)
end

-- Whether a tensor has the numbers of a list, in row order.
function M.near(tensor, list, tolerance)
  local got = tensor:reshape(-1):tolist()
  assert(#got == #list, ("%d elements, expected %d"):format(#got, #list))
  for i, value in ipairs(list) do
    local limit = (tolerance or 1e-5) * (1 + math.abs(value))
    if math.abs(got[i] - value) > limit or got[i] ~= got[i] then
      error(("element %d is %.9g, expected %.9g"):format(i, got[i], value), 2)
    end
  end
  return true
end

return M
