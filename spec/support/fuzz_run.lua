-- fuzz_run.lua operators|files COUNT SEED [KIND]: as spec/support/fuzz.lua says. What was running
-- stands at the end of what is printed, if it does not end with the number of results.
package.path = "./?.lua;" .. package.path
local fuzz = require "spec.support.fuzz"

io.stdout:setvbuf "no"
local fine = fuzz[arg[1]](tonumber(arg[2]), tonumber(arg[3]), function(what)
  io.write(what:sub(1, 200), "\n")
end, arg[4])
print(fine)
