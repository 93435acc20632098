--- Transforms of batches of images: augmentation for training, and normalization.
--
--     local t = flare.data.transforms
--     local f = t.Compose{t.RandomCrop(32, {padding = 4}), t.RandomHorizontalFlip(),
--                         t.Normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2})}
--     local loader = flare.data.Loader(set, {batch = 64, shuffle = true, transform = f})
--
-- Images are floats (batch, channels, height, width), or one image without the batch dim; further
-- arguments, such as labels, are returned as they are. Random numbers are drawn for each image.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}
local Transform = class("Transform")
Transform.__keeps = true

function Transform:__call(x, ...)
  local name = getmetatable(self).__name
  if not core.is_tensor(x) or x:dim() < 3 or x:dim() > 4 or not x.dtype:find "^b?f%d" then
    fail("transforms.%s: floats (batch, channels, height, width) are expected, got %s", name,
         core.is_tensor(x) and x.dtype .. " " .. tostring(x.shape) or options.kind(x))
  end
  if x:dim() == 4 then return self:apply(x, ...) end
  return self:apply(x:unsqueeze(1)):squeeze(1), ...
end

function Transform:__tostring()
  local fields = {}
  for key, value in pairs(self) do
    if key == "list" then
      for i, part in ipairs(value) do fields[i] = tostring(part) end
    elseif key ~= "where" then
      fields[#fields + 1] = ("%s = %s"):format(key, core.is_tensor(value)
        and "{" .. table.concat(value:view(-1):totable(), ", ") .. "}"
        or type(value) == "table" and "{" .. table.concat(value, ", ") .. "}" or tostring(value))
    end
  end
  if not self.list then table.sort(fields) end
  return ("%s(%s)"):format(getmetatable(self).__name, table.concat(fields, ", "))
end

--- The module and arguments from which a worker thread makes this transform again.
function Transform:describe()
  return require("flare.data.recipe").describe_transform(self)
end

-- A transform: `take(...)` gives its fields, `apply(self, x, ...)` the new batch and what follows,
-- `images(self, x)` the new batch alone.
local function define(name, call, what, take, methods)
  local cls = class(name, Transform)
  cls.about = {("data.transforms.%s(%s)"):format(name, call), what}
  function cls:init(...)
    for key, value in pairs(take("transforms." .. name, ...)) do self[key] = value end
  end
  function cls:apply(x, ...) return self:images(x), ... end
  for key, f in pairs(methods) do cls[key] = f end
  M[name] = cls
end

-- Height and width of a number or a list of two.
local function sizes(where, size)
  if type(size) ~= "table" then size = {size, size} end
  return {options.count(where, "size", size[1]), options.count(where, "size", size[2])}
end

-- A list of two numbers, {from, to}.
local function range(where, name, value)
  if type(value) ~= "table" or type(value[1]) ~= "number" or type(value[2]) ~= "number"
     or value[1] > value[2] then
    fail("%s: %s must be two numbers, {from, to}", where, name)
  end
  return value
end

local function share(where, name, p)
  if type(p) ~= "number" or p < 0 or p > 1 then
    fail("%s: %s must be from 0 to 1, got %s", where, name, tostring(p))
  end
  return p
end

-- A draw for each image, (batch, 1, 1, 1), between two numbers.
local function draw(x, low, high)
  return core.rand({x:size(1), 1, 1, 1}, {low = low, high = high, device = x.device}):to(x.dtype)
end

-- A mask of the images to change, each with probability p.
local function chosen(x, p)
  return core.rand({x:size(1), 1, 1, 1}, {device = x.device}):lt(p)
end

local function gray(x)
  if x:size(2) == 1 then return x end
  if x:size(2) ~= 3 then
    fail("transforms: colours need 3 channels (red, green, blue), got %d", x:size(2))
  end
  local parts = core.tensor({0.299, 0.587, 0.114}, {dtype = x.dtype, device = x.device})
  return (x * parts:view(1, 3, 1, 1)):sum{dim = 2, keepdim = true}
end

define("Compose", "{a, b, ...}", "Applies transforms in order.", function(where, list)
  if type(list) ~= "table" or getmetatable(list) then
    fail("%s: a list of functions is expected, got %s", where, options.kind(list))
  end
  return {list = list}
end, {
  __call = function(self, ...)
    local values = table.pack(...)
    for _, f in ipairs(self.list) do values = table.pack(f(table.unpack(values, 1, values.n))) end
    return table.unpack(values, 1, values.n)
  end,
})

