--- Layers that resize or rearrange dims: Upsample, PixelShuffle, PixelUnshuffle, ChannelShuffle,
-- Unfold, Fold, Pad, Unflatten.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"

local function list(v) return type(v) == "table" and v or {v} end

local Upsample = class("Upsample", Module)

--- nn.Upsample{size =, scale =, mode = "nearest", align_corners = false, antialias = false}
function Upsample:init(opts)
  local o = options.check("nn.Upsample", opts, {size = options.none, scale = options.none,
    mode = "nearest", align_corners = false, antialias = false})
  if (o.size == nil) == (o.scale == nil) then fail("nn.Upsample: give a size or a scale") end
  self.options = {size = o.size and list(o.size), scale = o.scale, mode = o.mode,
    align_corners = o.align_corners, antialias = o.antialias}
end

--- (batch, channels, size...) -> the same with other sizes
function Upsample:forward(x) return core.interpolate(x, self.options) end

function Upsample:describe()
  local o = self.options
  return ("%s, mode=%s"):format(o.size and "size=" .. table.concat(o.size, "x")
    or "scale=" .. o.scale, o.mode)
end

-- A layer of one operator and one number.
local function of_number(name, operator, what)
  local Layer = class(name, Module)
  Layer.operator, Layer.about = operator, {("nn.%s(%s)"):format(name, what)}
  function Layer:init(n)
    if math.type(n) ~= "integer" or n < 1 then
      fail("nn.%s: %s should be an integer above 0, got %s", name, what, tostring(n))
    end
    self[what] = n
  end
  function Layer:forward(x) return core[operator](x, self[what]) end
  function Layer:describe() return what .. "=" .. self[what] end
  return Layer
end

local Unfold = class("Unfold", Module)

-- A number, or one for each dim.
local windows = {dilation = options.none, padding = options.none, stride = options.none}

local function window_options(where, opts)
  local o = options.check(where, opts, windows)
  for name in next, windows do o[name] = list(o[name] or (name == "padding" and 0 or 1)) end
  return o
end

--- nn.Unfold(kernel, {dilation = 1, padding = 0, stride = 1}): sliding windows as columns (im2col)
function Unfold:init(kernel, opts)
  self.options = window_options("nn.Unfold", opts)
  self.options.kernel = list(kernel)
end

--- (batch, channels, size...) -> (batch, channels times kernel, windows)
function Unfold:forward(x) return core.im2col(x, self.options) end

local Fold = class("Fold", Module)

--- nn.Fold(size, kernel, {dilation = 1, padding = 0, stride = 1}): adds columns back into an image
-- (col2im)
function Fold:init(size, kernel, opts)
  self.options = window_options("nn.Fold", opts)
  self.options.size, self.options.kernel = list(size), list(kernel)
end

--- (batch, channels times kernel, windows) -> (batch, channels, size...)
function Fold:forward(x) return core.fold(x, self.options) end

local Pad = class("Pad", Module)

--- nn.Pad(pad, {mode = "constant", value = 0})
-- `pad` is a list of the elements to add before and after each dim, the last dim first; one number
-- stands for both sides of the last two dims. Modes: constant, reflect, replicate, circular.
function Pad:init(pad, opts)
  local o = options.check("nn.Pad", opts, {mode = "constant", value = 0})
  if type(pad) == "number" then pad = {pad, pad, pad, pad} end
  for k, n in ipairs(type(pad) == "table" and pad or {false}) do
    if math.type(n) ~= "integer" then
      fail("nn.Pad: pad must be an integer or a list of integers, got %s", n and
           ("%s at position %d"):format(options.kind(n), k) or options.kind(pad))
    end
  end
  self.pad, self.mode, self.value = pad, o.mode, o.value
end

function Pad:forward(x) return core.pad(x, self.pad, self.mode, self.value) end

function Pad:describe()
  return ("pad=%s, mode=%s"):format(table.concat(self.pad, " "), self.mode)
end

local Unflatten = class("Unflatten", Module)

--- nn.Unflatten(dim, sizes): divides a dim into several; one size may be -1
function Unflatten:init(dim, sizes)
  self.dim, self.sizes = dim, list(sizes)
end

function Unflatten:forward(x) return core.unflatten(x, self.dim, self.sizes) end

return {
  Upsample = Upsample, Unfold = Unfold, Fold = Fold, Pad = Pad, Unflatten = Unflatten,
  PixelShuffle = of_number("PixelShuffle", "pixel_shuffle", "factor"),
  PixelUnshuffle = of_number("PixelUnshuffle", "pixel_unshuffle", "factor"),
  ChannelShuffle = of_number("ChannelShuffle", "channel_shuffle", "groups"),
}
