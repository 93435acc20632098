--- Machines: what a device can do at most, what share of it operators reach, its memory, links and
-- power. Each file of machines/ is one; a table of the same form is a machine, too.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Machine = class "Machine"

local known = {"a100", "b200", "cpu", "dgx-a100", "dgx-b200", "dgx-h100", "h100", "h200", "mi300x",
  "rtx4090", "u250"}

local defaults = {name = "machine", source = "", peak = options.none, memory = options.none,
  host = options.none, links = options.none, power = options.none, latency = 0,
  efficiency = options.none, measured = "", node = options.none, fabric = options.none}

-- Shares of the peak where a machine has no measured ones.
local usual = {product = 0.75, attention = 0.6, convolution = 0.6, memory = 0.85, link = 0.85}

local function positive(where, name, value)
  if type(value) ~= "number" or value ~= value or value <= 0 then
    fail("%s: %s must be a number above 0, got %s", where, name,
      type(value) == "number" and tostring(value) or options.kind(value))
  end
  return value
end

-- A table or nothing.
local function optional(where, name, value)
  if value == nil or type(value) == "table" then return value or {} end
  fail("%s: %s must be a table, got %s", where, name, options.kind(value))
end

local function check_links(name, links)
  local out = {}
  for key, link in pairs(optional(name, "links", links)) do
    local l = options.check(name .. ".links." .. key, link, {rate = options.none, latency = 0,
      shared = false, exclusive = false, duplex = true})
    positive(name, ("links.%s.rate (bytes per second)"):format(key), l.rate)
    out[key] = l
  end
  return out
end

--- A machine out of a table; see docs/simulator.md for its fields.
function Machine:init(given)
  local o = options.check("dataflow.machine", given, defaults)
  self.name, self.source, self.measured, self.node = o.name, o.source, o.measured, o.node
  if type(o.peak) ~= "table" or not next(o.peak) then
    fail("dataflow.machine: %s: peak = {bf16 = FLOP/s, ...} is missing", o.name)
  end
  self.peak = {}
  for dtype, rate in pairs(o.peak) do
    self.peak[dtype] = positive(o.name, "peak." .. dtype .. " (FLOP/s)", rate)
  end
  self.memory = options.check(o.name .. ".memory", o.memory, {bytes = options.none,
                                                             rate = options.none})
  positive(o.name, "memory.bytes", self.memory.bytes)
  positive(o.name, "memory.rate (bytes per second)", self.memory.rate)
  self.host = options.check(o.name .. ".host", o.host, {bytes = math.huge, rate = 200e9})
  self.links = check_links(o.name, o.links)
  self.power = options.check(o.name .. ".power", o.power, {idle = 0, busy = 0})
  self.latency = o.latency
  self.fabric = o.fabric -- of an FPGA: {clock = Hz, dsp =, bram36 =, uram =}
  self.matrix = 1 -- a factor of the peak of matrix units
  self.unit = {} -- FLOP/s of matrix units, by dtype, where they are not those of `peak`
  self.efficiency = {}
  if o.node ~= nil then options.count(o.name, "node", o.node) end
  for kind, share in pairs(optional(o.name, "efficiency", o.efficiency)) do
    self.efficiency[kind] = positive(o.name, "efficiency." .. kind, share)
  end
end

--- The share of the peak that operators of a kind reach: measured, or the usual one.
function Machine:share(kind)
  return self.efficiency[kind] or usual[kind] or self.efficiency.other or 1
end

-- Kinds of operators that the matrix units compute.
local matrix = {product = true, attention = true, convolution = true}

--- FLOP/s at most for a dtype and a kind of operator.
function Machine:rate(dtype, kind)
  local rate = matrix[kind] and self.unit[dtype] or self.peak[dtype]
    or self.unit[dtype] and self.peak.f32 -- other units compute in f32
  if rate then return matrix[kind] and rate * self.matrix or rate end
  fail("dataflow: machine %s has no peak for dtype '%s'%s", self.name, tostring(dtype),
    options.hint(tostring(dtype), self.peak))
end

--- Seconds of a cost {flops, bytes, dtype, kind} and what bounds them: "compute", "memory" or
-- "latency", the longest of the three. The latency of a launch is added to the others.
function Machine:seconds(cost)
  local flops, bytes = cost.flops or 0, cost.bytes or 0
  local compute = flops > 0
    and flops / (self:rate(cost.dtype or "f32", cost.kind) * self:share(cost.kind or "other")) or 0
  local memory = bytes / (self.memory.rate * self:share "memory")
  local bound = compute >= memory and "compute" or "memory"
  if self.latency > math.max(compute, memory) then bound = "latency" end
  return math.max(compute, memory) + self.latency, bound
