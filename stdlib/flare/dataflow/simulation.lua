--- The result of a simulation: figures, and what text, picture and trace are made of.
local buffers = require "flare.dataflow.buffers"
local class = require "flare.class"
local units = require "flare.explain.units"

local Simulation = class "Simulation"

local MOST_HELD = 6    -- kinds of buffers of a place that are named
local MOST_ROWS = 24   -- streams in the text
local MOST_PLACES = 8  -- places in the text

-- What computes: tasks that transfer nothing and are not on the host.
local function computes(task) return not task.transfer and task.stream ~= "host" end

local function add_streams(self, r)
  for n, stream in ipairs(r.streams) do
    local s = {device = stream.device, name = stream.name, tasks = #stream.runs, busy = 0,
               list = {}}
    for k, run in ipairs(stream.runs) do
      s.busy, s.list[k] = s.busy + run.stop - run.start, self.tasks[run.task.index]
    end
    s.share = self.time > 0 and s.busy / self.time or 0
    self.streams[n] = s
    s.order = n
  end
  table.sort(self.streams, function(a, b)
    return a.device < b.device or a.device == b.device and a.order < b.order
  end)
end

local function add_tasks(self, r)
  for i, run in ipairs(r.runs) do
    local t, flops = run.task, 0
    for _, cost in ipairs(t.costs) do flops = flops + (cost.flops or 0) end
    self.tasks[i] = {name = t.name, device = t.device, stream = t.stream, start = run.start,
      stop = run.stop, again = t.again, bound = t.transfer and "link" or run.bound,
      transfer = t.transfer, flops = flops, ready = run.ready}
    self.time = math.max(self.time, run.stop)
  end
end

-- Time of each device that computes, what of it is not repeated, and when.
local function add_devices(self, r)
  for d = 1, r.schedule.devices do
    self.devices[d] = {busy = 0, useful = 0, flops = 0, idle = 0}
  end
  local at_peak = 0
  for i, run in ipairs(r.runs) do
    local task, d = run.task, self.devices[run.task.device]
    if computes(task) then
      local time = run.stop - run.start
      d.busy = d.busy + time
      if not task.again then
        d.useful, d.flops = d.useful + time, d.flops + self.tasks[i].flops
        for _, cost in ipairs(task.costs) do
          if (cost.flops or 0) > 0 then
            at_peak = at_peak + cost.flops / r.machine:rate(cost.dtype or "f32", cost.kind)
          end
        end
      end
    end
  end
  local busy, useful = 0, 0
  for _, d in ipairs(self.devices) do
    d.idle = self.time - d.busy
    busy, useful, self.flops = busy + d.busy, useful + d.useful, self.flops + d.flops
  end
  local all = self.time * #self.devices
  self.useful = all > 0 and useful / all or 0
  self.bubble = all > 0 and (all - busy) / all or 0
  self.utilisation = all > 0 and at_peak / all or 0
  self.energy = r.machine.power.idle * all + (r.machine.power.busy - r.machine.power.idle) * busy
end

