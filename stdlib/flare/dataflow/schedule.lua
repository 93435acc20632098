--- A schedule: tasks in the order of their streams, and the checks that it can run.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"

local Schedule = class "Schedule"

local places = {device = true, host = true}

-- Stream by stream: the link of a machine that its transfers take.
local links = {["in"] = "host", out = "host", peer = "peer"}

--- dataflow.Schedule(name, {devices = 1}) is an empty schedule.
-- @param name what reports call it
-- @param opts {devices = their number (1), info = {tokens = in a step}, for reports}
function Schedule:init(name, opts)
  local o = options.check("dataflow.Schedule", opts, {devices = 1, info = {}})
  self.name = options.text("dataflow.Schedule", "name", name)
  self.devices = options.count("dataflow.Schedule", "devices", o.devices)
  self.info, self.tasks, self.by_name, self.residents = o.info, {}, {}, {}
  self.streams = {} -- list of {device =, name =, tasks}
  self._stream = {}
end

-- --- adding ---

local function wrong(task, format, ...)
  fail("dataflow: task '%s': " .. format, tostring(task.name), ...)
end

local function amount(task, what, value)
  if type(value) ~= "number" or value < 0 or value ~= value or value == math.huge then
    wrong(task, "%s must be a number of at least 0, got %s", what,
      type(value) == "number" and tostring(value) or options.kind(value))
  end
  return value
end

-- A list of names: from one name or a list.
local function names(task, what, value)
  if value == nil then return {} end
  if type(value) == "string" then return {value} end
  if type(value) ~= "table" then
    wrong(task, "%s must be a name or a list of names, got %s", what, options.kind(value))
  end
  for k, name in ipairs(value) do
    if type(name) ~= "string" then
      wrong(task, "%s[%d] must be a name, got %s", what, k, options.kind(name))
    end
  end
  return value
end

local function buffer_of(task, b, device, k)
  if type(b) ~= "table" or type(b[1]) ~= "string" then
    wrong(task, "holds[%d] must be {name, bytes = number, place = \"device\" or \"host\"}, got %s",
      k, options.kind(b))
  end
  local place = b.place or "device"
  if not places[place] then
    wrong(task, "buffer '%s' has the place '%s'; the places are device and host", b[1],
      tostring(place))
  end
  return {name = b[1], bytes = amount(task, ("the bytes of buffer '%s'"):format(b[1]), b.bytes),
          place = place, device = b.device or device}
end

local fields = {}
for name in ("name device stream cost seconds transfer link to needs holds frees uses again kind")
  :gmatch "%S+" do
  fields[name] = true
end

local costs = {flops = true, bytes = true, dtype = true, kind = true, seconds = true}

-- A task's costs as a list: what it does one after the other.
local function costs_of(task)
  local given = (task.cost and 1 or 0) + (task.seconds and 1 or 0) + (task.transfer and 1 or 0)
  if given ~= 1 then
    wrong(task, "%s of cost = {flops =, bytes =}, seconds and transfer (bytes) is needed",
      given == 0 and "one" or "only one")
  end
  if task.transfer then
    amount(task, "transfer", task.transfer)
    return {}
  end
  if task.seconds then return {{seconds = amount(task, "seconds", task.seconds)}} end
  if type(task.cost) ~= "table" then
    wrong(task, "cost must be {flops =, bytes =, dtype =, kind =} or a list of such tables, got %s",
      options.kind(task.cost))
  end
  local list = #task.cost > 0 and task.cost or {task.cost}
  for _, cost in ipairs(list) do
    for key, value in pairs(cost) do
      if not costs[key] then
        wrong(task, "unknown field '%s' of cost%s", tostring(key),
          options.hint(tostring(key), costs))
      end
      if key ~= "dtype" and key ~= "kind" then amount(task, "cost." .. key, value) end
    end
  end
  return list
end

