-- Runs the campaigns of spec/long/, which take too long for every change: each
-- file there is one, a shell or Lua script that says "limit: N min" at its top,
-- prints its figures as "figure: ...", or "skipped: ..." with the reason at its
-- end, and fails by its status. What they show is appended, dated, to
-- bench/results/long.md.
--   lua5.4 spec/long.lua [WORD ...]     only those whose names contain a word
local tree = dofile "spec/support/tree.lua"

local function wanted(path)
  for _, word in ipairs(arg) do
    if path:match("[^/]+$"):find(word, 1, true) then return true end
  end
  return #arg == 0
end

local passed, failed, skipped, lines = 0, 0, 0, {}
local campaigns, names = tree.files("spec/long", ".sh", ".lua"), {}
for k, path in ipairs(campaigns) do names[k] = path:match "([^/]+)%.%w+$" end
for _, word in ipairs(arg) do
  if not table.concat(names, "\n"):find(word, 1, true) then
    io.stderr:write(("long: no campaign has '%s' in its name: %s\n"):format(word,
      table.concat(names, ", ")))
    os.exit(2)
  end
end
assert(os.execute "mkdir -p build/long bench/results")
for k, path in ipairs(campaigns) do
  if wanted(path) then
    local name = names[k]
    local minutes = assert(tree.read(path):match "limit: (%d+) min", path .. " has no limit")
    local program = path:find "%.sh$" and "sh" or "build/flare"
    local log = "build/long/" .. name .. ".log"
    print(("%s: at most %s min, log in %s"):format(name, minutes, log))
    local start = os.time()
    local ok, _, status = os.execute(("timeout -k 10 %dm %s %s >%s 2>&1 </dev/null")
      :format(minutes, program, path, log))
    local why = ok and ("\n" .. tree.read(log)):match "\n(skipped: [^\n]+)"
    local outcome = why or ok and "passed" or status == 124 and "ran out of time"
      or "failed with status " .. status
    if why then skipped = skipped + 1
    elseif ok then passed = passed + 1 else failed = failed + 1 end
    local line = ("- %s: %s, %d s"):format(name, outcome, os.time() - start)
    print(line)
    lines[#lines + 1] = line
    for figure in tree.read(log):gmatch "figure: ([^\n]+)" do
      print("  - " .. figure)
      lines[#lines + 1] = "  - " .. figure
    end
  end
end

local book = assert(io.open("bench/results/long.md", "a"))
local cpu = tree.output "sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1"
book:write(("\n## %s, %s, %s\n\n%s\n"):format(os.date "%Y-%m-%d",
  tree.output "git describe --always --dirty 2>/dev/null":match "%S+" or "no commit",
  cpu:match "[^\n]+" or "unknown CPU", table.concat(lines, "\n")))
book:close()
print(("\n%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
os.exit(failed == 0)
