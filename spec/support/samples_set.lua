--- A data set that gives one sample at a time, with random numbers of two kinds.
local class = require "flare.class"
local flare = require "flare"

local Samples = class("Samples")
function Samples:init(n) self.n = n end
function Samples:size() return self.n end
function Samples:get(i)
  return flare.full({2}, i), i, i / 2, "s" .. i, flare.rand(1), math.random(1, 1000000)
end
function Samples:describe() return "spec.support.samples_set", self.n end
return Samples
