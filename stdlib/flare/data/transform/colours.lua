--- Transforms of what pixels are: colours, blur, erased parts.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local base = require "flare.data.transform.base"
local luminance = require "flare.data.luminance"
local define, draw, range, share = base.define, base.draw, base.range, base.share

define("Normalize", "mean, std", "(x - mean) / std, with a number for each channel. Samples of u8 "
  .. "become f32 from 0 to 1 first.",
  function(where, mean, std)
    local function list(name, value)
      value = core.is_tensor(value) and value or core.tensor(value)
      if value:dim() > 1 or value.dtype == "bool" then
        fail("%s: %s must be a list of numbers", where, name)
      end
      return value:view(1, -1, 1, 1)
    end
    return {mean = list("mean", mean), std = list("std", std)}
  end, {takes_bytes = true, images = function(self, x)
    if x.dtype == "u8" then x = x:to "f32" / 255 end
    local like = {dtype = x.dtype, device = x.device}
    return (x - self.mean:to(like)) / self.std:to(like)
  end})

define("ToFloat", "", "Samples of u8 as f32 from 0 to 1; floats stay as they are.",
  function() return {} end, {takes_bytes = true, images = function(_, x)
    return x.dtype == "u8" and x:to "f32" / 255 or x
  end})

local function grey(x)
  if x:size(2) == 1 then return x end
  if x:size(2) ~= 3 then
    fail("transforms: colours need 3 channels (red, green, blue), got %d", x:size(2))
  end
  return luminance(x, 2)
end

define("Grayscale", "", "Converts RGB images to one channel of luminance (ITU-R 601).",
  function() return {} end, {takes_bytes = true, images = function(_, x) return grey(x) end})

-- From `other` to x, or beyond. Bytes, here in f32, are rounded down, as Pillow's Image.blend does.
local function blend(x, other, factor, most)
  local y = (other + (x - other) * factor):clamp(0, most)
  return most == 255 and y:floor() or y
end

-- The luminance of bytes is a byte, too.
local function grey_of(x, most)
  return most == 255 and grey(x:to "u8"):to "f32" or grey(x)
end

local changes = {
  brightness = function(x, factor, most) return blend(x, 0, factor, most) end,
  contrast = function(x, factor, most)
    local mean = grey_of(x, most):mean{dims = {2, 3, 4}, keepdim = true}
    return blend(x, most == 255 and (mean + 0.5):floor() or mean, factor, most)
  end,
  saturation = function(x, factor, most) return blend(x, grey_of(x, most), factor, most) end,
  -- Turns the hue by a part of the circle, with the value and the chroma of HSV kept.
  hue = function(x, turn, most)
    if x:size(2) ~= 3 then return x end
    if most == 255 then x = x / 255 end
    local r, g, b = x:narrow(2, 1, 1), x:narrow(2, 2, 1), x:narrow(2, 3, 1)
    local high, low = x:amax{dims = {2}, keepdim = true}, x:amin{dims = {2}, keepdim = true}
    local chroma = high - low
    local span = core.where(chroma:eq(0), 1, chroma)
    local sixths = core.where(r:eq(high), (g - b) / span,
                              core.where(g:eq(high), (b - r) / span + 2, (r - g) / span + 4))
    -- how far each primary is from the hue, in sixths of the circle: red, green, blue
    local shift = core.tensor({5, 3, 1}, {dtype = x.dtype, device = x.device}):view(1, 3, 1, 1)
    local k = (sixths + turn * 6 + shift):remainder(6)
    x = high - chroma * k:minimum(4 - k):clamp(0, 1)
    return most == 255 and (x * 255.999):floor() or x
  end,
}
local order = {"brightness", "contrast", "saturation", "hue"}

-- The range of a factor, or nil if it changes nothing: b is {from, to} or a distance from `middle`.
local function factors(where, name, b, middle, least, most)
  if type(b) == "number" then
    if b == 0 then return nil end
    if b < 0 then fail("%s: %s must not be negative, got %g", where, name, b) end
    b = {math.max(least, middle - b), middle + b}
  end
  range(where, name, b)
  if b[1] < least or b[2] > most then
    fail("%s: %s must be from %g to %g", where, name, least, most)
  end
  return b
end

define("ColorJitter", "{brightness = 0, contrast = 0, saturation = 0, hue = 0}",
  "Changes brightness, contrast and saturation by random factors, each from 1 - b to 1 + b or in "
    .. "{from, to}, and turns the hue by -h to h of the circle, at most 0.5; in random order. "
    .. "Floats are clamped to 0 to 1; u8 gives what Pillow gives, the hue apart.",
  function(where, opts)
    local none = options.none -- numbers or ranges
    local o = options.check(where, opts, {brightness = none, contrast = none, saturation = none,
                                          hue = none})
    for _, name in ipairs(order) do
      local middle = name == "hue" and 0 or 1
      o[name] = factors(where, name, o[name] or 0, middle, middle == 0 and -0.5 or 0,
                        middle == 0 and 0.5 or math.huge)
    end
    return o
  end, {takes_bytes = true, images = function(self, x)
    local list = {}
    for _, name in ipairs(order) do
      if self[name] then list[#list + 1] = name end
    end
    if #list > 1 then
      local shuffled = {}
      for k, place in ipairs(core.randperm(#list):tolist()) do shuffled[k] = list[place] end
      list = shuffled
    end
    local bytes = x.dtype == "u8"
    local y = bytes and x:to "f32" or x
    for _, name in ipairs(list) do
      y = changes[name](y, draw(y, self[name][1], self[name][2]), bytes and 255 or 1)
    end
    return bytes and y:to "u8" or y
  end})

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
  end, {takes_bytes = true, images = function(self, x)
    local area = draw(x, self.scale[1], self.scale[2])
    local ratio = draw(x, math.log(self.ratio[1]), math.log(self.ratio[2])):exp()
    local h, w = (area * ratio):sqrt():clamp{max = 1}, (area / ratio):sqrt():clamp{max = 1}
    return x:masked_fill(base.rectangle(x, h, w) & base.chosen(x, self.p), self.value)
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

return base
