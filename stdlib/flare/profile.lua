--- The profiler: time by operator, module or line, on the host and on the device, for forward and
-- backward, with transfers and peak memory; as a table of text, or as a trace for Perfetto and
-- Chrome. See docs/profiling.md.
--
--     local report = flare.profile(function() step() end)
--     print(report)
--     report:trace "trace.json.gz"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Report = class "Report"

--- Launch or transfer i as a table: op (whose kernel ran), called (the operator that the program
-- called), call (the number of that call), line, module, device, dtype, backward, transfer, start,
-- host, device_start, device_time (times in microseconds), flops, bytes, live (bytes on the device
-- when it was launched). A kernel of a compiled function that holds several operators has their
-- names in op and called, their lines in line, and the list in step, each {op, line, module,
-- backward, again}; again: another kernel computes it, too.
function Report:row(i)
  local r = {}
  r.op, r.line, r.module, r.device, r.dtype, r.backward, r.transfer, r.start, r.host,
    r.device_start, r.device_time, r.flops, r.bytes, r.called, r.call, r.live, r.peak, r.step
    = core.profile_row(self.rows, i)
  if r.step and #r.step > 1 then
    local step = require "flare.profile.step"
    r.op, r.line = step.operators(r.step), step.lines(r.step)
    r.called = r.op
  end
  return r
end

-- --- sums ---

-- The first `depth` parts of a module's path.
local function upper(path, depth)
  if path == "" then return "(outside of modules)" end
  if not depth then return path end
  local at = 0
  for _ = 1, depth do
    at = path:find(".", at + 1, true)
    if not at then return path end
  end
  return path:sub(1, at - 1)
end

local function back(r) return r.backward and " (backward)" or "" end

local keys = {
  op = function(r) return r.called .. back(r) end,
  kernel = function(r) return r.op .. back(r) end,
  line = function(r) return r.line .. back(r) end,
  launch = function(r) return ("%s %s%s"):format(r.line, r.called, back(r)) end,
  module = function(r, depth) return upper(r.module, depth) .. back(r) end,
  pass = function(r) return r.backward and "backward" or "forward" end,
}

local function by_cost(a, b)
  if a.time ~= b.time then return a.time > b.time end
  if a.host ~= b.host then return a.host > b.host end
  return a.name < b.name
end

-- Sums over the rows that are transfers, or over the others, the largest time first.
local function sums(report, key, o)
  local by, list = {}, {}
  for i = 1, report.count do
    local r = report:row(i)
    if r.transfer == (o.transfers or false) then
      local name = key(r, o.depth)
      local sum = by[name]
      if not sum then
        sum = {name = name, calls = 0, kernels = 0, host = 0, time = 0, flops = 0, bytes = 0,
               times = {}}
        by[name] = sum
        list[#list + 1] = sum
      end
      -- the launches of a call follow each other
      if r.call ~= sum.last then sum.calls, sum.last = sum.calls + 1, r.call end
      sum.kernels, sum.host = sum.kernels + 1, sum.host + r.host
      sum.time = sum.time + r.device_time
      sum.times[r.device] = (sum.times[r.device] or 0) + r.device_time
      sum.flops, sum.bytes = sum.flops + r.flops, sum.bytes + r.bytes
      local floor = o.floor and require("flare.profile.floor").of(r)
      if floor then sum.floor = (sum.floor or 0) + floor end
    end
  end
  table.sort(list, by_cost)
  if report.energies and not o.transfers then
    require("flare.profile.energy").divide(list, report.energies)
  end
  for _, sum in ipairs(list) do sum.last, sum.times = nil, nil end
  return list
end

--- Sums as a list of {name, calls, kernels, host, time, flops, bytes, floor}, the largest time
-- first; times in microseconds. `calls` counts calls of operators, `kernels` launches: one call of
-- a composed operator launches several. With profile.start{energy = true} sums have `energy`, in
-- microjoules: shares of the measured `report.energies`, in proportion to time.
-- @param by "op" (the operator that was called), "kernel" (the operator whose kernel ran), "line",
-- "launch" (line and operator), "module" or "pass" (forward and backward)
-- @param opts {depth = parts of a module's path, transfers = true: sums of transfers instead of
-- launches, floor = true: with the least time that the device could need}
function Report:sums(by, opts)
  local o = options.check("sums", opts, {depth = options.none, transfers = false, floor = false})
  local key = keys[by or "op"]
  if not key then
    fail("sums: by 'op', 'kernel', 'line', 'launch', 'module' or 'pass', not '%s'", tostring(by))
  end
  return sums(self, key, o)
end

-- --- text ---

-- Units of a column, the smallest first: the name and its multiple of the base unit.
local times = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}}
local flops = {{"FLOP", 1}, {"kFLOP", 1e3}, {"MFLOP", 1e6}, {"GFLOP", 1e9}, {"TFLOP", 1e12}}
local energies = {{"uJ", 1}, {"mJ", 1e3}, {"J", 1e6}, {"kJ", 1e9}}
local sizes = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

