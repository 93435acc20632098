--- flare.simulate: runs a schedule on a described machine, event by event.
local buffers = require "flare.dataflow.buffers"
local Heap = require "flare.dataflow.heap"
local Link = require "flare.dataflow.link"
local Simulation = require "flare.dataflow.simulation"
local fail = require "flare.fail"
local machines = require "flare.dataflow.machine"
local make = require "flare.dataflow.make"
local units = require "flare.explain.units"

local MOST_NAMED = 6 -- kinds of buffers, in messages

-- --- places: the memory of a device, and of a host ---

local function node_of(r, device) return (device - 1) // r.node + 1 end

local function place_of(r, b)
  local on_host = b.place == "host"
  local number = on_host and node_of(r, b.device) or b.device
  local name = on_host and (r.nodes > 1 and "host " .. number or "host") or "device " .. number
  local place = r.places[name]
  if not place then
    place = {name = name, used = 0, peak = 0, at = 0, waited = 0, host = on_host,
             cap = on_host and r.machine.host.bytes or r.machine.memory.bytes}
    r.places[name], r.places[#r.places + 1] = place, place
  end
  return place
end

local function take(r, b, task, now)
  local place = place_of(r, b)
  place.used = place.used + b.bytes
  if place.used > place.peak then place.peak, place.at = place.used, now end
  local life = {name = b.name, bytes = b.bytes, place = place, task = task, start = now}
  r.held[b.name], r.lives[#r.lives + 1] = life, life
end

local function give(r, name, now)
  local life = r.held[name]
  life.stop, r.held[name] = now, nil
  life.place.used = life.place.used - life.bytes
end

-- The place that lacks memory for a task's buffers, and how much they need there; or nil.
local function lacking(r, task)
  local need = {}
  for _, b in ipairs(task.holds) do
    local place = place_of(r, b)
    need[place] = (need[place] or 0) + b.bytes
    if place.used + need[place] > place.cap then return place, need[place] end
  end
end

-- What a place holds, as text.
local function holders(r, place)
  local list = {}
  for _, life in pairs(r.held) do
    if life.place == place then list[#list + 1] = life end
  end
  return buffers.text(buffers.sort(list), MOST_NAMED)
end

-- --- running ---

local function link_of(r, task)
  local name = task.link
  if name == "peer" and task.to and node_of(r, task.to) ~= node_of(r, task.device) then
    name = "net"
  end
  local of = r.machine:link(name, task.name)
  local way = of.duplex and name == "host" and (task.stream == "out" and " out" or " in") or ""
  local key = ("%s%s %s %d"):format(name, way, of.shared and "node" or "device",
    of.shared and node_of(r, task.device) or task.device)
  local link = r.links[key]
  if not link then
    link = Link(key, of, r.machine:share "link")
    r.links[key], r.links[#r.links + 1] = link, link
  end
  return link
end

-- Seconds of a task that is no transfer, and what bounds the longest of its costs.
local function seconds_of(r, task)
  local sum, longest, bound = 0, 0, nil
  for _, cost in ipairs(task.costs) do
    local time, why = cost.seconds, nil
    if not time and task.stream == "host" then
      time, why = (cost.bytes or 0) / r.machine.host.rate, "memory"
    elseif not time then
      time, why = r.machine:seconds(cost)
    end
    sum = sum + time
    if time > longest then longest, bound = time, why end
  end
  return sum, bound
end

local function start(r, run, now)
  local task = run.task
  for _, b in ipairs(task.holds) do take(r, b, task, now) end
  run.start = now
  if not task.transfer then
    local time, bound = seconds_of(r, task)
    run.bound = bound
    return r.heap:push(now + time, {run = run})
  end
  local link = run.link
  link.users = (link.users or 0) + 1
  if link.latency > 0 then
    r.heap:push(now + link.latency, {begins = run})
  else
    link:join(task, now, r.heap)
  end
end

-- A task whose turn may have come joins those that are ready.
local function consider(r, run, now)
  if run and run.left == 0 and not run.ready and run.stream.runs[run.stream.head] == run then
    run.ready = now
    r.ready[#r.ready + 1] = run
  end
end

local function longer_ready(a, b)
  return a.ready < b.ready or a.ready == b.ready and a.task.index < b.task.index
end

-- Starts all tasks that can start, those first that have waited longest.
local function start_ready(r, now)
  local ready = r.ready
  if not ready[1] then return end
  table.sort(ready, longer_ready)
  r.ready = {}
  for _, run in ipairs(ready) do
    if run.task.transfer and not run.link then run.link = link_of(r, run.task) end
    local place = lacking(r, run.task)
    local taken = run.link and run.link.exclusive and (run.link.users or 0) > 0
    if place then run.place = place end
    if place or taken then
      r.ready[#r.ready + 1] = run
    else
      if run.place then run.place.waited = run.place.waited + now - run.ready end
      start(r, run, now)
    end
  end
end

local function finish(r, run, now)
  run.stop = now
  for _, name in ipairs(run.task.frees) do give(r, name, now) end
  run.stream.head = run.stream.head + 1
  for _, later in ipairs(run.task.before) do
    local other = r.runs[later.index]
    other.left = other.left - 1
    consider(r, other, now)
  end
  consider(r, run.stream.runs[run.stream.head], now)
  if run.link then run.link.users = run.link.users - 1 end
  r.done = r.done + 1
end

local function handle(r, event, now)
  if event.begins then
    event.begins.link:join(event.begins.task, now, r.heap)
  elseif event.link then
    local task = event.link:ended(event, now, r.heap)
    if task then finish(r, r.runs[task.index], now) end
  else
    finish(r, event.run, now)
  end
end

-- Why tasks are left that can never start: what each stream's next one waits for.
local function stuck(r)
  local parts = {}
  for _, stream in ipairs(r.streams) do
    local run = stream.runs[stream.head]
    if run and run.left == 0 then
      local place, need = lacking(r, run.task)
      parts[#parts + 1] = ("'%s' needs %s on %s, where %s of %s are free; held: %s"):format(
        run.task.name, units.bytes(need), place.name, units.bytes(place.cap - place.used),
        units.bytes(place.cap), holders(r, place))
    end
  end
  return ("simulate: schedule %s runs out of memory after %d of %d tasks, and no task that could "
    .. "free any can start:\n  %s"):format(r.schedule.name, r.done, #r.runs,
    table.concat(parts, "\n  "))
end

local function begin(schedule, machine)
  local node = machine.node or schedule.devices
  local r = {schedule = schedule, machine = machine, node = node,
    nodes = (schedule.devices - 1) // node + 1, places = {}, held = {}, lives = {}, links = {},
    runs = {}, streams = {}, heap = Heap(), ready = {}, done = 0}
  for n, stream in ipairs(schedule.streams) do
    r.streams[n] = {name = stream.name, device = stream.device, runs = {}, head = 1}
  end
  for i, task in ipairs(schedule.tasks) do
    local stream = r.streams[task.of.number]
    local run = {task = task, left = #task.after, stream = stream}
    r.runs[i], stream.runs[#stream.runs + 1] = run, run
  end
  return r
end

-- Residents that do not fit: a message, or nil.
local function place_residents(r)
  for _, b in ipairs(r.schedule.residents) do
    take(r, b, nil, 0)
    local place = place_of(r, b)
    if place.used > place.cap then
      return ("simulate: the resident buffers of schedule %s need at least %s on %s, which has %s: "
        .. "%s"):format(r.schedule.name, units.bytes(place.used), place.name,
        units.bytes(place.cap), holders(r, place))
    end
  end
end

local M = {}

--- Runs a schedule on a machine that is described by its figures; nothing is computed. Streams run
-- their tasks in order; a task starts when the tasks that it needs have ended and its buffers fit.
-- @param schedule a Schedule, or a table for flare.dataflow.schedule
-- @param machine a name such as "h100", a table, or what flare.dataflow.machine returns
-- @param change figures to change, see Machine:with: {link = 32, memory = 24}
-- @return a Simulation: print it, or use its fields and :svg(path), :trace(path). If memory runs
--   out and no task can free any: nil and a message with who holds it
function M.simulate(schedule, machine, change)
  if machine == nil then
    fail("simulate: a machine is expected, such as flare.simulate(schedule, \"h100\")")
  end
  local r = begin(make.schedule(schedule), machines.machine(machine, change))
  local problem = place_residents(r)
  if problem then return nil, problem end
  local now = 0
  for _, stream in ipairs(r.streams) do consider(r, stream.runs[1], now) end
  start_ready(r, now)
  while r.heap[1] do
    now = r.heap[1].time
    while r.heap[1] and r.heap[1].time == now do handle(r, r.heap:pop(), now) end
    start_ready(r, now)
  end
  if r.done < #r.runs then return nil, stuck(r) end
  return Simulation(r)
end

return M
