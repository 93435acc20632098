--- Events in the order of their times; those of one time in the order in which they came.
local Heap = {}
Heap.__index = Heap

local function earlier(a, b)
  return a.time < b.time or a.time == b.time and a.number < b.number
end

--- Adds an event, a table, for a time.
function Heap:push(time, event)
  local list = self
  event.time, event.number = time, self.count
  self.count = self.count + 1
  local k = #list + 1
  while k > 1 and earlier(event, list[k // 2]) do
    list[k] = list[k // 2]
    k = k // 2
  end
  list[k] = event
end

--- Takes the first event out; nil if there is none.
function Heap:pop()
  local list, n = self, #self
  local first, last = list[1], list[n]
  list[n] = nil
  n = n - 1
  if n < 1 then return first end
  local k = 1
  while 2 * k <= n do
    local child = 2 * k
    if child < n and earlier(list[child + 1], list[child]) then child = child + 1 end
    if not earlier(list[child], last) then break end
    list[k] = list[child]
    k = child
  end
  list[k] = last
  return first
end

return function() return setmetatable({count = 0}, Heap) end
