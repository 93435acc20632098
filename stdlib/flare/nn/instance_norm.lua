--- Normalises each channel of each sample by its own mean and variance over space.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"

local InstanceNorm = class("InstanceNorm", Module)

--- nn.InstanceNorm2d(channels, {affine = false, eps = 1e-5})
function InstanceNorm:init(channels, opts)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, {affine = false, eps = 1e-5})
  self.channels, self.eps = options.count(where, "channels", channels), o.eps
  if o.affine then
    self.weight = self:param(core.ones(channels))
    self.bias = self:param(core.zeros(channels))
  end
end

--- (batch, channels, size...) -> the same shape
function InstanceNorm:forward(x)
  if x:dim() ~= self.ndim or x:size(2) ~= self.channels then
    fail("%s: the input must have %d dims (batch, %d, size...), got (%s)",
         getmetatable(self).__name, self.ndim, self.channels, table.concat(x.shape, ", "))
  end
  return (core.group_norm(x, self.weight, self.bias, self.channels, self.eps))
end

function InstanceNorm:describe() return tostring(self.channels) end

local classes = {}
for name, ndim in pairs{InstanceNorm1d = 3, InstanceNorm2d = 4, InstanceNorm3d = 5} do
  classes[name] = class(name, InstanceNorm)
  classes[name].ndim = ndim
end
return classes
