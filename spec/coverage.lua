-- What share of the C lines the tests have run, from gcov's notes in a build
-- folder made by the preset `coverage`: by folder, with the ten files that want
-- tests most, and every line that none ran in uncovered.txt there. Fails below
-- 90 % of runtime/, lua/ and kernels/cpu/ together.
--   lua5.4 spec/coverage.lua [build-coverage]
local tree = dofile "spec/support/tree.lua"
local build = arg[1] or "build-coverage"
local root = tree.output "pwd -P":match "[^\n]+" .. "/"

-- Lines by file: a file that is compiled several times has run where any did.
local files = {}
for _, notes in ipairs(tree.files(build, ".gcno")) do
  local text = tree.output(("gcov --stdout '%s' 2>/dev/null"):format(notes))
  local path
  for line in text:gmatch "[^\n]+" do
    local count, number, rest = line:match "^%s*([%d#=%-]+)%*?:%s*(%d+):(.*)"
    if number == "0" and rest:find "^Source:" then
      local source = rest:match "Source:(.*)"
      source = source:sub(1, #root) == root and source:sub(#root + 1) or source
      path = (source:find "^runtime/" or source:find "^lua/" or source:find "^kernels/cpu/")
        and source
      if path then files[path] = files[path] or {} end
    elseif path and count and number ~= "0" and count ~= "-" then
      local lines = files[path]
      lines[number] = lines[number] or count:find "^[1-9]" ~= nil
    end
  end
end

local folders, list, missed, all = {}, {}, {}, {run = 0, lines = 0}
for path, lines in pairs(files) do
  local folder = path:match "^kernels/cpu" or path:match "^%w+"
  folders[folder] = folders[folder] or {run = 0, lines = 0}
  local file = {path = path, run = 0, lines = 0}
  list[#list + 1] = file
  for number, ran in pairs(lines) do
    if not ran then missed[#missed + 1] = ("%s:%4d"):format(path, number) end
    for _, sum in ipairs {file, folders[folder], all} do
      sum.lines = sum.lines + 1
      sum.run = sum.run + (ran and 1 or 0)
    end
  end
end

table.sort(missed)
local file = assert(io.open(build .. "/uncovered.txt", "w"))
file:write(table.concat(missed, "\n"), "\n")
file:close()

local function row(sum, name)
  print(("%6.1f %%  %6d of %6d  %s"):format(100 * sum.run / sum.lines, sum.run, sum.lines, name))
end

table.sort(list, function(a, b) return a.lines - a.run > b.lines - b.run end)
print "Lines that no test runs, most of them in:"
for k = 1, math.min(10, #list) do row(list[k], list[k].path) end
print "Coverage:"
for _, folder in ipairs {"runtime", "lua", "kernels/cpu"} do
  if folders[folder] then row(folders[folder], folder) end
end
row(all, "together")
os.exit(all.lines > 0 and all.run >= 0.9 * all.lines)
