--- Plans of compiled functions as text and as a picture: which kernels run, which operators and
-- lines they hold, what they cost, and why they are not fewer. See docs/compile.md.
local class = require "flare.class"
local compile = require "flare.compile"
local core = require "flare.core"
local floor = require "flare.profile.floor"
local options = require "flare.options"
local profile = require "flare.profile"
local step = require "flare.profile.step"

local Explanation = class "Explanation"

local WARM = 3    -- calls before times are taken
local SETTLE = 10 -- the same of a plan: it forgets what garbage held after eight of them
local TIMES = 5   -- calls whose median counts

-- --- running ---

local function call(f, args)
  f(table.unpack(args, 1, args.n))
end

-- The least seconds of a call.
local function clocked(f, args)
  local best = math.huge
  for _ = 1, TIMES do
    collectgarbage()
    core.synchronize()
    local start = core.clock()
    call(f, args)
    core.synchronize()
    best = math.min(best, core.clock() - start)
  end
  return best
end

-- The launches of a call as rows of the profiler, without copies between memories.
local function rows_of(f, args)
  collectgarbage()
  local stop = profile.start {peaks = true}
  local ok, message = pcall(call, f, args)
  local report = stop()
  if not ok then error(message, 0) end
  local rows = {peaks = report.peaks}
  for i = 1, report.count do
    local r = report:row(i)
    if not r.transfer then rows[#rows + 1] = r end
  end
  return rows
end

local function same(a, b)
  if #a ~= #b then return false end
  for i, r in ipairs(a) do
    if r.called ~= b[i].called or r.line ~= b[i].line then return false end
  end
  return true
end

-- Rows of the last of several calls, with the median times of those that were like it.
local function timed_rows(f, args)
  local all = {}
  for k = 1, TIMES do all[k] = rows_of(f, args) end
  local last = all[TIMES]
  for i, r in ipairs(last) do
    local times = {}
    for _, rows in ipairs(all) do
      if same(rows, last) then times[#times + 1] = rows[i].device_time end
    end
    table.sort(times)
    r.time = times[(#times + 1) // 2]
  end
  return last
end

-- --- what is known of a kernel ---

-- A row of the profiler as a kernel: see `explain`.
local function kernel_of(r, base)
  local s = r.step or {{op = r.op, line = r.line, module = r.module, backward = r.backward}}
  local launches = {}
  for k, x in ipairs(s) do launches[k] = x end
  local k = {launches = launches, operators = step.operators(launches), lines = step.list(launches),
             shapes = s.shapes or "", bytes = r.bytes, flops = r.flops, time = r.time,
             floor = floor.of(r), live = r.live, peak = r.peak, device = r.device,
             read = s.read or r.bytes, written = s.written or 0, kept = s.kept or 0,
             kind = s.kind or "operator"}
  if #launches > 1 then k.kind = "fused " .. k.kind end
  k.ratio = k.floor and k.time > 0 and k.floor / k.time or nil
  k.from = s.from and base + s.from or nil
  k.why = s.apart or "it runs when it is called"
  k.apart = k.why:gsub("%%d", tostring(k.from))
  return k
end

local function kernels_of(rows)
  local kernels, base = {}, 0
  for _, r in ipairs(rows) do floor.seen(r, r.time) end
  for i, r in ipairs(rows) do
    -- numbers of steps begin again with each plan
    if r.step and r.step.number then base = i - r.step.number end
    kernels[i] = kernel_of(r, base)
    kernels[i].number = i
  end
  return kernels
end

local function sum(list, key)
  local n = 0
  for _, x in ipairs(list) do n = n + (x[key] or 0) end
  return n
end

-- The most memory in tensors on one device, and the lines that held it.
local function memory_of(rows)
  local most = {bytes = 0, holders = "", device = "cpu"}
  for _, p in ipairs(rows.peaks) do
    if p.bytes > most.bytes then most = p end
  end
  local memory = {peak = most.bytes, device = most.device, holders = {}}
  for bytes, line in most.holders:gmatch "(%S+ %S+) ([^\n]+)" do
    table.insert(memory.holders, {bytes = bytes, line = line})
  end
  local highest = 0
  for i, r in ipairs(rows) do
    memory[i] = r.live
    if r.device == most.device and r.peak > highest then highest, memory.kernel = r.peak, i end
  end
  return memory
end

-- See `explain`; args has the arguments and their number n.
function Explanation:init(f, args)
  local origin, exact, chunk = compile.compile_origin(f)
  local plain = origin or f
  for _ = 1, WARM do call(plain, args) end
  local eager = timed_rows(plain, args)
  self.eager = {launches = #eager, bytes = sum(eager, "bytes"), time = sum(eager, "time"),
                peak = memory_of(eager).peak, seconds = clocked(plain, args)}
  local planned, object = core.compiled(plain, exact or false, true, false, false, chunk)
  for _ = 1, SETTLE do call(planned, args) end
  local windows = core.compiled_stats(object).windows
  local rows = timed_rows(planned, args)
  local stats = core.compiled_stats(object)
  self.seconds = clocked(planned, args)
  self.kernels, self.memory = kernels_of(rows), memory_of(rows)
  for _, key in ipairs {"bytes", "time", "floor", "flops"} do
    self[key] = sum(self.kernels, key)
  end
  self.launches = 0
  for _, k in ipairs(self.kernels) do
    for _, x in ipairs(k.launches) do self.launches = self.launches + (x.again and 0 or 1) end
  end
  if stats.windows - windows == TIMES then self.dropped = stats.launches - self.launches end
  self.off = self:_why_off(origin and compile.compile_stats(f))
end

-- Why calls of the function run without the plan.
function Explanation:_why_off(stats)
  if stats and stats.off then
    return stats.without and ("calls took %.3g ms with plans and %.3g ms without")
      :format(stats.with * 1e3, stats.without * 1e3) or "no call was like an earlier one"
  end
  if not stats and self.memory.device == "cpu" and self.seconds > self.eager.seconds then
    return ("a call takes %.3g ms with it and %.3g ms without")
      :format(self.seconds * 1e3, self.eager.seconds * 1e3)
  end
end

--- The text: see docs/compile.md.
function Explanation:__tostring() return require "flare.explain.text"(self) end

--- The picture: bars of the kernels' times over their floors, and memory over time.
-- @param path a file to write; without it the text of the SVG is returned
-- @return true, or nil and a message; without a path the text
function Explanation:svg(path)
  local text = require "flare.explain.svg"(self)
  if not path then return text end
  local file, message = io.open(path, "w")
  if not file then return nil, message end
  local ok
  ok, message = file:write(text)
  file:close()
  if not ok then return nil, message end
  return true
end

local M = {}

--- Explains the plan of a function, a module or a compiled function for these arguments: its
-- kernels with their operators and lines, bytes, times and floors, what is not fused and why, and
-- memory over time.
-- f runs 33 times, without a plan and then with one, so a training step trains. On the CPU
-- `flare.compile` drops plans that do not make calls faster; the plan is shown all the same, and
-- `off` says why it is not used.
-- @param f what to run; what flare.compile returned is explained with its options
-- @param ... its arguments
-- @return an explanation: `tostring` is its text, `:svg(path)` writes a picture. Fields: `kernels`,
-- a list of {number, kind, operators, launches, lines, shapes, read, written, kept (of the bytes
-- written: in memory that outlives the launches), bytes, flops, time, floor, ratio, live, peak,
-- apart, from}, with times in microseconds; `launches`, `bytes`, `flops`, `time`, `floor`;
-- `dropped`, launches that no kernel runs, since nothing reads their results or they repeat others;
-- `memory` {peak, kernel, device, holders, the live bytes at each kernel ...}; `eager` {launches,
-- bytes, time, peak, seconds}; `seconds` of a call; `off`
function M.explain(f, ...)
  return Explanation(options.callable("explain", f), table.pack(...))
end

return M
