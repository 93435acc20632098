--- What the machine does while a program runs: use, memory, temperature, power, clocks and energy
-- of GPUs (by NVML), of the host and of this process (by /proc and RAPL). See docs/monitoring.md.
--
--     local monitor <close> = flare.monitor()
--     print(monitor)                            -- now
--     log:write(monitor:figures{tokens = n})    -- means and joules since the last call
--
-- A thread in C takes the samples. What a machine does not measure is absent from the figures, and
-- `monitor.missing` says why; it is never an error.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Monitor = class "Monitor"

local defaults = {period = 0.2, most = 3000, gpus = options.none, process = options.none, root = "",
                  library = options.none}

-- NVIDIA's library: from the folder of FLARE_CUDA_PATH, where it has one.
local function default_library()
  local name = "libnvidia-ml.so.1"
  local folder = os.getenv "FLARE_CUDA_PATH"
  local path = folder and folder .. "/" .. name
  return path and core.file.exists(path) and path or name
end

-- The GPUs that CUDA shows to this process; nil for all.
local function visible(given)
  if given == "all" then return nil end
  local list = given or os.getenv "CUDA_VISIBLE_DEVICES"
  return list and (("," .. list:gsub("%s", "")):gsub(",%-1.*", ""):sub(2))
end

local function check(given)
  local o = options.check("monitor", given, defaults)
  if o.period < 0 or o.period > 0 and o.period < 0.001 or o.period > 3600 then
    fail("monitor: period must be 0 (no thread) or 0.001 to 3600 seconds, got %g", o.period)
  end
  options.count("monitor", "most", o.most)
  for _, name in ipairs {"gpus", "library"} do
    if o[name] ~= nil then options.text("monitor", name, o[name]) end
  end
  if o.process ~= nil then options.count("monitor", "process", o.process) end
  return o
end

local function lines_of(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

--- flare.monitor{period = 0.2, most = 3000, gpus = nil, process = nil}
-- `period`: seconds between samples; 0: no thread, samples are those of :sample(). `most`: the
-- samples that are kept. `gpus`: which, as in CUDA_VISIBLE_DEVICES, which is the default, or "all".
-- `process`: the number of another process whose use is measured. For tests, `root` is a folder
-- with proc and sys, and `library` the path of libnvidia-ml.
-- Fields: `names`, of the figures; `gpus`, a list of {device =, name =, uuid =}; `missing`, lines
-- of text about what is not measured.
function Monitor:init(given)
  local o = check(given)
  local sampler, message = core.monitor {root = o.root, library = o.library or default_library(),
    gpus = visible(o.gpus), process = o.process, room = o.most,
    period = math.floor(o.period * 1000 + 0.5)}
  if not sampler then fail("%s", message) end
  self.sampler, self.period, self.library = sampler, o.period, o.library
  local gpus, missing
  self.names, gpus, missing = sampler:about()
  self.gpus, self.missing = {}, lines_of(missing)
  for k, gpu in ipairs(gpus) do
    self.gpus[k] = {device = "cuda:" .. k - 1, name = gpu[1], uuid = gpu[2]}
  end
  self.opened = sampler:joules()
  self.mark, self.seen = self.opened, 0
end

-- A row as a table by the names of its figures.
local function named(self, row)
  local sample = {}
  for k, name in ipairs(self.names) do
    local x = row[k]
    if x == x then sample[name] = x end
  end
  return sample
end

--- The samples that are kept, the oldest first, each a table by `names`: `time` in seconds of
-- flare.clock(), and figures such as ["cuda:0/power"].
function Monitor:samples()
  local list = self.sampler:rows(0)
  for k, row in ipairs(list) do list[k] = named(self, row) end
  return list
end

--- The last sample.
function Monitor:last()
  local _, taken = self.sampler:rows(math.maxinteger)
  local rows = self.sampler:rows(taken - 1)
  return named(self, rows[#rows])
end

--- Takes a sample now, and returns it.
function Monitor:sample()
  self.sampler:sample()
  return self:last()
end

-- Joules from one row of counters to another: in all, and by source; nil if nothing counts.
local function between(self, from, to)
  local total, by = nil, {}
  for k, name in ipairs(self.names) do
    local source = name:match "^(.*)/joules$"
    local joules = source and to[k] - from[k]
    if joules and joules == joules then
      by[source] = joules
      total = (total or 0) + joules
    end
  end
  return total, by
end

--- Joules since the monitor was opened, read from the counters now.
-- @return the sum, and a table {host =, ["cuda:0"] =, ...}; or nil and why nothing counts energy
function Monitor:energy()
  local total, by = between(self, self.opened, self.sampler:joules())
  if not total then return nil, "no energy is measured: " .. table.concat(self.missing, "; ") end
  return total, by
end

-- Means of figures over rows, by name.
local function means(self, rows)
  local sums, counts = {}, {}
  for _, row in ipairs(rows) do
    for k, name in ipairs(self.names) do
      local x = row[k]
      if x == x and not name:find "/joules$" then
        sums[name], counts[name] = (sums[name] or 0) + x, (counts[name] or 0) + 1
      end
    end
  end
  for name, sum in pairs(sums) do sums[name] = sum / counts[name] end
  return sums
end

--- Figures for a line of log.metrics or of log.tensorboard, over the time since the last call:
-- means of the samples, joules by source and in all (`joules`), mean power, and with `tokens`, the
-- number of them that were computed in that time, `joules_per_token`.
-- @param opts {tokens = n, row = a table that gets the figures, by default a new one}
-- @return the row
function Monitor:figures(opts)
  local o = options.check("monitor:figures", opts, {tokens = options.none, row = options.none})
  local out = o.row or {}
  local rows, taken = self.sampler:rows(self.seen)
  if not rows[1] then rows = self.sampler:rows(taken - 1) end
  local now = self.sampler:joules()
  local total, by = between(self, self.mark, now)
  for name, mean in pairs(means(self, rows)) do
    if name ~= "time" and not name:find "_total$" then out[name] = mean end
  end
  for source, joules in pairs(by) do
    out[source .. "/joules"] = joules
    out[source .. "/power"] = now[1] > self.mark[1] and joules / (now[1] - self.mark[1]) or nil
  end
  out.joules = total
  if total and o.tokens then
    out.joules_per_token = total / options.count("monitor:figures", "tokens", o.tokens)
  end
  self.mark, self.seen = now, taken
  return out
end

--- A callback for train.Trainer, which adds the figures to each line that it logs.
-- @param opts {tokens = number in a step}
function Monitor:callback(opts)
  local o = options.check("monitor:callback", opts, {tokens = options.none})
  local from = nil
  return {
    start = function(trainer)
      from = trainer.at
      self:figures()
    end,
    step = function(trainer, figures)
      if trainer.at % trainer.options.log_every ~= 0 then return end
      self:figures {row = figures, tokens = o.tokens and o.tokens * (trainer.at - from) or nil}
      from = trainer.at
    end,
  }
end

--- The share of one core's time that the thread has needed for its samples.
function Monitor:overhead()
  return self.sampler:cost() / math.max(core.clock() - self.opened[1], 1e-9)
end

--- The last sample as text, a line for each source, and what is not measured.
function Monitor:__tostring()
  local lines = require "flare.monitor.text".lines(self:last(), self.gpus)
  for _, text in ipairs(self.missing) do lines[#lines + 1] = text end
  return table.concat(lines, "\n")
end

--- Ends the thread. The monitor cannot be used afterwards.
function Monitor:close() self.sampler:close() end
Monitor.__close = Monitor.close

return Monitor
