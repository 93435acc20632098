--- The base class of normalizations of channels: parameters and running statistics.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local Module = require "flare.nn.module"

local ChannelNorm = class("ChannelNorm", Module)

-- `defaults` are those of the options affine, track, momentum and eps.
function ChannelNorm:prepare(channels, opts, defaults)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, defaults)
  self.channels = options.count(where, "channels", channels)
  self.momentum, self.eps = o.momentum, o.eps
  if o.affine then
    self.weight = self:param(core.ones(channels))
    self.bias = self:param(core.zeros(channels))
  end
  if o.track then
    self.running_mean = self:buffer(core.zeros(channels))
    self.running_var = self:buffer(core.ones(channels))
  end
  return o
end

function ChannelNorm:describe() return tostring(self.channels) end

return ChannelNorm
