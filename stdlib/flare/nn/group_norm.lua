--- Group normalization (arXiv:1803.08494): normalizes each group of channels of each sample by its
-- mean and variance.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"

local GroupNorm = class("GroupNorm", Module)

--- nn.GroupNorm(groups, channels, {affine = true, eps = 1e-5})
function GroupNorm:init(groups, channels, opts)
  local o = options.check("nn.GroupNorm", opts, {affine = true, eps = 1e-5})
  self.groups = options.count("nn.GroupNorm", "groups", groups)
  self.channels = options.count("nn.GroupNorm", "channels", channels)
  if channels % groups ~= 0 then
    fail("nn.GroupNorm: %d channels cannot be cut into %d equal groups", channels, groups)
  end
  self.eps = o.eps
  if o.affine then
    self.weight = self:param(core.ones(channels))
    self.bias = self:param(core.zeros(channels))
  end
end

--- (batch, channels, ...) -> the same shape
function GroupNorm:forward(x)
  return (core.group_norm(x, self.weight, self.bias, self.groups, self.eps))
end

function GroupNorm:describe()
  return ("%d, %d"):format(self.groups, self.channels)
end

return GroupNorm
