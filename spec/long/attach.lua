-- A job of four ranks is looked at, at 1000 of its steps, while it trains. limit: 5 min
package.path = "./?.lua;" .. package.path
local disturbed, alone, steps, seen, visits, together = require "spec.support.attach".campaign(1000)
assert(disturbed == alone, "the job trained something else:\n" .. disturbed .. alone)
assert(together == visits, ("%d of %d times all ranks stopped"):format(together, visits))
print(("figure: 4 ranks, %d steps, attached %d times, stopped at %d different steps")
  :format(steps, visits, #seen))
print "figure: weights and random numbers were bit for bit those of the undisturbed job (AdamW)"
