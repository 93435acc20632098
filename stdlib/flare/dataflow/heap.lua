--- Events in the order of their times; those of one time in the order in which they came.
local Events = require "flare.heap" (function(a, b)
  return a.time < b.time or a.time == b.time and a.number < b.number
end)
local push = Events.push

--- Adds an event, a table, for a time.
function Events:push(time, event)
  event.time, event.number = time, self.count
  self.count = self.count + 1
  push(self, event)
end

return function() return setmetatable({count = 0}, Events) end
