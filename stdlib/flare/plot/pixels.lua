--- Tensors as pixels: what a heat map and an image show, (height, width, 3) in u8 on the CPU.
local core = require "flare.core"
local options = require "flare.options"

local M = {}

--- What is wrong with a tensor for a picture of least to most dims; nil if nothing is.
function M.problem(x, least, most)
  if not core.is_tensor(x) then return "a tensor is expected, got " .. options.kind(x) end
  if x.dtype:find "^c%d" then return "real numbers are expected, got " .. x.dtype end
  if x.ndim < least or x.ndim > most then
    return ("%s dims are expected, got %s"):format(
      least == most and tostring(least) or least .. " to " .. most, x.shape)
  end
  if x:numel() == 0 then return "a tensor with elements is expected, got " .. tostring(x.shape) end
end

--- The smallest and the largest finite element; nil if there is none.
function M.range(x)
  local known = x:isfinite()
  if not known:any():item() then return nil end
  return core.where(known, x, math.huge):amin():item(),
         core.where(known, x, -math.huge):amax():item()
end

-- From dark blue by green to yellow, as matplotlib's viridis.
local stops = {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}
local no_number = {200, 0, 0}

-- 256 colours and that of NaN.
local function colours(grey)
  local rows = {}
  for i = 0, 255 do
    local at = i / 255 * (#stops - 1)
    local k = math.min(#stops - 1, at // 1 + 1)
    local a, b, part = stops[k], stops[k + 1], at - (k - 1)
    rows[i + 1] = {}
    for c = 1, 3 do
      rows[i + 1][c] = grey and i or math.floor(a[c] + (b[c] - a[c]) * part + 0.5)
    end
  end
  rows[257] = no_number
  return core.tensor(rows, {dtype = "u8"})
end

local function same(x) return x end

--- A vector or a matrix by colours.
-- @param take function(x) -> the rows and columns of x that are shown, or nil for all
-- @param grey whether the colours are greys
-- @return the pixels, or nil and what is wrong; the values of the darkest and the lightest
function M.heat(x, take, grey)
  local problem = M.problem(x, 1, 2)
  if problem then return nil, problem end
  local _ <close> = core.no_grad()
  x = x:detach():to("cpu"):to "f64"
  if x.ndim == 1 then x = x:unsqueeze(1) end
  local low, high = M.range(x)
  x = (take or same)(x)
  local part = core.full_like(x, 0.5)
  if low and high > low then part = (x - low) / (high - low) end
  local at = (part:clamp(0, 1):nan_to_num() * 255 + 1.5):floor()
  at = core.where(x:isnan(), 257, at):to "i64"
  return colours(grey):index_select(1, at:reshape(at:numel())):reshape(at:size(1), at:size(2), 3),
         low, high
end

--- The pixels of an image: (height, width), (1 or 3, height, width) or (height, width, 1 or 3),
-- from 0 to 1 or from 0 to 255.
-- @param take as for heat
-- @return the pixels, or nil and what is wrong
function M.image(x, take)
  local problem = M.problem(x, 2, 3)
  if problem then return nil, problem end
  local _ <close> = core.no_grad()
  local shape = x.shape
  x = x:detach():to "cpu"
  if x.ndim == 2 then
    x = x:unsqueeze(1)
  elseif shape[1] ~= 1 and shape[1] ~= 3 then
    if shape[3] ~= 1 and shape[3] ~= 3 then
      return nil, ("1 or 3 channels are expected, got %s"):format(shape)
    end
    x = x:permute(3, 1, 2)
  end
  local byte = x.dtype == "u8"
  local _, high = M.range(byte and x:to "i64" or x:to "f64")
  x = (take or same)(x):to "f64"
  -- bytes from 0 to 1 are labels of two classes, so they are seen, too
  x = x * ((high or 0) <= 1 and 255 or 1)
  x = (x:nan_to_num(0):clamp(0, 255) + 0.5):floor():to "u8"
  return x:expand(3, x:size(2), x:size(3)):permute(2, 3, 1):contiguous()
end

--- Positions of `most` points along a size, the nearest ones.
local function positions(size, most)
  local list = {}
  for i = 1, most do list[i] = math.floor((i - 0.5) * size / most) + 1 end
  return core.tensor(list, {dtype = "i64"})
end

--- A function(x) that shows a tensor's last two dims in so many rows and columns: the nearest
-- elements.
function M.taker(rows, columns)
  return function(x)
    local d = x.ndim
    return x:index_select(d - 1, positions(x:size(d - 1), rows))
            :index_select(d, positions(x:size(d), columns))
  end
end

return M
