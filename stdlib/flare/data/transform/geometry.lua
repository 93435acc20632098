--- Transforms of where pixels are: sizes, crops, mirrors, affine maps.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local base = require "flare.data.transform.base"
local define, draw, sizes, range, share = base.define, base.draw, base.sizes, base.range, base.share

local smooth = {linear = true, cubic = true}

-- Bytes are resized as Pillow does, in integers.
local function resize(x, size, mode, antialias)
  antialias = antialias and smooth[mode]
  if x.dtype == "u8" and antialias then
    local n, channels = x:size(1), x:size(2)
    return core.resize_bytes(x:contiguous(), size[1], size[2], mode == "cubic")
      :view(n, channels, size[1], size[2]):to(x.device)
  end
  local y = core.interpolate(x.dtype == "u8" and x:to "f32" or x,
                             {size = size, mode = mode, antialias = antialias})
  return x.dtype == "u8" and y:round():clamp(0, 255):to "u8" or y
end

define("Resize", "size, {mode = \"linear\", antialias = true, keep_ratio = false}",
  "Resizes images to {height, width}, or to a number for both; modes are those of interpolate. "
    .. "keep_ratio: the number is the size of the shorter side, the other keeps the ratio. Of u8, "
    .. "linear and cubic give what Pillow gives.",
  function(where, size, opts)
    local o = options.check(where, opts, {mode = "linear", antialias = true, keep_ratio = false})
    if o.keep_ratio and type(size) ~= "number" then
      fail("%s: with keep_ratio, size must be a number, got %s", where, options.kind(size))
    end
    o.size = sizes(where, size)
    return o
  end, {takes_bytes = true, images = function(self, x)
    local h, w, size = x:size(3), x:size(4), self.size
    if self.keep_ratio then
      local least = math.min(h, w)
      size = {size[1] * h // least, size[2] * w // least}
    end
    if h == size[1] and w == size[2] then return x end
    return resize(x, size, self.mode, self.antialias)
  end})

-- The part of size h x w of each image that begins at row `top` and column `left`, from 0.
local function crop(x, top, left, h, w)
  local n, channels, width = x:size(1), x:size(2), x:size(4)
  local rows = core.arange(1, h + 1, {device = x.device}):view(1, 1, h, 1) + top
  x = x:gather(3, rows:expand(n, channels, h, width))
  local columns = core.arange(1, w + 1, {device = x.device}):view(1, 1, 1, w) + left
  return x:gather(4, columns:expand(n, channels, h, w))
end

-- Whole numbers from 0 to `most`, one for each image.
local function places(x, most)
  return core.randint(0, most + 1, {x:size(1), 1, 1, 1}, {device = x.device})
end

local function fits(where, x, size)
  if size[1] > x:size(3) or size[2] > x:size(4) then
    fail("%s: %d x %d does not fit into images of %d x %d", where, size[1], size[2], x:size(3),
         x:size(4))
  end
end

-- The nearest integer to n / 2, the even one of two.
local function half(n) return (n + (n // 2) % 2) // 2 end

define("CenterCrop", "size", "Crops each image at its center.", function(where, size)
  return {where = where, size = sizes(where, size)}
end, {takes_bytes = true, images = function(self, x)
  local h, w = self.size[1], self.size[2]
  fits(self.where, x, self.size)
  return x:narrow(3, half(x:size(3) - h) + 1, h):narrow(4, half(x:size(4) - w) + 1, w)
end})

define("RandomCrop", "size, {padding = 0, mode = \"constant\", value = 0}",
  "Crops each image at a random place, after padding it by `padding` pixels on all sides.",
  function(where, size, opts)
    local o = options.check(where, opts, {padding = 0, mode = "constant", value = 0})
    options.count(where, "padding", o.padding, 0)
    o.where, o.size = where, sizes(where, size)
    return o
  end, {takes_bytes = true, images = function(self, x)
    local p, h, w = self.padding, self.size[1], self.size[2]
    if p > 0 then x = x:pad({p, p, p, p}, self.mode, self.value) end
    fits(self.where, x, self.size)
    return crop(x, places(x, x:size(3) - h), places(x, x:size(4) - w), h, w)
  end})

-- A mirror along a dim, for some images.
local function flip(name, dim, what)
  define(name, "p = 0.5", what, function(where, p)
    return {p = share(where, "p", p or 0.5)}
  end, {takes_bytes = true, images = function(self, x)
    return core.where(base.chosen(x, self.p), x:flip(dim), x)
  end})
end
flip("RandomHorizontalFlip", 4, "Flips each image left to right with probability p.")
flip("RandomVerticalFlip", 3, "Flips each image upside down with probability p.")

-- A part of an image of h x w: top and left, from 0, height and width. Its fraction of the area and
-- its aspect ratio are in the ranges. After ten draws that do not fit it is the largest part in the
-- middle that has a ratio in the range.
local function draw_box(self, h, w)
  local function rand(from_to)
    return core.rand({10}, {low = from_to[1], high = from_to[2], device = "cpu"}):tolist()
  end
  local areas = rand(self.scale)
  local ratios = rand{math.log(self.ratio[1]), math.log(self.ratio[2])}
  local at = rand{0, 1}
  for k = 1, 10 do
    local area, ratio = areas[k] * h * w, math.exp(ratios[k])
    local wide = math.floor((area * ratio) ^ 0.5 + 0.5)
    local high = math.floor((area / ratio) ^ 0.5 + 0.5)
    if wide >= 1 and wide <= w and high >= 1 and high <= h then
      return math.min(math.floor(at[1] * (h - high + 1)), h - high),
             math.min(math.floor(at[2] * (w - wide + 1)), w - wide), high, wide
    end
  end
  local least, most = self.ratio[1], self.ratio[2]
  local high = math.max(1, math.min(h, math.floor(w / least + 0.5)))
  local wide = math.max(1, math.min(w, math.floor(h * most + 0.5)))
  return (h - high) // 2, (w - wide) // 2, high, wide
end

define("RandomResizedCrop", "size, {scale = {0.08, 1}, ratio = {3 / 4, 4 / 3}, mode = \"linear\", "
    .. "antialias = true}",
  "Crops a random part, with a fraction `scale` of the area and an aspect ratio `ratio` (width to "
    .. "height), and resizes it, as Resize does.",
  function(where, size, opts)
    local o = options.check(where, opts, {scale = {0.08, 1}, ratio = {3 / 4, 4 / 3},
                                          mode = "linear", antialias = true})
    range(where, "scale", o.scale)
    range(where, "ratio", o.ratio)
    o.size = sizes(where, size)
    return o
  end, {takes_bytes = true, images = function(self, x)
    local list = {}
    for k = 1, x:size(1) do
      local top, left, high, wide = draw_box(self, x:size(3), x:size(4))
      list[k] = resize(x:narrow(1, k, 1):narrow(3, top + 1, high):narrow(4, left + 1, wide),
                       self.size, self.mode, self.antialias)
    end
    return core.cat(list, 1)
  end})

-- x sampled by affine maps (batch, 2, 3) from coordinates of the result, -1 to 1, to those of x.
local function warp(x, theta, size, mode, padding)
  local F = require "flare.nn.functional"
  local grid = F.affine_grid(theta, {x:size(1), x:size(2), size[1], size[2]})
  return core.grid_sample(x, grid, {mode = mode, padding = padding})
end

-- Affine maps (batch, 2, 3) from two rows of numbers or tensors (batch, 1, 1, 1).
local function maps(x, list)
  for i, v in ipairs(list) do
    list[i] = core.is_tensor(v) and v:view(-1) or core.full({x:size(1)}, v, {device = x.device})
    list[i] = list[i]:to(x.dtype)
  end
  return core.stack(list, 2):view(-1, 2, 3)
end

define("RandomAffine", "{degrees = 0, translate = {0, 0}, scale = {1, 1}, mode = \"linear\", "
    .. "padding = \"zeros\"}",
  "Rotates each image by up to `degrees`, translates it by up to fractions of width and height, "
    .. "and scales it by a factor in `scale`, all at random.",
  function(where, opts)
    local o = options.check(where, opts, {degrees = 0, translate = {0, 0}, scale = {1, 1},
                                          mode = "linear", padding = "zeros"})
    range(where, "scale", o.scale)
    for k = 1, 2 do share(where, "translate", o.translate[k]) end
    return o
  end, {images = function(self, x)
    local angle = draw(x, -1, 1) * math.rad(self.degrees)
    local scale = draw(x, self.scale[1], self.scale[2])
    local h, w = x:size(3), x:size(4)
    local cos, sin = angle:cos() / scale, angle:sin() / scale
    local right, down = self.translate[1] * draw(x, -2, 2), self.translate[2] * draw(x, -2, 2)
    local a, b, c, d = cos, sin * (h / w), -sin * (w / h), cos
    local map = maps(x, {a, b, -(a * right + b * down), c, d, -(c * right + d * down)})
    return warp(x, map, {h, w}, self.mode, self.padding)
  end})

return base
