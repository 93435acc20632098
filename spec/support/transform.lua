-- A transform for the loader's specs: adds a random number to each row.
local flare = require "flare"

return function(x)
  return x:to("f32") + flare.rand(#x)
end
