--- flare top: what the machine and a run do, live.
local core = require "flare.core"
local words = require "flare.repl.words"

local usage = [[
usage: flare top [--every SECONDS] [--process PID] [--gpus LIST] [--once] [FILE]
Shows the use, memory, temperature, power and clocks of the host and its GPUs, until q or Ctrl-C.
  FILE           the metrics.jsonl of a run, or its folder: the curves of its losses and the
                 figures of its last lines are shown, too, while it goes on
  --process PID  shows the use of a process
  --gpus LIST    which, as in CUDA_VISIBLE_DEVICES; by default all
  --every N      seconds between drawings, 1 by default
  --once         prints once; so it does where the output is no terminal]]

local function complain(format, ...)
  io.stderr:write("flare top: ", format:format(...), "\n")
  return 1
end

-- Options; nil and what is wrong.
local function read(arguments)
  local list, once = {}, false
  for _, word in ipairs(arguments) do
    if word == "--once" then once = true else list[#list + 1] = word end
  end
  local o, others = words.options(list, {every = true, gpus = true}, {process = true})
  if not o then return nil, others end
  if others[2] then return nil, ("one file is expected, got %s, too"):format(others[2]) end
  o.every = tonumber(o.every or 1)
  if not o.every or o.every < 0.05 then return nil, "--every needs seconds, at least 0.05" end
  if o.process and o.process < 1 then return nil, "--process needs the number of a process" end
  o.once, o.path = once, others[1]
  local inside = o.path and o.path .. "/metrics.jsonl"
  if inside and core.file.exists(inside) then o.path = inside end
  return o
end

-- Adds the lines that a metrics file has got since the last call to `run`, {path =, rows =, at =}.
-- Nil and a message if it cannot be read.
local function follow(run)
  local file, problem = core.file.open(run.path)
  if not file then return nil, problem end
  local _ <close> = file
  if #file < run.at then run.at, run.rows = 0, {} end -- another run
  local text = file:read(run.at, #file - run.at) or ""
  local whole = text:match "^.*\n" or "" -- the last line may be half written
  run.at = run.at + #whole
  for line in whole:gmatch "[^\n]+" do
    local row = core.json.decode(line)
    if type(row) == "table" then run.rows[#run.rows + 1] = row end
  end
  return run.rows
end

-- Figures whose curves are shown: losses, in the order of their names.
local function losses(rows)
  local seen, list = {}, {}
  for _, row in ipairs(rows) do
    for name, value in pairs(row) do
      if name:find "loss" and not seen[name] and type(value) == "number" then
        seen[name] = true
        list[#list + 1] = name
      end
    end
  end
  table.sort(list)
  return list
end

-- The newest value of each figure of the last lines; those of the machine apart.
local function newest(rows)
  local run, machine = {}, {}
  for k = math.max(1, #rows - 9), #rows do
    for name, value in pairs(rows[k]) do
      if name:find "/" then machine[name] = value else run[name] = value end
    end
  end
  return run, machine
end

local function number_text(x)
  if type(x) ~= "number" then return tostring(x) end
  return math.tointeger(x) and ("%d"):format(x) or ("%.5g"):format(x)
end

-- Steps a second between the last line and one some lines before.
local function rate(rows)
  local last, first = rows[#rows], nil
  for k = math.max(1, #rows - 10), #rows - 1 do
    local row = rows[k]
    first = first or tonumber(row.step) and tonumber(row.seconds) and row
  end
  if not first or not tonumber(last.step) or last.seconds <= first.seconds then return nil end
  local steps = (last.step - first.step) / (last.seconds - first.seconds)
  return steps > 0 and steps or nil
end

-- The lines of a run: figures, what its monitor measured, curves.
local function run_lines(followed, width, height)
  local path, rows, problem = followed.path, follow(followed)
  if not rows then return {problem} end
  if not rows[1] then return {path .. " has no line yet"} end
  local run, machine = newest(rows)
  local names, parts, lines = {}, {}, {path}
  run.steps_per_second = rate(rows)
  for name in pairs(run) do names[#names + 1] = name end
  table.sort(names)
  for k, name in ipairs(names) do parts[k] = name .. " " .. number_text(run[name]) end
  lines[2] = table.concat(parts, "  ")
  for _, line in ipairs(require "flare.monitor.text".lines(machine, nil, 10)) do
    lines[#lines + 1] = line
  end
  local keys = losses(rows)
  local room = height - #lines - 3
  if keys[1] and room >= 4 then
    local title = table.concat(keys, ", ")
    local text = require "flare.log".curve(rows, {keys = keys, title = title,
      width = math.max(width - 14, 10), height = math.min(room, 12)})
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  end
  return lines
end

-- The first `width` characters of a line.
local function cut(line, width)
  local at = utf8.offset(line, width + 1)
  return at and line:sub(1, at - 1) or line
end

local function lines_of(monitor, o, width, height)
  local sample = monitor:last()
  if not o.process then -- its own, which tells nothing
    sample["process/cores"], sample["process/memory"] = nil, nil
  end
  local lines = require "flare.monitor.text".lines(sample, monitor.gpus, 10)
  if o.once or height > 20 then
    for _, text in ipairs(monitor.missing) do lines[#lines + 1] = text end
  end
  if o.run then
    lines[#lines + 1] = ""
    for _, line in ipairs(run_lines(o.run, width, height - #lines)) do lines[#lines + 1] = line end
  end
  return lines
end

-- Use is known from the second sample on.
local function settle(monitor)
  for _ = 1, 20 do
    if monitor:last()["host/cpu"] then return end
    core.net.poll({}, {}, 50)
    if core.interrupted() then return end
  end
end

local stops = {q = true, ["\3"] = true, ["\4"] = true, ["\27"] = true}

-- Draws until a key ends it.
local function show(monitor, o)
  local terminal = require "flare.repl.terminal"
  if not terminal.raw(true) then return false end
  terminal.write "\27[?1049h\27[?25l"
  local ok, problem = pcall(function()
    while true do
      local width, height = terminal.size(1)
      local lines = lines_of(monitor, o, width, height)
      for k, line in ipairs(lines) do lines[k] = cut(line, width - 1) .. "\27[K" end
      terminal.write("\27[H" .. table.concat(lines, "\r\n", 1, math.min(#lines, height)) .. "\27[J")
      local bytes, event = terminal.keys(o.every)
      if event == "suspend" then terminal.suspend() end
      if bytes and stops[bytes] or event == "interrupt" or event == "end" then return end
    end
  end)
  terminal.write "\27[?25h\27[?1049l"
  terminal.raw(false)
  if not ok then error(problem, 0) end
  return true
end

return function(arguments)
  if words.asks_help(arguments) then
    print(usage)
    return 0
  end
  local o, problem = read(arguments)
  if not o then return complain("%s\n%s", problem, usage) end
  if o.path and not core.file.exists(o.path) then return complain("there is no %s", o.path) end
  local flare = require "flare"
  o.run = o.path and {path = o.path, rows = {}, at = 0}
  local monitor <close> = flare.monitor {period = math.min(o.every / 2, 0.25), most = 100,
                                         gpus = o.gpus or "all", process = o.process}
  settle(monitor)
  if not o.once and require("flare.repl.editor").usable() and show(monitor, o) then return 0 end
  o.once = true
  print(table.concat(lines_of(monitor, o, 100, 40), "\n"))
  return 0
end
