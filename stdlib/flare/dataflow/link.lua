--- A link while it is simulated: transfers share its rate equally, or one after the other has it.
local Link = {}
Link.__index = Link

-- The transfers' bytes since the last change.
local function advance(self, now)
  local each = self.rate / math.max(#self.active, 1) * (now - self.since)
  for _, x in ipairs(self.active) do x.left = x.left - each end
  if self.active[1] then self.busy = self.busy + now - self.since end
  self.since = now
end

-- Tells when the next transfer will end, unless others join before.
local function expect(self, now, heap)
  self.version = self.version + 1
  local least
  for _, x in ipairs(self.active) do
    if not least or x.left < least.left then least = x end
  end
  if least then
    local time = now + math.max(least.left, 0) * #self.active / self.rate
    heap:push(time, {link = self, version = self.version, transfer = least})
  end
end

--- A task's bytes begin to flow.
function Link:join(task, now, heap)
  advance(self, now)
  self.bytes = self.bytes + task.transfer
  self.active[#self.active + 1] = {task = task, left = task.transfer}
  expect(self, now, heap)
end

--- The task whose transfer an event of this link ends; nil if the event is out of date.
function Link:ended(event, now, heap)
  if event.version ~= self.version then return nil end
  advance(self, now)
  for k, x in ipairs(self.active) do
    if x == event.transfer then table.remove(self.active, k) end
  end
  expect(self, now, heap)
  return event.transfer.task
end

--- @param name for reports @param of the machine's link @param share of the rate that transfers get
return function(name, of, share)
  return setmetatable({name = name, rate = of.rate * share, latency = of.latency,
    exclusive = of.exclusive, active = {}, since = 0, version = 0, busy = 0, bytes = 0}, Link)
end
