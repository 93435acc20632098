-- fuzz_run.lua operators|library|files COUNT SEED [quiet]: as spec/support/fuzz.lua,
-- fuzz_library.lua and parsers.lua say.
-- What was running stands at the end of what is printed, if it does not end with the number of
-- results; quiet runs are faster, and the same.
package.path = "./?.lua;" .. package.path
local run = {
  operators = require "spec.support.fuzz".operators, files = require "spec.support.parsers".files,
  library = require "spec.support.fuzz_library".calls,
}

io.stdout:setvbuf "no"
local note = arg[4] ~= "quiet" and function(what) io.write(what:sub(1, 300), "\n") end or nil
print(run[arg[1]](tonumber(arg[2]), tonumber(arg[3]), note))