-- The places, with what each held at the time of its peak, the largest first.
local function add_places(self, r)
  for n, place in ipairs(r.places) do
    self.places[n] = {name = place.name, peak = place.peak, cap = place.cap, at = place.at,
                      waited = place.waited, held = {}}
    self.places[place.name] = self.places[n]
  end
  for _, life in ipairs(r.lives) do
    local place = self.places[life.place.name]
    -- what is freed at that time makes room first
    if life.start <= place.at and (not life.stop or life.stop > place.at) then
      place.held[#place.held + 1] = {name = life.name, bytes = life.bytes}
    end
  end
  for _, place in ipairs(self.places) do buffers.sort(place.held) end
  table.sort(self.places, function(a, b)
    local x, y = a.name:match "^%a+", b.name:match "^%a+"
    if x ~= y then return x < y end
    return (tonumber(a.name:match "%d+") or 0) < (tonumber(b.name:match "%d+") or 0)
  end)
end

-- Bytes of each place over time: a list of {time, bytes} for each.
local function add_memory(self, r)
  local changes = {}
  for _, place in ipairs(r.places) do changes[place.name] = {} end
  for n, life in ipairs(r.lives) do
    local list = changes[life.place.name]
    list[#list + 1] = {life.start, life.bytes, n}
    if life.stop then list[#list + 1] = {life.stop, -life.bytes, -n} end
  end
  for name, list in pairs(changes) do
    table.sort(list, function(a, b)
      if a[1] ~= b[1] then return a[1] < b[1] end
      return a[3] < b[3] -- frees first
    end)
    local used, steps = 0, {}
    for _, change in ipairs(list) do
      used = used + change[2]
      if steps[1] and steps[#steps][1] == change[1] then
        steps[#steps][2] = used
      else
        steps[#steps + 1] = {change[1], used}
      end
    end
    self.memory[name] = steps
  end
end

function Simulation:init(r)
  self.name, self.machine, self.info = r.schedule.name, r.machine.name, r.schedule.info
  self.time, self.flops = 0, 0
  self.tasks, self.streams, self.devices, self.places, self.memory = {}, {}, {}, {}, {}
  self.links = {}
  add_tasks(self, r)
  add_streams(self, r)
  add_devices(self, r)
  add_places(self, r)
  add_memory(self, r)
  for n, link in ipairs(r.links) do
    self.links[n] = {name = link.name, bytes = link.bytes, busy = link.busy}
  end
  table.sort(self.links, function(a, b) return a.name < b.name end)
  local tokens = self.info.tokens
  if tokens and self.time > 0 then
    self.tokens_per_second, self.joules_per_token = tokens / self.time, self.energy / tokens
  end
end

-- --- text ---

local function time_text(seconds) return units.time(seconds * 1e6) end

local function percent(x) return ("%.1f %%"):format(100 * x) end

-- A line of characters: in each cell the first letter of the task that fills most of it.
local function line_of(self, stream, width)
  local cells, filled = {}, {}
  for k = 1, width do cells[k], filled[k] = " ", 0 end
  local each = self.time / width
  for _, t in ipairs(stream.list) do
    if t.stop > t.start then
      local first, last = t.start // each + 1, math.min(math.ceil(t.stop / each), width)
      for k = math.tointeger(first), math.max(math.tointeger(last), math.tointeger(first)) do
        local share = math.min(t.stop, k * each) - math.max(t.start, (k - 1) * each)
        if k <= width and share > filled[k] then
          cells[k], filled[k] = t.again and "r" or t.name:sub(1, 1):upper(), share
        end
      end
    end
  end
  return table.concat(cells)
end

local function add_figures(self, out)
  local n = #self.devices
  out[#out + 1] = ("%s on %s, %d device%s: %s"):format(self.name, self.machine, n,
    n == 1 and "" or "s", time_text(self.time))
  out[#out + 1] = ("computing %s (%s without repeated work), idle %s, of the peak %s"):format(
    percent(1 - self.bubble), percent(self.useful), percent(self.bubble),
    percent(self.utilisation))
  local rest = {}
  if self.tokens_per_second then
    rest[1] = ("%.4g tokens/s"):format(self.tokens_per_second)
  end
  if self.energy > 0 then
    rest[#rest + 1] = ("%.4g J%s"):format(self.energy, self.joules_per_token
      and (" (%.3g a token)"):format(self.joules_per_token) or "")
  end
  if rest[1] then out[#out + 1] = table.concat(rest, ", ") end
end

local function add_memory_text(self, out)
  out[#out + 1] = ("%-12s %10s %10s  %s"):format("memory", "peak", "cap", "at the peak")
  for k = 1, math.min(#self.places, MOST_PLACES) do
    local place = self.places[k]
    out[#out + 1] = ("%-12s %10s %10s  %s%s"):format(place.name, units.bytes(place.peak),
      place.cap < math.huge and units.bytes(place.cap) or "-",
      place.waited > 0 and "tasks waited " .. time_text(place.waited) .. "; " or "",
      buffers.text(place.held, MOST_HELD))
  end
  if #self.places > MOST_PLACES then
    out[#out + 1] = ("... and %d places more"):format(#self.places - MOST_PLACES)
  end
end

--- The figures as text, with a timeline of `width` characters.
function Simulation:text(width)
  local out = {}
  add_figures(self, out)
  add_memory_text(self, out)
  out[#out + 1] = ("%-18s %5s %9s %7s"):format("stream", "tasks", "busy", "share")
  local shown, left = 0, 0
  for _, s in ipairs(self.streams) do
    if s.busy > 0 and shown < MOST_ROWS then
      shown = shown + 1
      out[#out + 1] = ("%-18s %5d %9s %7s |%s|"):format(("%d %s"):format(s.device, s.name),
        s.tasks, time_text(s.busy), percent(s.share), line_of(self, s, width or 60))
    elseif s.busy > 0 then
      left = left + 1
    end
  end
  if left > 0 then out[#out + 1] = ("... and %d streams more"):format(left) end
  return table.concat(out, "\n")
end

function Simulation:__tostring() return self:text() end

local function write(path, text)
  return require("flare.core").file.write_atomic(path, text)
end

--- The timeline as a picture, with memory below it.
-- @param path a file to write; without it the text of the SVG is returned
-- @return true, or nil and a message; without a path the text
function Simulation:svg(path)
  local text = require "flare.dataflow.timeline"(self)
  if not path then return text end
  return write(path, text)
end

--- Writes the timeline for Perfetto and Chrome, with counters of memory.
-- @return true, or nil and a message; without a path the text
function Simulation:trace(path)
  local text = require "flare.dataflow.trace"(self)
  if not path then return text end
  return write(path, text)
end

return Simulation
