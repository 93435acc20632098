--- Parametric ReLU (arXiv:1502.01852): x where it is positive, elsewhere x times a learned slope.
local class = require "flare.class"
local core = require "flare.core"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local PReLU = class("PReLU", Module)

--- nn.PReLU(channels, {slope = 0.25}): one slope for each channel, or one for all with channels =
-- 1, the default
function PReLU:init(channels, opts)
  local o = options.check("nn.PReLU", opts, {slope = 0.25})
  self.weight = self:param(core.full({options.count("nn.PReLU", "channels", channels or 1)},
                                     o.slope))
end

function PReLU:forward(x)
  return F.prelu(x, self.weight)
end

return PReLU