-- The unit in which the largest value of a column has at most four digits before the point.
local function unit_of(list, key, units)
  local most = 0
  for _, s in ipairs(list) do most = math.max(most, s[key]) end
  for _, u in ipairs(units) do
    if most < 1e4 * u[2] then return u end
  end
  return units[#units]
end

local function bytes_text(n)
  local k = 1
  while k < #sizes and n >= sizes[k + 1][2] do k = k + 1 end
  return ("%.4g %s"):format(n / sizes[k][2], sizes[k][1])
end

local row_format = "%-40s %7s %8s %10s %6s %10s %11s %7s %8s %6s"

local function header(by, u)
  return row_format:format(by, "calls", "kernels", "device " .. u.time[1], "share",
    "host " .. u.time[1], u.flops[1], "GB/s", "TFLOP/s", "floor")
    .. (u.energy and (" %9s"):format(u.energy[1] .. (u.tokens > 1 and "/token" or "")) or "")
end

local function line_of(s, total, u)
  local seconds = s.time * 1e-6
  return row_format:format(s.name:sub(-40), s.calls, s.kernels, ("%.1f"):format(s.time / u.time[2]),
    ("%.1f%%"):format(total > 0 and 100 * s.time / total or 0),
    ("%.1f"):format(s.host / u.time[2]), ("%.1f"):format(s.flops / u.flops[2]),
    seconds > 0 and ("%.0f"):format(s.bytes / seconds / 1e9) or "-",
    seconds > 0 and s.flops > 2 * s.bytes and ("%.1f"):format(s.flops / seconds / 1e12) or "-",
    seconds > 0 and s.floor and ("%.0f%%"):format(100 * s.floor / s.time) or "-")
    .. (u.energy and (" %9.1f"):format(s.energy / u.tokens / u.energy[2]) or "")
end

-- For asynchronous devices: the time of the host for a launch, and the share of time in which the
-- device is busy.
local function add_overhead(report, lines)
  local by = {}
  for i = 1, report.count do
    local r = report:row(i)
    if r.device ~= "cpu" and not r.transfer then
      local d = by[r.device]
      if not d then
        d = {name = r.device, n = 0, host = 0, busy = 0, from = r.device_start, to = 0}
        by[r.device], by[#by + 1] = d, d
      end
      d.n, d.host, d.busy = d.n + 1, d.host + r.host, d.busy + r.device_time
      d.to = math.max(d.to, r.device_start + r.device_time)
    end
  end
  for _, d in ipairs(by) do
    lines[#lines + 1] = ("%s: %d launches, %.2f us of the host each; busy %.0f%% of the time")
      :format(d.name, d.n, d.host / d.n, d.to > d.from and 100 * d.busy / (d.to - d.from) or 0)
  end
end

-- Copies between memories as a table of their own.
local function add_transfers(report, lines)
  local list = report:sums("op", {transfers = true})
  if not list[1] then return end
  local time, size = unit_of(list, "time", times), unit_of(list, "bytes", sizes)
  local host = unit_of(list, "host", times)
  time = host[2] > time[2] and host or time
  lines[#lines + 1] = ("%-40s %7s %8s %10s %17s"):format("copies", "times", size[1],
    "device " .. time[1], "host " .. time[1])
  for _, s in ipairs(list) do
    lines[#lines + 1] = ("%-40s %7d %8.1f %10.1f %17.1f"):format(s.name, s.kernels,
      s.bytes / size[2], s.time / time[2], s.host / time[2])
  end
end

-- Whether the report has a "?" in place of a line.
local function names_unknown(list, peaks)
  for _, s in ipairs(list) do
    if s.name:find "^%?" then return true end
  end
  for _, p in ipairs(peaks) do
    if (p.holders .. "\n"):find " %?\n" then return true end
  end
end

--- The report as text: a table of launches, the largest time first, and totals. Each column has one
-- unit, which its header names.
-- @param opts {by = "op", most = 20, depth = parts of a path, floor = true, tokens = the number
-- of tokens that were computed, for energy by token}
function Report:text(opts)
  local o = options.check("text", opts, {by = "op", most = 20, depth = options.none, floor = true,
                                         tokens = 1})
  local list = self:sums(o.by, {depth = o.depth, floor = o.floor})
  local lines, total, host = {}, 0, 0
  for _, s in ipairs(list) do total, host = total + s.time, host + s.host end
  local units = {time = unit_of({{time = math.max(total, host)}}, "time", times),
                 flops = unit_of(list, "flops", flops), tokens = o.tokens}
  if self.energies then
    units.energy = unit_of({{energy = self.energy / o.tokens}}, "energy", energies)
  end
  lines[1] = header(o.by, units)
  for k = 1, math.min(#list, o.most) do lines[#lines + 1] = line_of(list[k], total, units) end
  if #list > o.most then lines[#lines + 1] = ("... and %d more"):format(#list - o.most) end
  local unit, factor = table.unpack(units.time)
  if o.by ~= "pass" then
    local passes = self:sums "pass"
    table.sort(passes, function(a, b) return a.name > b.name end) -- forward first
    for _, s in ipairs(passes) do
      lines[#lines + 1] = ("%s: %d calls, %d kernels, %.1f %s"):format(s.name, s.calls, s.kernels,
        s.time / factor, unit)
    end
  end
  add_transfers(self, lines)
  add_overhead(self, lines)
  for _, p in ipairs(self.peaks) do
    lines[#lines + 1] = ("%s: at most %s in tensors"):format(p.device, bytes_text(p.bytes))
      .. (p.holders ~= "" and ", held by:\n  " .. p.holders:gsub("\n", "\n  ") or "")
  end
  if self.energies then
    lines[#lines + 1] = ("%.4g J%s, divided in proportion to time"):format(self.energy * 1e-6,
      o.tokens > 1 and (", %.4g J a token"):format(self.energy * 1e-6 / o.tokens) or "")
  elseif self.no_energy then
    lines[#lines + 1] = self.no_energy
  end
  if names_unknown(list, self.peaks) then
    lines[#lines + 1] = "?: no line is known, since the call came from C or from Lua code that was "
      .. "compiled without line numbers"
  end
  lines[#lines + 1] = ("in all %.1f %s on the device, %.1f %s on the host, %.1f %s by the clock%s")
    :format(total / factor, unit, host / factor, unit, self.elapsed / factor, unit,
            self.lost > 0 and ("; %d launches more were not kept"):format(self.lost) or "")
  return table.concat(lines, "\n")
end

function Report:__tostring() return self:text() end

--- Writes the launches for Perfetto and Chrome, compressed where the path ends in .gz.
-- @param opts {most = 200000}: the number of launches to write; the shortest are left out
-- @return true, or nil and a message
function Report:trace(path, opts)
  local o = options.check("trace", opts, {most = 200000})
  return require "flare.profile.trace"(self, path, options.count("trace", "most", o.most))
end

-- --- running ---

-- Sets the path of the running module in the runtime. Paths begin at the outermost module that is
-- called.
local function watcher()
  local paths = setmetatable({}, {__mode = "k"})
  local function leave(before, ...)
    core.profile_pop(before)
    return ...
  end
  return function(module, run, ...)
    if not paths[module] then
      local root = getmetatable(module).__name
      for name, inner in module:named_modules() do
        paths[inner] = paths[inner] or (name == "" and root or root .. "." .. name)
      end
    end
    return leave(core.profile_push(paths[module]), run(module, ...))
  end
end

local profile = {}

--- Starts a profile. Only one profile runs at a time.
-- @param opts {most = 1000000, nvtx = false, peaks = false, meta = false, energy = false}: the
-- number of launches to keep; whether to emit NVTX ranges for NVIDIA's tools, as FLARE_NVTX=1 does;
-- whether rows have `peak`, the most live bytes while it was launched; whether calls in meta mode
-- are rows, too, which have FLOPs and bytes but no time; whether to measure energy: true, or a
-- flare.monitor that is open
-- @return a function that ends the profile and returns the report
function profile.start(opts)
  local o = options.check("profile.start", opts, {most = 1000000, peaks = false, meta = false,
                                                  nvtx = os.getenv "FLARE_NVTX" == "1",
                                                  energy = options.none})
  local measured
  if o.energy then
    core.synchronize()
    measured = require("flare.profile.energy").start(o.energy)
  end
  core.profile_start(o.most, o.nvtx, o.peaks, o.meta)
  require("flare.nn.module").watch(watcher())
  local began = core.clock()
  return function()
    require("flare.nn.module").watch(nil)
    core.synchronize()
    local report = Report()
    report.elapsed = (core.clock() - began) * 1e6
    if measured then
      report.energies, report.no_energy = measured()
      for _, energy in pairs(report.energies or {}) do
        report.energy = (report.energy or 0) + energy
      end
    end
    report.rows, report.count, report.lost, report.peaks = core.profile_stop()
    return report
  end
end

--- Profiles a call of f(...).
-- @param f a function; its results are in the report's field `results`
-- @return a report; print it, or use :sums(by), :text(options), :row(i), :trace(path)
local function run(_, f, ...)
  if type(f) ~= "function" and not (getmetatable(f) or {}).__call then
    fail("profile: a function is expected, got %s", options.kind(f))
  end
  local stop = profile.start()
  local results = table.pack(pcall(f, ...))
  local ok, report = pcall(stop)
  if not results[1] then error(results[2], 0) end
  if not ok then error(report, 0) end
  report.results = table.pack(table.unpack(results, 2, results.n))
  return report
end

return setmetatable(profile, {__call = run})
