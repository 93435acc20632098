--- flare simulate SCHEME|FILE: a training step on a machine that is described by its figures.
local core = require "flare.core"
local words = require "flare.repl.words"

local usage = [[
usage: flare simulate SCHEME|FILE [options]
schemes: in_memory, offload, ring, gpipe, 1f1b, interleaved, zb_h1; a FILE of Lua returns a
schedule, one of JSON is a recording of flare.record
  --machine NAME   h100 by default; --machine list shows all; or a file of Lua that returns a table
  --model SHAPE    gpt2, gpt2-xl, llama-1b, llama-8b (the default), llama-70b
  --batch N, --length N   sequences of a micro-batch (1) and tokens of a sequence (2048)
  --dtype NAME     bf16 by default
  --devices N, --micro-batches N, --replicas N, --chunks N, --ahead N, --recompute,
  --activations keep|offload|recompute, --update host|device   options of the schemes
figures of the machine that differ:
  --link, --peer, --net GB/s   --memory, --host GiB   --bandwidth GB/s of the device's memory
  --compute FACTOR, --matrix FACTOR of products   --latency microseconds of a launch
of a recording: --dtype NAME in place of f32, --on-chip NAME,... operators that move no bytes,
  --stream NAME,... that hand results to each other on the chip, --cached NAME,... that read from a
  cache, --sram MiB of results that are read again
ranges, one or two, of these figures or of a scheme's numbers:
  --sweep NAME=8..64 (doubling), NAME=8..64:8 (steps) or NAME=8,24
  --goal useful|utilisation|tokens_per_second|joules_per_token|energy
  --want VALUE     the least figure that reaches it
output:
  --svg FILE, --trace FILE     a picture; a trace for Perfetto and Chrome
  --page FILE      a page with sliders for the machine's figures; of a range of a scheme's numbers,
                   one to choose from]]

local MOST = 200 -- values of a range

local kinds = {}
for kind, names in pairs {
  text = "machine model dtype activations update goal svg trace sweep on_chip stream cached page",
  count = "batch length devices micro_batches replicas chunks ahead",
  number = "link peer net memory host bandwidth compute matrix latency want sram",
  flag = "recompute",
} do
  for name in names:gmatch "%S+" do kinds[name] = kind end
end

-- Options that are the scheme's, and figures that are the machine's.
local of_scheme, of_machine = {}, {}
for name in ("devices micro_batches replicas chunks ahead recompute activations update")
  :gmatch "%S+" do
  of_scheme[name] = true
end
for name in ("link peer net memory host bandwidth compute matrix latency"):gmatch "%S+" do
  of_machine[name] = true
end

local function complain(format, ...)
  io.stderr:write("flare simulate: ", format:format(...), "\n")
  return 1
end

local function value_of(name, text)
  local kind = kinds[name]
  if not text or text:find "^%-%-" then return nil, ("--%s needs a value"):format(name) end
  if kind == "text" then return text end
  local n = tonumber(text)
  if kind == "count" then n = n and math.tointeger(n) end
  if not n or n ~= n or n <= 0 then
    return nil, ("--%s needs a %s above 0, got '%s'"):format(name:gsub("_", "-"),
      kind == "count" and "whole number" or "number", text)
  end
  return n
end

