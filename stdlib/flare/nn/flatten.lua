--- Flattens dims into one: (batch, channels, height, width) -> (batch, channels * height * width).
local class = require "flare.class"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Flatten = class("Flatten", Module)

--- nn.Flatten({first = 2, last = -1})
function Flatten:init(opts)
  local o = options.check("nn.Flatten", opts, {first = 2, last = -1})
  self.first, self.last = o.first, o.last
end

function Flatten:forward(x)
  return options.input(self, x):flatten(self.first, self.last)
end

return Flatten
