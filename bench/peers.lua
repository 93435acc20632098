--- flare beside PyTorch on the same machine in the same minutes: runs bench/suite.lua and
-- bench/peers/suite.py in turns (A B A B A B), takes medians and writes a table.
--   flare bench peers [--python PATH] [--threads N] [--rounds N] [--out FILE] [WORD ...]
-- With --check FILE (a table written before) it writes nothing and fails if a ratio has become
-- more than 10 % worse.
local options = {python = "python3", threads = "1", rounds = "3", out = "bench/results/peers.md"}
local words, i = {}, 1
while arg[i] do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name then i, options[name] = i + 1, arg[i + 1] else words[#words + 1] = arg[i] end
  i = i + 1
end

local program = arg[-1] and arg[-1]:find "flare" and arg[-1] or os.getenv "FLARE_PROGRAM"
  or "build/flare"
local cores = options.threads == "1" and "0" or ("0-%d"):format(options.threads - 1)
local list = table.concat(words, " ")

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

-- name -> list of seconds; names in the order they came
local order, ours, theirs = {}, {}, {}
local function collect(into, text)
  for name, seconds in text:gmatch "([^\n\t]+)\t(%S+)\n" do
    if not into[name] then
      into[name] = {}
      if into == ours then order[#order + 1] = name end
    end
    table.insert(into[name], tonumber(seconds))
  end
end

for round = 1, tonumber(options.rounds) do
  io.stderr:write(("round %d of %s\n"):format(round, options.rounds))
  collect(ours, output(("taskset -c %s %s bench/suite.lua %s"):format(cores, program, list)))
  collect(theirs, output(("taskset -c %s %s bench/peers/suite.py %s %s"):format(cores,
    options.python, options.threads, list)))
end

local function median(values)
  table.sort(values)
  return values[#values // 2 + 1]
end

local function time_text(s)
  if s < 1e-6 then return ("%.0f ns"):format(s * 1e9) end
  if s < 1e-3 then return ("%.2f us"):format(s * 1e6) end
  return ("%.2f ms"):format(s * 1e3)
end

local rows, ratios, groups, names = {}, {}, {}, {}
for _, name in ipairs(order) do
  if theirs[name] then
    local a, b = median(ours[name]), median(theirs[name])
    ratios[name] = b / a
    rows[#rows + 1] = ("| %s | %s | %s | %.2f |"):format(name, time_text(a), time_text(b), b / a)
    local group = name:match "^[^:]+"
    if not groups[group] then
      groups[group] = {sum = 0, n = 0, low = math.huge}
      names[#names + 1] = group
    end
    local g = groups[group]
    g.sum, g.n, g.low = g.sum + math.log(b / a), g.n + 1, math.min(g.low, b / a)
  end
end
assert(#rows > 0, "nothing was measured: is PyTorch there? (--python PATH)")

local version = output(options.python .. " -c 'import torch; print(torch.__version__)'"):match "%S+"
local cpu = output "grep -m1 'model name' /proc/cpuinfo":match ": (.-)\n" or "?"
local title = ("# flare and PyTorch %s, %s thread(s), %s"):format(version, options.threads, cpu)
local text = {title, "",
  os.date "%Y-%m-%d" .. ", medians of " .. options.rounds .. " rounds in turns. Ratio: PyTorch's "
  .. "time over flare's; above 1 flare is faster.", "", "| group | geometric mean | lowest |",
  "|---|--:|--:|"}
for _, group in ipairs(names) do
  local g = groups[group]
  text[#text + 1] = ("| %s | %.2f | %.2f |"):format(group, math.exp(g.sum / g.n), g.low)
end
text[#text + 1] = "\n| work | flare | PyTorch | ratio |\n|---|--:|--:|--:|"
text[#text + 1] = table.concat(rows, "\n")
text = table.concat(text, "\n") .. "\n"

if options.check then
  local worse = 0
  for line in io.lines(options.check) do
    local name, before = line:match "^| ([^|]+:[^|]+) | [^|]+ | [^|]+ | ([%d.]+) |$"
    if name and ratios[name] and ratios[name] < 0.9 * tonumber(before) then
      worse = worse + 1
      print(("%s: ratio %.2f, was %s"):format(name, ratios[name], before))
    end
  end
  print(worse == 0 and "no ratio has become worse by more than 10 %" or worse .. " have")
  os.exit(worse == 0)
end
local file = assert(io.open(options.out, "w"))
file:write(text)
file:close()
io.stdout:write(text)