end

--- The link of a transfer, or an error that names those of the machine.
function Machine:link(name, task)
  local link = self.links[name]
  if link then return link end
  fail("dataflow: task '%s' transfers over link '%s', which machine %s does not have%s", task, name,
    self.name, options.hint(name, self.links))
end

-- What `with` can change: the field, and the factor of its unit.
local changes = {
  link = {"links", "host", "rate", 1e9}, peer = {"links", "peer", "rate", 1e9},
  net = {"links", "net", "rate", 1e9}, memory = {"memory", "bytes", nil, 1 << 30},
  host = {"host", "bytes", nil, 1 << 30}, bandwidth = {"memory", "rate", nil, 1e9},
  latency = {"latency", nil, nil, 1e-6}, matrix = {"matrix", nil, nil, 1},
}

local function copy(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for k, v in pairs(value) do out[k] = copy(v) end
  return out
end

--- A machine that differs in some figures.
-- @param change {link, peer, net = GB/s of a link in one direction; memory, host = GiB of the
--   device and of the host; bandwidth = GB/s of the device's memory; compute = a factor of the peak
--   of all dtypes; matrix = a factor of it for products, attention and convolutions; unit = {fp8 =
--   TFLOP/s, ...}: the peak for these, of dtypes that may be new; latency = microseconds of a
--   launch}
function Machine:with(change)
  local m = setmetatable(copy(self), Machine)
  for key, value in pairs(change) do
    if key ~= "unit" then positive("dataflow.machine", key, value) end
    local at = changes[key]
    if key == "unit" then
      for dtype, rate in pairs(optional("dataflow.machine", key, value)) do
        m.unit[dtype] = 1e12 * positive("dataflow.machine", "unit." .. tostring(dtype), rate)
      end
    elseif key == "compute" then
      for _, rates in ipairs {m.peak, m.unit} do
        for dtype, rate in pairs(rates) do rates[dtype] = rate * value end
      end
    elseif not at then
      local all = {compute = true, unit = true}
      for name in pairs(changes) do all[name] = true end
      fail("dataflow.machine: unknown figure '%s'%s", tostring(key), options.hint(key, all))
    else
      local where, last = m, 1
      while at[last + 1] and last < 3 do
        where, last = where[at[last]], last + 1
        if not where then
          fail("dataflow.machine: %s has no link '%s' to change", self.name, at[2])
        end
      end
      where[at[last]] = value * at[4]
    end
  end
  return m
end

function Machine:__tostring()
  local rates = {}
  for dtype, rate in pairs(self.peak) do
    rates[#rates + 1] = ("%s %.4g TFLOP/s"):format(dtype, rate / 1e12)
  end
  table.sort(rates)
  return ("%s: %s; memory %.4g GiB at %.4g GB/s"):format(self.name, table.concat(rates, ", "),
    self.memory.bytes / (1 << 30), self.memory.rate / 1e9)
end

local M = {}

--- The names of the machines that flare describes, as a list.
function M.machines()
  return table.move(known, 1, #known, 1, {})
end

--- A machine by name, such as "h100", or of a table.
-- @param given a name, a Machine, or a table {name, peak = {bf16 = FLOP/s}, memory = {bytes =,
--   rate =}, host = {bytes =}, links = {host = {rate =, latency =}}, efficiency = {product = 0.8},
--   power = {idle =, busy =}, latency = seconds of a launch, node = devices that share a host}
-- @param change what to change of it: see Machine:with
function M.machine(given, change)
  local m
  if getmetatable(given) == Machine then
    m = given
  elseif type(given) == "string" then
    local lower = given:lower()
    local found
    for _, name in ipairs(known) do found = found or name == lower end
    if not found then
      local near = core.nearest(lower, known)
      fail("dataflow.machine: there is no machine '%s'%s; there are: %s", given,
        near and (" (did you mean '%s'?)"):format(near) or "", table.concat(known, ", "))
    end
    m = Machine(require("flare.dataflow.machines." .. lower:gsub("-", "_")))
  elseif given == nil then
    fail("dataflow.machine: a name such as \"h100\" or a table is expected, got nil")
  else
    m = Machine(given)
  end
  return next(optional("dataflow.machine", "change", change)) and m:with(change) or m
end

return M
