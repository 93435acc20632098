--- Where time goes: per operator or per line, on the host and on the device, forward and
-- backward apart; as a table of text, or as a trace for Perfetto and Chrome.
--
--     local report = flare.profile(function() step() end)
--     print(report)
--     report:trace "trace.json"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Report = class "Report"

-- Sums by a key of the launches, the dearest first.
local function sums(rows, key)
  local by, list = {}, {}
  for _, r in ipairs(rows) do
    local name = key(r)
    local sum = by[name]
    if not sum then
      sum = {name = name, calls = 0, host = 0, time = 0, flops = 0, bytes = 0}
      by[name] = sum
      list[#list + 1] = sum
    end
    sum.calls, sum.host = sum.calls + 1, sum.host + r.host
    sum.time = sum.time + r.device_time
    sum.flops, sum.bytes = sum.flops + r.flops, sum.bytes + r.bytes
  end
  table.sort(list, function(a, b)
    if a.time ~= b.time then return a.time > b.time end
    if a.host ~= b.host then return a.host > b.host end
    return a.name < b.name
  end)
  return list
end

local keys = {
  op = function(r) return r.op .. (r.backward and " (backward)" or "") end,
  line = function(r) return r.site .. (r.backward and " (backward)" or "") end,
  launch = function(r)
    return ("%s %s%s"):format(r.site, r.op, r.backward and " (backward)" or "")
  end,
}

--- The sums as a list of {name, calls, host, time, flops, bytes}; times in microseconds.
-- @param by "op", "line" or "launch" (both)
function Report:sums(by)
  local key = keys[by or "op"]
  if not key then fail("sums: by 'op', 'line' or 'launch', not '%s'", tostring(by)) end
  return sums(self.launches, key)
end

--- A table in words, the dearest first.
-- @param opts {by = "op", most = 20}
function Report:text(opts)
  local o = options.check("text", opts, {by = "op", most = 20})
  local list, lines = self:sums(o.by), {}
  local total, host = 0, 0
  for _, s in ipairs(list) do total, host = total + s.time, host + s.host end
  lines[1] = ("%-44s %7s %11s %6s %11s %9s %9s"):format(o.by, "calls", "device us", "share",
                                                      "host us", "GB/s", "TFLOP/s")
  for k = 1, math.min(#list, o.most) do
    local s = list[k]
    local seconds = s.time * 1e-6
    lines[#lines + 1] = ("%-44s %7d %11.1f %5.1f%% %11.1f %9s %9s"):format(
      s.name:sub(-44), s.calls, s.time, total > 0 and 100 * s.time / total or 0, s.host,
      seconds > 0 and ("%.0f"):format(s.bytes / seconds / 1e9) or "-",
      seconds > 0 and s.flops > 2 * s.bytes and ("%.1f"):format(s.flops / seconds / 1e12) or "-")
  end
  if #list > o.most then lines[#lines + 1] = ("... and %d more"):format(#list - o.most) end
  lines[#lines + 1] = ("%d launches: %.1f us on the device, %.1f us on the host, %.1f us in all%s")
    :format(#self.launches, total, host, self.elapsed,
            self.lost > 0 and ("; %d more were not kept"):format(self.lost) or "")
  return table.concat(lines, "\n")
end

function Report:__tostring() return self:text() end

-- Strings inside JSON.
local function quoted(text) return '"' .. text:gsub('[%c"\\]', function(c)
  return ("\\u%04x"):format(c:byte())
end) .. '"' end

--- Writes the launches in the format of Chrome's tracing, which Perfetto reads too.
-- @return true, or nil and a message
function Report:trace(path)
  local parts = {}
  local function event(name, thread, start, time, r)
    parts[#parts + 1] = ('{"name":%s,"ph":"X","pid":1,"tid":%s,"ts":%.3f,"dur":%.3f,'
      .. '"args":{"line":%s,"flops":%.0f,"bytes":%.0f}}')
      :format(quoted(name), quoted(thread), start, time, quoted(r.site), r.flops, r.bytes)
  end
  for _, r in ipairs(self.launches) do
    local name = keys.op(r)
    event(name, "host", r.start, r.host, r)
    if r.device ~= "cpu" then event(name, r.device, r.device_start, r.device_time, r) end
  end
  return core.file.write_atomic(path, '{"traceEvents":[' .. table.concat(parts, ",\n") .. "]}\n")
end

--- Runs f(...) and tells where its time went.
-- @param f a function; what it returns is in the report's `results`
-- @return a report: print it, or ask :sums(by), :text(options), :trace(path)
return function(f, ...)
  core.profile_start(1000000)
  local began = core.clock()
  local results = table.pack(pcall(f, ...))
  core.synchronize()
  local elapsed = core.clock() - began
  local launches, lost = core.profile_stop()
  if not results[1] then error(results[2], 0) end
  local report = Report()
  report.launches, report.lost, report.elapsed = launches, lost, elapsed * 1e6
  report.results = table.pack(table.unpack(results, 2, results.n))
  return report
end
