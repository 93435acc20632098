--- AWQ (arXiv:2306.00978): columns whose inputs are large are multiplied before they are rounded,
-- which makes their error smaller, and the inputs are divided by the same numbers.
local grid = require "flare.quantize.grid"

local STEPS = 20 -- powers that are tried, from 0 on

--- Rounds a weight (rows, columns), f32, with the factors under which its products with the inputs
-- change least: powers of the mean magnitude of each input.
-- @param h the sum of the products of the inputs' columns, (columns, columns)
-- @param size the mean magnitude of each input, (columns)
-- @param o as grid.nearest has it
-- @param error function(layer): the error of the outputs, of what this function returns
-- @return what grid.nearest gives, with `factors` of the inputs
return function(weight, _, size, o, error)
  local best, least
  for step = 0, STEPS - 1 do
    local by = size:pow(step / STEPS):clamp{min = 1e-4}
    by = by / (by:amax() * by:amin()):sqrt()
    local layer = grid.nearest(weight * by, o)
    layer.factors = 1 / by
    local off = error(layer)
    if not least or off < least then best, least = layer, off end
  end
  return best
end