define("Normalize", "mean, std", "(x - mean) / std, with a number for each channel.",
  function(where, mean, std)
    local function list(name, value)
      value = core.is_tensor(value) and value or core.tensor(value)
      if value:dim() > 1 or value.dtype == "bool" then
        fail("%s: %s must be a list of numbers", where, name)
      end
      return value:view(1, -1, 1, 1)
    end
    return {mean = list("mean", mean), std = list("std", std)}
  end, {images = function(self, x)
    local like = {dtype = x.dtype, device = x.device}
    return (x - self.mean:to(like)) / self.std:to(like)
  end})

define("Resize", "size, {mode = \"linear\", antialias = true}",
  "Resizes images to {height, width}, or to a number for both; modes are those of interpolate.",
  function(where, size, opts)
    local o = options.check(where, opts, {mode = "linear", antialias = true})
    return {size = sizes(where, size), mode = o.mode,
            antialias = o.antialias and (o.mode == "linear" or o.mode == "cubic")}
  end, {images = function(self, x)
    return core.interpolate(x, {size = self.size, mode = self.mode, antialias = self.antialias})
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

define("CenterCrop", "size", "Crops each image at its center.", function(where, size)
  return {where = where, size = sizes(where, size)}
end, {images = function(self, x)
  local h, w = self.size[1], self.size[2]
  fits(self.where, x, self.size)
  return x:narrow(3, (x:size(3) - h) // 2 + 1, h):narrow(4, (x:size(4) - w) // 2 + 1, w)
end})

define("RandomCrop", "size, {padding = 0, mode = \"constant\", value = 0}",
  "Crops each image at a random place, after padding it by `padding` pixels on all sides.",
  function(where, size, opts)
    local o = options.check(where, opts, {padding = 0, mode = "constant", value = 0})
    options.count(where, "padding", o.padding, 0)
    o.where, o.size = where, sizes(where, size)
    return o
  end, {images = function(self, x)
    local p, h, w = self.padding, self.size[1], self.size[2]
    if p > 0 then x = x:pad({p, p, p, p}, self.mode, self.value) end
    fits(self.where, x, self.size)
    return crop(x, places(x, x:size(3) - h), places(x, x:size(4) - w), h, w)
  end})

-- A mirror along a dim, for some images.
local function flip(name, dim, what)
  define(name, "p = 0.5", what, function(where, p)
    return {p = share(where, "p", p or 0.5)}
  end, {images = function(self, x) return core.where(chosen(x, self.p), x:flip(dim), x) end})
end
flip("RandomHorizontalFlip", 4, "Flips each image left to right with probability p.")
flip("RandomVerticalFlip", 3, "Flips each image upside down with probability p.")

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

define("RandomResizedCrop", "size, {scale = {0.08, 1}, ratio = {3 / 4, 4 / 3}, mode = \"linear\"}",
  "Crops a random part, with a fraction `scale` of the area and an aspect ratio `ratio` (width to "
    .. "height), and resizes it.",
  function(where, size, opts)
    local o = options.check(where, opts, {scale = {0.08, 1}, ratio = {3 / 4, 4 / 3},
                                          mode = "linear"})
    range(where, "scale", o.scale)
    range(where, "ratio", o.ratio)
    o.size = sizes(where, size)
    return o
  end, {images = function(self, x)
    local area = draw(x, self.scale[1], self.scale[2])
    local ratio = draw(x, math.log(self.ratio[1]), math.log(self.ratio[2])):exp()
      * (x:size(3) / x:size(4))
    local w, h = (area * ratio):sqrt():clamp{max = 1}, (area / ratio):sqrt():clamp{max = 1}
    local map = maps(x, {w, 0, draw(x, -1, 1) * (1 - w), 0, h, draw(x, -1, 1) * (1 - h)})
    return warp(x, map, self.size, self.mode, "border")
  end})

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

define("Grayscale", "", "Converts RGB images to one channel of luminance.",
  function() return {} end, {images = function(_, x) return gray(x) end})

define("ColorJitter", "{brightness = 0, contrast = 0, saturation = 0}",
  "Changes brightness, contrast and saturation, each by a random factor from 1 - b to 1 + b; "
    .. "results are clamped to 0 to 1.",
  function(where, opts)
    local o = options.check(where, opts, {brightness = 0, contrast = 0, saturation = 0})
    for key, b in pairs(o) do share(where, key, b) end
    return o
  end, {images = function(self, x)
    -- from `other` to x, or beyond
    local function mix(b, other)
      if b > 0 then x = (other + (x - other) * draw(x, 1 - b, 1 + b)):clamp(0, 1) end
    end
    mix(self.brightness, 0)
    if self.contrast > 0 then mix(self.contrast, gray(x):mean{dims = {2, 3, 4}, keepdim = true}) end
    if self.saturation > 0 then mix(self.saturation, gray(x)) end
    return x
  end})

-- A mask: 1 inside a random rectangle of each image, with these fractions of height and width.
local function rectangle(x, h, w)
  local function inside(n, part, shape)
    local length = (part * n):round()
    local first = (draw(x, 0, 1) * (n - length + 1)):floor():minimum(n - length)
    local at = core.arange(0, n, {device = x.device}):to(x.dtype):view(shape)
    return at:ge(first) & at:lt(first + length)
  end
  local height, width = x:size(3), x:size(4)
  return inside(height, h, {1, 1, height, 1}) & inside(width, w, {1, 1, 1, width})
end

define("RandomErasing", "{p = 0.5, scale = {0.02, 0.33}, ratio = {0.3, 3.3}, value = 0}",
  "Random erasing (arXiv:1708.04896): with probability p, fills a random rectangle with `value`; "
    .. "`scale` is its fraction of the area.",
  function(where, opts)
    local o = options.check(where, opts, {p = 0.5, scale = {0.02, 0.33}, ratio = {0.3, 3.3},
                                          value = 0})
    share(where, "p", o.p)
    range(where, "scale", o.scale)
    range(where, "ratio", o.ratio)
    return o
  end, {images = function(self, x)
    local area = draw(x, self.scale[1], self.scale[2])
    local ratio = draw(x, math.log(self.ratio[1]), math.log(self.ratio[2])):exp()
    local h, w = (area * ratio):sqrt():clamp{max = 1}, (area / ratio):sqrt():clamp{max = 1}
    return x:masked_fill(rectangle(x, h, w) & chosen(x, self.p), self.value)
  end})

define("GaussianBlur", "kernel, {sigma = {0.1, 2}}",
  "Convolves images with a Gaussian of odd size `kernel`; its standard deviation, in pixels, is "
    .. "drawn from `sigma` for each batch.",
  function(where, kernel, opts)
    local o = options.check(where, opts, {sigma = {0.1, 2}})
    range(where, "sigma", o.sigma)
    o.kernel = options.count(where, "kernel", kernel)
    if o.kernel % 2 == 0 then fail("%s: the kernel must be odd, got %d", where, o.kernel) end
    return o
  end, {images = function(self, x)
    local half, channels = self.kernel // 2, x:size(2)
    local sigma = core.rand({1}, {low = self.sigma[1], high = self.sigma[2], device = x.device})
    local at = core.arange(-half, half + 1, {device = x.device}):float() / sigma
    local window = (at ^ 2 * -0.5):softmax(1):to(x.dtype):view(1, 1, -1, 1)
      :expand(channels, 1, -1, 1)
    local o = {groups = channels}
    x = x:pad({half, half, half, half}, "reflect")
    return core.conv(core.conv(x, window, nil, o), window:transpose(3, 4), nil, o)
  end})

-- Labels from 1, or probabilities, as probabilities (batch, classes).
local function probabilities(self, labels, like)
  if not core.is_tensor(labels) then
    fail("transforms.%s: the labels of the images are needed", getmetatable(self).__name)
  end
  if labels:dim() == 2 then return labels end
  return core.one_hot(labels, self.classes):to(like.dtype)
end

-- The weight of each image in its mixture, drawn from Beta(alpha, alpha).
local function shares(self, x)
  local d = require("flare.distributions").Beta(self.alpha, self.alpha)
  return d:sample(x:size(1)):to{dtype = x.dtype, device = x.device}:view(-1, 1, 1, 1)
end

local function take_pairs(where, opts)
  local o = options.check(where, opts, {classes = options.none, alpha = 1})
  options.count(where, "classes", o.classes)
  return o
end

define("MixUp", "{classes =, alpha = 1}",
  "Mixup (arXiv:1710.09412): convex combinations of images and of their labels, which become "
    .. "probabilities.",
  take_pairs, {apply = function(self, x, labels, ...)
    local y, own = probabilities(self, labels, x), shares(self, x)
    local other = core.randperm(x:size(1)):to(x.device)
    local part = own:view(-1, 1)
    return x * own + x:index_select(1, other) * (1 - own),
           y * part + y:index_select(1, other) * (1 - part), ...
  end})

define("CutMix", "{classes =, alpha = 1}",
  "CutMix (arXiv:1905.04899): replaces a rectangle of each image by that of another image; labels "
    .. "become probabilities.",
  take_pairs, {apply = function(self, x, labels, ...)
    local y = probabilities(self, labels, x)
    local side = (1 - shares(self, x)):sqrt()
    local inside = rectangle(x, side, side)
    local other = core.randperm(x:size(1)):to(x.device)
    local part = 1 - inside:to(x.dtype):mean{dims = {2, 3, 4}}:view(-1, 1)
    return core.where(inside, x:index_select(1, other), x),
           y * part + y:index_select(1, other) * (1 - part), ...
  end})

return require "flare.lazy"("data.transforms", M, {})
