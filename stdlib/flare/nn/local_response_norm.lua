--- Local response normalization (Krizhevsky and others, 2012): divides by a power of the mean
-- square over neighbouring channels.
local class = require "flare.class"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local LocalResponseNorm = class("LocalResponseNorm", Module)

--- nn.LocalResponseNorm(size, {alpha = 1e-4, beta = 0.75, k = 1}): `size` neighbouring channels
function LocalResponseNorm:init(size, opts)
  local where = "nn.LocalResponseNorm"
  self.size = options.count(where, "size", size)
  self._options = options.check(where, opts, {alpha = 1e-4, beta = 0.75, k = 1})
end

--- (batch, channels, ...) -> the same shape
function LocalResponseNorm:forward(x)
  return F.local_response_norm(x, self.size, self._options)
end

function LocalResponseNorm:describe() return tostring(self.size) end

return LocalResponseNorm
