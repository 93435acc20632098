-- Every allocation of three training steps fails once, twice in a row, for good.
-- limit: 15 min
package.path = "./?.lua;" .. package.path
local starve = require "spec.support.starve"

for name, step in pairs(starve.steps()) do
  local tries, errors = starve.run(name, step, 1, {1, 2, 3, -1})
  print(("figure: %s step: %d failures ordered, %d clear errors, nothing left, all repeated")
    :format(name, tries, errors))
end
