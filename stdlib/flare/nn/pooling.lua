--- Pooling over 1, 2 or 3 dims: max, average, p-norm, adaptive, and unpooling.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local window = require "flare.nn.window"
local Module = require "flare.nn.module"

-- The batch dim may be missing: (channels, size...) is a batch of one.
local function batched(self, x, f)
  options.tensor(getmetatable(self).__name, "x", x)
  if x:dim() == self.dims + 1 then return (f(x:unsqueeze(1))):squeeze(1) end
  return (f(x))
end

local MaxPool = class("MaxPool", Module)

--- nn.MaxPool2d(kernel, {stride = kernel, padding = 0, dilation = 1, ceil = false})
function MaxPool:init(kernel, opts)
  local n, where, none = self.dims, "nn." .. getmetatable(self).__name, options.none
  if type(opts) == "number" then opts = {stride = opts} end
  local o = options.check(where, opts, {stride = none, padding = none, dilation = none,
                                        ceil = false})
  self.kernel = window.list(where, "kernel", kernel, n, 1)
  self.stride = window.list(where, "stride", o.stride or self.kernel, n, 1)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
  self.dilation = window.list(where, "dilation", o.dilation or 1, n, 1)
  self.ceil = o.ceil
end

--- (batch, channels, size...) -> the same with smaller sizes
function MaxPool:forward(x)
  return batched(self, x, function(y)
    return (core.max_pool(y, self.kernel, self.stride, self.padding, self.dilation, self.ceil))
  end)
end

local AvgPool = class("AvgPool", Module)

--- nn.AvgPool2d(kernel, {stride = kernel, padding = 0, ceil = false, count_pad = true})
function AvgPool:init(kernel, opts)
  local n, where, none = self.dims, "nn." .. getmetatable(self).__name, options.none
  if type(opts) == "number" then opts = {stride = opts} end
  local o = options.check(where, opts, {stride = none, padding = none, ceil = false,
                                        count_pad = true})
  self.kernel = window.list(where, "kernel", kernel, n, 1)
  self.stride = window.list(where, "stride", o.stride or self.kernel, n, 1)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
  self.ceil, self.count_pad = o.ceil, o.count_pad
end

--- (batch, channels, size...) -> the same with smaller sizes
function AvgPool:forward(x)
  return batched(self, x, function(y)
    return core.avg_pool(y, self.kernel, self.stride, self.padding, self.ceil, self.count_pad)
  end)
end

local function describe(self)
  return ("kernel=%s, stride=%s"):format(window.text(self.kernel), window.text(self.stride))
end
MaxPool.describe, AvgPool.describe = describe, describe

local AdaptiveAvgPool = class("AdaptiveAvgPool", Module)

--- nn.AdaptiveAvgPool2d(size): the mean over windows chosen so that the output has this size
function AdaptiveAvgPool:init(size)
  self.size = window.list("nn." .. getmetatable(self).__name, "size", size, self.dims, 1)
end

--- (batch, channels, any...) -> (batch, channels, size...)
function AdaptiveAvgPool:forward(x)
  return batched(self, x, function(y) return core.adaptive_avg_pool(y, self.size) end)
end

function AdaptiveAvgPool:describe()
  return "size=" .. window.text(self.size)
end

local AdaptiveMaxPool = class("AdaptiveMaxPool", AdaptiveAvgPool)

--- The maximum over windows chosen so that the output has the size.
function AdaptiveMaxPool:forward(x)
  return batched(self, x, function(y) return core.adaptive_max_pool(y, self.size) end)
end

local LPPool = class("LPPool", Module)

--- nn.LPPool2d(p, kernel, {stride = kernel, padding = 0, ceil = false}): (sum of |x|^p)^(1/p)
function LPPool:init(p, kernel, opts)
  local n, where, none = self.dims, "nn." .. getmetatable(self).__name, options.none
  local o = options.check(where, opts, {stride = none, padding = none, ceil = false})
  self.p, self.kernel = p, window.list(where, "kernel", kernel, n, 1)
  self.stride = window.list(where, "stride", o.stride or self.kernel, n, 1)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
  self.ceil = o.ceil
end

--- (batch, channels, size...) -> the same with smaller sizes
function LPPool:forward(x)
  return batched(self, x, function(y)
    return core.lp_pool(y, self.p, self.kernel, self.stride, self.padding, self.ceil)
  end)
end

local MaxUnpool = class("MaxUnpool", Module)

--- nn.MaxUnpool2d(kernel, {stride = kernel, padding = 0})
function MaxUnpool:init(kernel, opts)
  local n, where, none = self.dims, "nn." .. getmetatable(self).__name, options.none
  local o = options.check(where, opts, {stride = none, padding = none})
  self.kernel = window.list(where, "kernel", kernel, n, 1)
  self.stride = window.list(where, "stride", o.stride or self.kernel, n, 1)
  self.padding = window.list(where, "padding", o.padding or 0, n, 0)
end

--- Puts elements at the positions where max_pool{..., all = true} found them; the others are zero.
-- @param at the positions, the second result of max_pool
-- @param size the size of the result; by default the smallest that the window allows
function MaxUnpool:forward(x, at, size)
  return core.max_unpool(x, at, {kernel = self.kernel, stride = self.stride,
    padding = self.padding, size = size or {}})
end

LPPool.describe, MaxUnpool.describe = describe, describe

local classes = {}
for n = 1, 3 do
  for name, base in pairs{MaxPool = MaxPool, AvgPool = AvgPool,
                          AdaptiveAvgPool = AdaptiveAvgPool, AdaptiveMaxPool = AdaptiveMaxPool,
                          LPPool = LPPool, MaxUnpool = MaxUnpool} do
    local full = ("%s%dd"):format(name, n)
    classes[full] = class(full, base)
    classes[full].dims = n
  end
end
return classes