-- The options as a table with the list `sweeps`, and what to simulate; or nil and what is wrong.
local function read(arguments)
  local o, what, k = {sweeps = {}}, nil, 1
  while arguments[k] do
    local word, text = arguments[k]:match "^%-%-([%a%-_]+)=?(.*)$"
    local name = word and word:gsub("%-", "_")
    if not word then
      if what then
        return nil, ("one scheme or file is expected, got %s, too"):format(arguments[k])
      end
      what = arguments[k]
    elseif not kinds[name] then
      local all = {}
      for option in pairs(kinds) do all[#all + 1] = (option:gsub("_", "-")) end
      local near = core.nearest(word, all)
      return nil, ("unknown option --%s%s"):format(word,
        near and (" (did you mean --%s?)"):format(near) or "")
    elseif kinds[name] == "flag" then
      o[name] = true
    else
      if text == "" then
        k = k + 1
        text = arguments[k]
      end
      local value, problem = value_of(name, text)
      if not value then return nil, problem end
      if name == "sweep" then o.sweeps[#o.sweeps + 1] = value else o[name] = value end
    end
    k = k + 1
  end
  return o, what
end

-- "link=8..64" as {"link", {8, 16, 32, 64}}; nil and a message.
local function axis_of(text)
  local name, range = text:match "^([%a%-_]+)=(.+)$"
  local axis = {name and name:gsub("%-", "_") or "", {}}
  if not (of_machine[axis[1]] or of_scheme[axis[1]] and kinds[axis[1]] == "count") then
    return nil, ("--sweep %s: a figure and its range are expected, such as link=8..64"):format(text)
  end
  local span, step = range:match "^([^:]*):?(.*)$"
  local low, high = span:match "^(.-)%.%.(.*)$"
  low, high = tonumber(low), tonumber(high)
  local list = axis[2]
  if low and high and low > 0 and low <= high then
    local by = step ~= "" and tonumber(step) or nil
    if step ~= "" and not (by and by > 0) then
      return nil, ("--sweep %s: the step must be a number above 0"):format(text)
    end
    while low <= high do
      if #list == MOST then
        return nil, ("--sweep %s: a range has at most %d values"):format(text, MOST)
      end
      list[#list + 1] = low
      low = by and low + by or 2 * low
    end
    return axis
  end
  for part in (range .. ","):gmatch "([^,]*)," do
    local n = tonumber(part)
    if not n or n ~= n or n <= 0 then
      return nil, ("--sweep %s: a range is 8..64, 8..64:8 or 8,24,64"):format(text)
    end
    list[#list + 1] = math.tointeger(n) or n
  end
  return axis
end

-- What a file of Lua returns; nil and a message.
local function run_file(path)
  local chunk, problem = loadfile(path, "t")
  if not chunk then return nil, problem end
  return chunk()
end

local function is_file(path) return core.file.exists(path) and path:find "[./]" ~= nil end

-- A function that makes the schedule from options of the scheme.
local function maker(flare, what, o)
  if is_file(what) then
    local made, problem = run_file(what)
    if made == nil then
      return nil, problem or what .. " returns nothing; a schedule is expected"
    end
    return type(made) == "function" and made or function() return made end
  end
  local scheme = flare.dataflow.schemes[what:gsub("%-", "_")]
  local layers = flare.dataflow.transformer(o.model or "llama-8b", {batch = o.batch,
    length = o.length, dtype = o.dtype})
  return function(options) return scheme(layers, options) end
end

local function list_machines(flare)
  for _, name in ipairs(flare.dataflow.machines()) do
    print(("%-9s %s"):format(name, tostring(flare.dataflow.machine(name))))
  end
  return 0
end

-- The ranges; nil and what is wrong.
local function axes_of(o)
  local axes = {}
  for k, text in ipairs(o.sweeps) do
    local axis, problem = axis_of(text)
    if not axis then return nil, problem end
    axes[k] = axis
  end
  if #axes > 2 then return nil, ("at most two ranges are possible, got %d"):format(#axes) end
  return axes
end

-- make, with further options each time.
local function with(make, options)
  return function(rest)
    local all = {}
    for key, value in pairs(options) do all[key] = value end
    for key, value in pairs(rest) do all[key] = value end
    return make(all)
  end
end

local function sweep(flare, o, machine, make, axes)
  print(flare.dataflow.sweep(make, machine, axes, {goal = o.goal, want = o.want}))
  return 0
end

-- Writes the page: of one schedule, or of those of a range.
local function page(flare, o, machine, make, axes)
  local list = {}
  local axis = axes[1] or {"", {""}}
  if axes[2] or of_machine[axis[1]] then
    return complain("--page: one range of a scheme's numbers is possible, such as "
      .. "micro_batches=4..32; the machine's figures have sliders")
  end
  for k, value in ipairs(axis[2]) do
    local label = axes[1] and ("%s %g"):format(axis[1], value) or ""
    list[k] = {label, make(axes[1] and {[axis[1]] = value} or {})}
  end
  local text = flare.dataflow.page(list, machine, {command = o.command})
  local written, problem = core.file.write_atomic(o.page, text)
  if not written then return complain("%s", problem) end
  return 0
end

local function write(result, o)
  for _, kind in ipairs {"svg", "trace"} do
    local written, problem = true, nil
    if o[kind] and not result[kind] then
      problem = ("--%s: a recording has a roofline, --svg FILE"):format(kind)
    elseif o[kind] then
      written, problem = result[kind](result, o[kind])
    end
    if problem or not written then return complain("%s", problem) end
  end
  return 0
end

-- A recorded step on the machine.
local function replay(path, o, machine)
  local recording, problem = require "flare.dataflow".recording(path)
  if not recording then return complain("%s", problem) end
  local changes = {dtype = o.dtype, sram = o.sram}
  for _, key in ipairs {"on_chip", "stream", "cached"} do
    if o[key] then
      changes[key] = {}
      for name in o[key]:gmatch "[^,]+" do table.insert(changes[key], name) end
    end
  end
  local result = recording:replay(machine, changes)
  print(result)
  return write(result, o)
end

local function simulate(flare, what, o)
  local machine = o.machine or "h100"
  if is_file(machine) then
    local problem
    machine, problem = run_file(machine)
    if machine == nil then return complain("%s", problem or o.machine .. " returns nothing") end
  end
  local options, change = {}, {}
  for name, value in pairs(o) do
    if of_scheme[name] then options[name] = value end
    if of_machine[name] then change[name] = value end
  end
  machine = flare.dataflow.machine(machine, change)
  if is_file(what) and what:find "%.json$" then return replay(what, o, machine) end
  local make, problem = maker(flare, what, o)
  if not make then return complain("%s", problem) end
  local axes
  axes, problem = axes_of(o)
  if not axes then return complain("%s", problem) end
  if o.page then return page(flare, o, machine, with(make, options), axes) end
  if axes[1] then return sweep(flare, o, machine, with(make, options), axes) end
  local result
  result, problem = flare.simulate(make(options), machine)
  if not result then return complain("%s", (problem:gsub("^simulate: ", ""))) end
  print(result)
  return write(result, o)
end

return function(arguments)
  if words.asks_help(arguments) then
    print(usage)
    return 0
  end
  local o, what = read(arguments)
  if not o then return complain("%s\n%s", what, usage) end
  o.command = "flare simulate " .. table.concat(arguments, " "):gsub(" ?%-%-page[ =]%S+", "")
  local flare = require "flare"
  if o.machine == "list" then return list_machines(flare) end
  if not what then return complain("a scheme or a file is missing\n%s", usage) end
  if o.want and not o.sweeps[1] then return complain("--want needs a range: --sweep link=8..64") end
  local ok, status = xpcall(simulate, function(problem)
    return type(problem) == "string" and (problem:gsub("^[^\n]-:%d+: ", "")) or tostring(problem)
  end, flare, what, o)
  if not ok then return complain("%s", status) end
  return status
end
