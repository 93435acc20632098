-- 500 trainings killed with signal 9, at least 300 of them inside a save. limit: 20 min
package.path = "./?.lua;" .. package.path
local kill = require "spec.support.kill"

local reference = kill.reference()
local inside, complete, times, seed = 0, 0, 0, 1
while times < 500 or (inside < 300 and times < 2000) do
  local more, whole = kill.campaign(reference, 100, seed)
  inside, complete, times, seed = inside + more, complete + whole, times + 100, seed + 1
end
print(("figure: %d kills, %d inside a save (%.0f ms each), %d of those had become complete")
  :format(times, inside, reference.save * 1e3, complete))
print "figure: every file left was bit for bit that of the undisturbed run (dropout, AdamW)"
assert(inside >= 300)
