--- flare beside PyTorch on the same machine: both run the benchmarks of works.lua in
-- turns (A B A B A B), and the medians go into a table.
--   flare bench peers [options] [WORD ...]     only benchmarks whose names contain a word
--   --python PATH --threads N --rounds N --out FILE
--   --check FILE     a table written before: writes nothing, and fails if a ratio has become more
--                    than 10 % worse
--   --part SECONDS   adds to the table what is not in it yet, for so long; run it until it has all
local folder = arg[0]:match "^(.*/)" or ""
local options = {python = "python3", threads = "1", rounds = "3",
                 out = folder .. "results/peers.md"}
local words, i = {}, 1
while arg[i] do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name then i, options[name] = i + 1, arg[i + 1] else words[#words + 1] = arg[i] end
  i = i + 1
end

local works = dofile(folder .. "works.lua")
local program = arg[-1] and arg[-1]:find "flare" and arg[-1] or os.getenv "FLARE_PROGRAM"
  or folder .. "../build/flare"
local cores = options.threads == "1" and "0" or ("0-%d"):format(options.threads - 1)

local function wanted(name)
  for _, word in ipairs(words) do
    if name:find(word, 1, true) then return true end
  end
  return #words == 0 and not name:find "^ops "
end

-- --- the two programs, each told line by line what to do ---

local start = dofile(folder .. "start.lua")
local function side(command)
  local ask = start(command, cores)
  return function(line) return ask(line) or error("no answer to " .. line) end
end

local ours = side(("'%s' '%ssuite.lua'"):format(program, folder))
local theirs = side(("%s '%speers/suite.py' %s"):format(options.python, folder,
                                                options.threads))

local function median(values)
  table.sort(values)
  return values[#values // 2 + 1]
end

-- Whether another program runs: this one is the only one that does, once the threads of the two
-- have gone to sleep.
local function busy()
  local stop = os.clock() + 0.005
  repeat until os.clock() > stop
  local file <close> = io.open "/proc/loadavg"
  return file and tonumber(file:read "a":match " (%d+)/") > 1
end

-- The times of both programs; long benchmarks have fewer rounds. A round during which another
-- program ran is repeated, a few times.
local function measure(k)
  local w = works[k]
  local function first()
    return ours(tostring(k)), theirs(table.concat({w.given, w.torch_given or "", w.torch,
      w.leaves or "", w.forward and "forward" or ""}, "\t"))
  end
  local function again() return ours "again", theirs "again" end
  local a, b, rounds, tries = {}, {}, tonumber(options.rounds), 0
  local round = first
  while #a < rounds do
    local before = busy()
    local x, y = round()
    if (before or busy()) and tries < 5 and x + y < 1 then
      tries = tries + 1
      if before then os.execute "sleep 0.1" end
    else
      a[#a + 1], b[#b + 1] = x, y
    end
    round, rounds = again, math.min(rounds, 1 + 4 / (x + y) // 1)
  end
  return median(a), median(b)
end

-- --- the table ---

local units = {{1e-6, 1e9, "%.0f ns"}, {1e-3, 1e6, "%.2f us"}, {math.huge, 1e3, "%.2f ms"}}
local function time_text(s)
  for _, u in ipairs(units) do
    if s < u[1] then return u[3]:format(s * u[2]) end
  end
end

local function time_of(text)
  local number, unit = text:match "^([%d.]+) (.s)$"
  return tonumber(number) / ({ns = 1e9, us = 1e6, ms = 1e3})[unit]
end

local function read(path)
  local seconds, file <close> = {}, io.open(path)
  for line in (file and file:read "a" or ""):gmatch "[^\n]+" do
    local name, a, b = line:match "^| (.-: .-) | ([%d.]+ .s) | ([%d.]+ .s) | [%d.]+ |$"
    if name then seconds[name] = {time_of(a), time_of(b)} end
  end
  return seconds
end

local before = read(options.check or options.part and options.out or "")
local seconds, left, begin = {}, 0, os.time()
for k, w in ipairs(works) do
  if options.part and before[w.name] then
    seconds[w.name] = before[w.name]
  elseif wanted(w.name) then
    if options.part and os.time() - begin > tonumber(options.part) then
      left = left + 1
    else
      io.stderr:write(w.name, "\n")
      seconds[w.name] = {measure(k)}
    end
  end
end
assert(next(seconds), "nothing was measured: no work has such a word")

if options.check then
  local function fell(w)
    local now, old = seconds[w.name], before[w.name]
    return now and old and now[2] / now[1] < 0.9 * old[2] / old[1]
  end
  -- Other programs disturb a work for seconds: what fell is measured again at once, and then, if
  -- it is still slow, when all others have been measured and once more after that.
  for pass = 1, 3 do
    local again = false
    for k, w in ipairs(works) do
      for _ = 1, 3 do
        if fell(w) then seconds[w.name] = {measure(k)} end
      end
      again = again or fell(w)
    end
    if not again then break end
    if pass < 3 then os.execute "sleep 10" end
  end
  local worse = 0
  for _, w in ipairs(works) do
    if fell(w) then
      worse = worse + 1
      print(("%s: ratio %.2f, was %.2f"):format(w.name, seconds[w.name][2] / seconds[w.name][1],
        before[w.name][2] / before[w.name][1]))
    end
  end
  print(worse == 0 and "no ratio has become worse by more than 10 %" or worse .. " have")
  os.exit(worse == 0)
end

local rows, groups, names = {}, {}, {}
local function count(group, ratio)
  if not groups[group] then
    groups[group] = {sum = 0, n = 0, low = math.huge}
    names[#names + 1] = group
  end
  local g = groups[group]
  g.sum, g.n, g.low = g.sum + math.log(ratio), g.n + 1, math.min(g.low, ratio)
end
for _, w in ipairs(works) do
  local t = seconds[w.name]
  if t then
    local ratio = t[2] / t[1]
    rows[#rows + 1] = ("| %s | %s | %s | %.2f |"):format(w.name, time_text(t[1]), time_text(t[2]),
      ratio)
    count(w.name:match "^[^:]+", ratio)
  end
end
for _, w in ipairs(works) do -- and by family
  local t = w.family and seconds[w.name]
  if t then count(w.name:match "^[^:]+" .. ", " .. w.family, t[2] / t[1]) end
end

local function output(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local version = output(options.python .. " -c 'import torch; print(torch.__version__)'"):match "%S+"
local cpu = output "grep -m1 'model name' /proc/cpuinfo":match ": (.-)\n" or "?"
local title = ("# flare and PyTorch %s, %s thread(s), %s"):format(version, options.threads, cpu)
local text = {title, "",
  os.date "%Y-%m-%d" .. ", medians of " .. options.rounds .. " rounds in turns. Ratio: PyTorch's "
  .. "time over flare's; above 1 flare is faster.", "",
  "| group | works | geometric mean | lowest |", "|---|--:|--:|--:|"}
for _, group in ipairs(names) do
  local g = groups[group]
  text[#text + 1] = ("| %s | %d | %.2f | %.2f |"):format(group, g.n, math.exp(g.sum / g.n), g.low)
end
text[#text + 1] = "\n| work | flare | PyTorch | ratio |\n|---|--:|--:|--:|"
text[#text + 1] = table.concat(rows, "\n")
text = table.concat(text, "\n") .. "\n"
local file <close> = assert(io.open(options.out, "w"))
file:write(text)
if options.part then
  print(left == 0 and "complete" or left .. " works are left")
else
  io.stdout:write(text)
end