local function device_of(self, task, what, device)
  local n = math.tointeger(device)
  if not n or n < 1 or n > self.devices then
    wrong(task, "%s must be a device from 1 to %d, got %s", what, self.devices, tostring(device))
  end
  return n
end

--- Adds a task at the end of its stream. Tasks of a stream run one after the other.
-- @param task {name, device = 1, stream = "compute" ("in" from the host, "out" to it, "peer" to
--   another device, or any name), needs = names of tasks that must have ended, holds = buffers
--   {name, bytes =, place = "device" or "host", device = the task's} that exist from its start,
--   uses = names of buffers that it reads or writes, frees = names of buffers that end with it,
--   again = true: computes what was computed before}, and one of cost = {flops =, bytes = of the
--   device's memory that it moves, dtype = "bf16", kind = of operator, or seconds =} or a list of
--   such costs, seconds, transfer = bytes over a link: link = "host", "peer" or another of the
--   machine's, to = the device that receives
-- @return the task's name
function Schedule:add(task)
  if type(task) ~= "table" or type(task.name) ~= "string" then
    fail("dataflow: a task is a table with a name, got %s", options.kind(task))
  end
  for key in pairs(task) do
    if not fields[key] then
      wrong(task, "unknown field '%s'%s", tostring(key), options.hint(tostring(key), fields))
    end
  end
  if self.by_name[task.name] then
    fail("dataflow: two tasks have the name '%s'; needs could not tell them apart", task.name)
  end
  local t = {name = task.name,
    stream = options.text("dataflow", "stream", task.stream or "compute"),
    device = device_of(self, task, "device", task.device or 1), costs = costs_of(task),
    transfer = task.transfer, again = task.again or false, needs = names(task, "needs", task.needs),
    uses = names(task, "uses", task.uses), frees = names(task, "frees", task.frees), holds = {}}
  if task.holds ~= nil and type(task.holds) ~= "table" then
    wrong(task, "holds must be a list of {name, bytes = number}, got %s", options.kind(task.holds))
  end
  for k, b in ipairs(task.holds or {}) do
    t.holds[k] = buffer_of(task, b, t.device, k)
    device_of(self, task, "the device of a buffer", t.holds[k].device)
  end
  if task.transfer then
    t.link = task.link or links[t.stream]
    if not t.link then
      wrong(task, "a transfer on stream '%s' must name its link, such as link = \"host\"", t.stream)
    end
    if task.to then t.to = device_of(self, task, "to", task.to) end
  end
  t.index = #self.tasks + 1
  self.tasks[t.index], self.by_name[t.name] = t, t
  local key = t.device .. " " .. t.stream
  local stream = self._stream[key]
  if not stream then
    stream = {device = t.device, name = t.stream, tasks = {}, number = #self.streams + 1}
    self._stream[key], self.streams[stream.number] = stream, stream
  end
  stream.tasks[#stream.tasks + 1] = t
  t.of, t.position = stream, #stream.tasks
  self.checked = false
  return t.name
end

--- Adds a buffer that is held from the start.
-- @param b {name, bytes =, device = 1, place = "device"}
function Schedule:resident(b)
  local who = {name = "(resident)"}
  if type(b) ~= "table" then
    fail("dataflow: a resident buffer is {name, bytes =, device =, place =}, got %s",
      options.kind(b))
  end
  local buffer = buffer_of(who, b, device_of(self, who, "device", b.device or 1), 1)
  self.residents[#self.residents + 1] = buffer
  self.checked = false
end

--- Checks that the schedule can run: that all names exist, tasks do not wait for each other in a
-- circle, and buffers are held when they are used and freed. flare.simulate does so as well.
-- @return the schedule
function Schedule:check()
  if not self.checked then
    require "flare.dataflow.check"(self)
    self.checked = true
  end
  return self
end

function Schedule:__tostring()
  return ("Schedule(%s, %d tasks, %d device%s)"):format(self.name, #self.tasks, self.devices,
    self.devices == 1 and "" or "s")
end

return Schedule
