--- GridSample and AffineGrid: interpolated values of an image, and sampling grids.
local core = require "flare.core"

local M = {}

local modes = {bilinear = "linear", linear = "linear", bicubic = "cubic", cubic = "cubic",
               nearest = "nearest"}

function M.GridSample(n, x, grid)
  local padding = n:choice("padding_mode", "zeros",
                           {zeros = true, border = true, reflection = true})
  return x:grid_sample(grid, {mode = modes[n:choice("mode", "linear", modes)], padding = padding,
                              align_corners = n.attr.align_corners == 1})
end

function M.AffineGrid(n, theta, size)
  local sizes = table.move(n:list(size), 3, theta.shape[2] + 2, 1, {})
  local rank, grid = #sizes, {}
  for d = rank, 1, -1 do
    local count = sizes[d]
    local half = n.attr.align_corners == 1 and 1 or 1 - 1 / count
    local line = core.linspace(-half, half, count, {device = theta.device}):to(theta.dtype)
    if count == 1 then line = line * 0 - (n.attr.align_corners == 1 and 1 or 0) end
    local shape = {}
    for k = 1, rank do shape[k] = k == d and count or 1 end
    grid[#grid + 1] = line:reshape(shape):expand(sizes)
  end
  grid[#grid + 1] = core.ones_like(grid[1])
  local points = core.stack(grid, rank + 1):reshape(-1, rank + 1)
  sizes[rank + 1] = rank
  return points:matmul(theta:transpose(2, 3)):reshape(theta.shape[1], table.unpack(sizes))
end

return M
