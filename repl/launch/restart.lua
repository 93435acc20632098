--- How long to wait before a job is started again: twice as long after each failure, so that a
-- script that fails at once does not use up its restarts within a second.
local Restart = {}
Restart.__index = Restart

local first, longest = 1, 60 -- seconds
local healthy = 60 -- seconds that an attempt must run for the pauses to begin again

function Restart.new() return setmetatable({failures = 0}, Restart) end

--- @param ran seconds that the attempt has run
-- @return seconds to wait
function Restart:pause(ran)
  self.failures = ran >= healthy and 1 or self.failures + 1
  return math.min(longest, first * 2.0 ^ (self.failures - 1))
end

return Restart
