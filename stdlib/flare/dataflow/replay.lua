--- A recorded step on a described machine: the time of each operator and what bounds it.
local class = require "flare.class"
local fail = require "flare.fail"
local flow = require "flare.dataflow.flow"
local machines = require "flare.dataflow.machine"
local options = require "flare.options"
local units = require "flare.explain.units"

local Replay = class "Replay"

local MOST = 20 -- rows of the text

local on_chip = {on_chip = true, stream = true, cached = true, sram = true}

local sizes = {f64 = 8, f32 = 4, tf32 = 4, bf16 = 2, f16 = 2, fp8 = 1}

-- The cost of an operator that moves so many bytes, with another dtype for f32.
local function cost_of(x, bytes, dtype)
  local as = x.dtype or "f32"
  if dtype and as == "f32" then
    bytes, as = bytes * sizes[dtype] / 4, dtype
  end
  return {flops = x.flops, bytes = bytes, dtype = sizes[as] and as or "f32", kind = x.kind}
end

local function time_of(machine, x, cost)
  if x.kind ~= "host" and x.kind ~= "peer" then return machine:seconds(cost) end
  local link = machine:link(x.kind, x.name)
  return link.latency + cost.bytes / (link.rate * machine:share "link"), "link"
end

local function add_operators(self, recording, machine, dtype, moved)
  for k, x in ipairs(recording.operators) do
    local cost = cost_of(x, moved(k), dtype)
    local time, bound = time_of(machine, x, cost)
    self.operators[k] = {name = x.name, backward = x.backward, kind = x.kind, time = time,
      bound = bound, flops = cost.flops, bytes = cost.bytes, dtype = cost.dtype, line = x.line,
      module = x.module, recorded = x.time}
    self.time, self.flops = self.time + time, self.flops + cost.flops
    self.bounds[bound] = (self.bounds[bound] or 0) + time
  end
end

-- See Recording:replay.
function Replay:init(recording, given, opts)
  local change, dtype, kept = {}, nil, {}
  if opts ~= nil and type(opts) ~= "table" then
    fail("replay: changes must be a table such as {bandwidth = 5000}, got %s", options.kind(opts))
  end
  for key, value in pairs(opts or {}) do
    if key == "dtype" then
      dtype = value
      if not sizes[value] then
        fail("replay: unknown dtype '%s'%s", tostring(value),
          options.hint(tostring(value), sizes))
      end
    elseif on_chip[key] then
      kept[key] = value
    else
      change[key] = value
    end
  end
  kept = flow.check(recording.operators, kept)
  local machine = machines.machine(given, change)
  self.machine, self.name = machine.name, recording.name
  self.operators, self.time, self.flops, self.bounds = {}, 0, 0, {}
  self.recorded = recording
  add_operators(self, recording, machine, dtype, flow.moved(recording.operators, kept))
  self.roofs = {memory = machine.memory.rate, peaks = {}}
  for _, x in ipairs(self.operators) do
    if x.flops > 0 then self.roofs.peaks[x.dtype] = machine:rate(x.dtype, "product") end
  end
  local at_peak = 0
  for _, x in ipairs(self.operators) do
    if x.flops > 0 then at_peak = at_peak + x.flops / machine:rate(x.dtype, x.kind) end
  end
  self.utilisation = self.time > 0 and at_peak / self.time or 0
end

--- Sums over operators of one name, the longest time first: a list of {name, calls, time, share,
-- bound (of most of the time), flops, bytes, dtype, recorded}, times in seconds.
function Replay:sums()
  local by, list = {}, {}
  for _, x in ipairs(self.operators) do
    local name = x.name .. (x.backward and " (backward)" or "")
    local sum = by[name]
    if not sum then
      sum = {name = name, calls = 0, time = 0, flops = 0, bytes = 0, recorded = 0, dtype = x.dtype,
             bounds = {}}
      by[name], list[#list + 1] = sum, sum
    end
    sum.calls, sum.time = sum.calls + 1, sum.time + x.time
    sum.flops, sum.bytes = sum.flops + x.flops, sum.bytes + x.bytes
    sum.recorded = sum.recorded + (x.recorded or 0)
    sum.bounds[x.bound] = (sum.bounds[x.bound] or 0) + x.time
  end
  for _, sum in ipairs(list) do
    sum.share = self.time > 0 and sum.time / self.time or 0
    for _, bound in ipairs {"compute", "memory", "latency", "link"} do
      local time = sum.bounds[bound]
      if time and (not sum.bound or time > sum.bounds[sum.bound]) then sum.bound = bound end
    end
    sum.bounds = nil
  end
  table.sort(list, function(a, b)
    return a.time > b.time or a.time == b.time and a.name < b.name
  end)
  return list
end

local function time_text(seconds) return units.time(seconds * 1e6) end

function Replay:__tostring()
  local parts = {}
  for _, bound in ipairs {"compute", "memory", "latency", "link"} do
    if self.bounds[bound] then
      parts[#parts + 1] = ("%s %.1f %%"):format(bound, 100 * self.bounds[bound] / self.time)
    end
  end
  local out = {("%s on %s: %s for %d operators, of the peak %.1f %%"):format(self.name,
    self.machine, time_text(self.time), #self.operators, 100 * self.utilisation),
    "bound by " .. table.concat(parts, ", "),
    ("%-34s %6s %9s %7s %-8s %9s %9s %9s"):format("operator", "calls", "time", "share", "bound",
      "FLOP", "bytes", "recorded")}
  local list = self:sums()
  for k = 1, math.min(#list, MOST) do
    local s = list[k]
    out[#out + 1] = ("%-34s %6d %9s %5.1f %% %-8s %9s %9s %9s"):format(s.name:sub(-34), s.calls,
      time_text(s.time), 100 * s.share, s.bound, units.flops(s.flops), units.bytes(s.bytes),
      s.recorded > 0 and time_text(s.recorded) or "-")
  end
  if #list > MOST then out[#out + 1] = ("... and %d more"):format(#list - MOST) end
  return table.concat(out, "\n")
end

--- The roofline: operators by FLOPs a byte and FLOP/s, under the roofs of memory and matrix units.
-- @param path a file to write; without it the text of the SVG is returned
-- @return true, or nil and a message; without a path the text
function Replay:svg(path)
  local text = require "flare.dataflow.roofline"(self)
  if not path then return text end
  return require("flare.core").file.write_atomic(path, text)
end

return Replay
