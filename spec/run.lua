-- Runs every test and counts them: the busted specs, a process for each file
-- and a few at once; the programs that ctest knows; luacheck.
--   lua5.4 spec/run.lua [--build DIR] [--jobs N] [--limit SECONDS] [--without WORD]
--     [--began TIME] [WORD ...]
-- With words, only files, ctest and luacheck whose names contain one of them.
-- --began is when ./bootstrap test began, builds included: it has a budget.
-- Ends with one line, "N passed, N failed[, N skipped]".
local build, limit, jobs, words, without, began = "build", 600, nil, {}, {}, nil
local budget = 480 -- seconds from --began, on two processors, with no build before

-- What takes longest starts first, so that nothing long is left at the end.
local first = {"sanitize_spec", "bare_spec", "dist_faults_spec", "cuda_launches_spec",
  "launch_spec", "ops/elementwise_spec", "memory_spec", "examples_spec", "ctest", "fuzz_spec",
  "peer_spec", "ops/attention_spec", "ops/fft_spec", "expressions_spec", "comm_spec",
  "cuda_graph_rows_spec", "vmap_spec", "luacheck", "compile_spec", "compile_place_spec",
  "ops/lines_spec", "interrupt_spec"}

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read "a" or ""
  if file then file:close() end
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local i = 1
while arg[i] do
  if arg[i] == "--build" then i, build = i + 1, arg[i + 1]
  elseif arg[i] == "--jobs" then i, jobs = i + 1, arg[i + 1]
  elseif arg[i] == "--limit" then i, limit = i + 1, arg[i + 1]
  elseif arg[i] == "--began" then i, began = i + 1, tonumber(arg[i + 1])
  elseif arg[i] == "--without" then i, without[#without + 1] = i + 1, arg[i + 1]
  else words[#words + 1] = arg[i] end
  i = i + 1
end
-- One more than there are processors: some jobs wait for most of their time.
jobs = jobs or output("nproc 2>/dev/null || echo 2"):match "%d+" + 1
local results = build .. "/spec-results"
assert(os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(results, results)))

-- Tests, as {what, seconds, name, reason}; what is success, pending, or a failure.
local tests = {}
local function add(what, seconds, name, reason)
  tests[#tests + 1] = {what = what, seconds = tonumber(seconds), name = name, reason = reason}
end

-- The ways of reading what a job has left: they add tests.
local function read_busted(job, status)
  local done
  local row = "(%S+)\t(%S+)\t(.-)\t(.-)\n"
  for what, seconds, name, reason in read(job.stem .. ".tests"):gmatch(row) do
    if what == "done" then done = true
    else add(what, seconds, job.name .. ": " .. name, reason) end
  end
  -- busted's own statuses are below 128; a sanitizer may speak when the program ends
  local crashed = status >= 128 or read(job.stem .. ".log"):find "ERROR: %a+Sanitizer"
  if done and not crashed then return end
  local why = done and "ended badly after its tests, with status " .. status
    or status == 124 and "took longer than " .. limit .. " s"
    or "ended before its time, with status " .. status
  add("crash", 0, job.name .. ": " .. why)
end

local function read_ctest(job, status)
  local count, long = #tests, read(build .. "/Testing/Temporary/LastTest.log")
  for name, outcome, seconds in read(job.stem .. ".log")
      :gmatch "Test%s+#%d+: (%S+) [. ]*%**(%a[^\n]-)%s+([%d.]+) sec" do
    local what = outcome == "Passed" and "success" or outcome == "Skipped" and "pending" or outcome
    local said = long:match("Testing: " .. name .. "\n.-\n%-+\n(.-)\n")
    add(what, seconds, "ctest: " .. name, said)
  end
  if #tests == count then add("crash", 0, "ctest found no tests, status " .. status) end
  for k = count + 1, #tests do
    if tests[k].what ~= "success" and tests[k].what ~= "pending" then return end
  end
  if status ~= 0 then add("crash", 0, "ctest ended with status " .. status) end
end

local function read_status(job, status)
  add(status == 0 and "success" or "failure", 0, job.name)
end

-- Every job, in the order in which they start.
local queue = {}
local function job(name, command, reader)
  local wanted = #words == 0
  for _, word in ipairs(words) do wanted = wanted or name:find(word, 1, true) end
  for _, word in ipairs(without) do wanted = wanted and not name:find(word, 1, true) end
  if not wanted then return end
  local stem = ("%s/%d"):format(results, #queue + 1)
  queue[#queue + 1] = {name = name, read = reader, stem = stem, used = 0, took = 0}
  command = ("timeout -k 5 %s %s"):format(limit, command:gsub("RESULTS/@", stem))
  write(stem .. ".sh", ([[
    export FLARE_BUILD='%s'
    from=$(date +%%s)
    %s >'%s.log' 2>&1 </dev/null
    status=$?
    times >'%s.times'
    echo %d $status $(($(date +%%s) - from))
  ]]):format(build, command, stem, stem, #queue))
end

job("ctest", ("ctest --test-dir '%s' --output-on-failure"):format(build), read_ctest)
job("luacheck", "luacheck --no-color -q .", read_status)
local busted = output("command -v busted"):match "%S+" or "busted"
for file in output("find spec -name '*_spec.lua' | sort"):gmatch "%S+" do
  job(file, ("'%s/flare' %s -o spec/support/report.lua -Xoutput 'RESULTS/@.tests' %s")
    :format(build, busted, file), read_busted)
end

local function count(from)
  local passed, failed, skipped = 0, 0, 0
  for k = from, #tests do
    local what = tests[k].what
    if what == "success" then passed = passed + 1
    elseif what == "pending" then skipped = skipped + 1
    else failed = failed + 1 end
  end
  return passed, failed, skipped
end

-- Files in the checkout that git neither has nor ignores.
local function strangers()
  local found = {}
  for path in output "git ls-files --others --exclude-standard 2>/dev/null":gmatch "[^\n]+" do
    found[path] = true
  end
  return found
end

local before = strangers()
local numbers, turn = {}, {}
for k, done in ipairs(queue) do
  numbers[k], turn[k] = k, #first + k
  for place, name in ipairs(first) do
    if done.name:gsub("^spec/", ""):gsub("%.lua$", "") == name then turn[k] = place end
  end
end
table.sort(numbers, function(a, b) return turn[a] < turn[b] end)
local pipe = assert(io.popen(("printf '%%s\\n' %s | xargs -P %s -I@ sh '%s/@.sh'")
  :format(table.concat(numbers, " "), jobs, results)))
for line in pipe:lines() do
  local number, status, took = line:match "^(%d+) (%d+) (%d+)$"
  local done, from = queue[tonumber(number)], #tests + 1
  done.took = tonumber(took)
  for minutes, seconds in read(done.stem .. ".times"):match "\n.*":gmatch "(%d+)m([%d.]+)s" do
    done.used = done.used + 60 * minutes + tonumber(seconds)
  end
  done:read(tonumber(status))
  local passed, failed = count(from)
  print(("%-4s %s: %d passed%s"):format(failed == 0 and "ok" or "FAIL", done.name, passed,
    failed == 0 and "" or (", %d failed"):format(failed)))
  if failed > 0 then print(read(done.stem .. ".log"):sub(-8000)) end
  io.flush()
end
pipe:close()

-- Others may be editing the checkout while a part of the tests runs.
if #words == 0 then
  local left = {}
  for path in pairs(strangers()) do
    if not before[path] then left[#left + 1] = path end
  end
  table.sort(left)
  add(#left == 0 and "success" or "failure", 0, "no test leaves files in the sources"
    .. (#left > 0 and ", but one left " .. table.concat(left, ", ") or ""))
end

-- The prompt is tested by at least 80 sessions in a terminal, which spec/support/session.lua notes.
if #words == 0 and #without == 0 then
  local _, sessions = read(results .. "/sessions"):gsub("\n", "")
  add(sessions == 0 and "pending" or sessions >= 80 and "success" or "failure", 0,
    ("the prompt is tested by 80 sessions or more: %d"):format(sessions),
    "there are no pseudo-terminals")
end

local slow = {table.unpack(tests)}
table.sort(slow, function(a, b) return a.seconds > b.seconds end)
print "\nThe ten slowest:"
for k = 1, math.min(10, #slow) do print(("%7.2f s  %s"):format(slow[k].seconds, slow[k].name)) end
for _, title in ipairs {"skipped", "failed"} do
  local shown
  for _, test in ipairs(tests) do
    local what = test.what == "pending" and "skipped" or test.what ~= "success" and "failed"
    if what == title then
      if not shown then print("\n" .. title:gsub("^%l", string.upper) .. ":") end
      shown = true
      print(("  %s%s"):format(test.name, title == "skipped" and " (" .. test.reason .. ")" or ""))
    end
  end
end

table.sort(queue, function(a, b) return a.used > b.used end)
print "\nThe five slowest files, in seconds of processors and of the clock:"
for k = 1, math.min(5, #queue) do
  print(("%7.1f %6d  %s"):format(queue[k].used, queue[k].took, queue[k].name))
end
if began then
  local took = os.time() - began
  print(("\nBuilding and testing took %d s%s"):format(took, took <= budget and "" or
    (", over the budget of %d s: shorten what is slowest"):format(budget)))
end

local passed, failed, skipped = count(1)
print(("\n%d passed, %d failed%s"):format(passed, failed,
  skipped > 0 and (", %d skipped"):format(skipped) or ""))
os.exit(failed == 0 and passed > 0)
