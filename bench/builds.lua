--- Two builds of flare beside each other on this machine, for changes that other machines' tables
-- cannot show: both run the benchmarks of works.lua in turns, and the least times are compared.
--   flare bench builds PROGRAM [WORD ...]   PROGRAM: the other build's flare; only benchmarks whose
--                                           names contain a word
-- Prints the benchmarks that differ by more than 5 %, and the geometric mean of this build's time
-- over the other's; below 1 this build is faster.
local folder = arg[0]:match "^(.*/)" or ""
local works, start = dofile(folder .. "works.lua"), dofile(folder .. "start.lua")
local mine = arg[-1] and arg[-1]:find "flare" and arg[-1] or os.getenv "FLARE_PROGRAM"
  or folder .. "../build/flare"
local other = assert(arg[1], "usage: flare bench builds PROGRAM [WORD ...]")
local ROUNDS, LONG = 6, 0.02 -- runs of a benchmark after the first; seconds that are worth only two

local function wanted(name)
  for i = 2, #arg do
    if name:find(arg[i], 1, true) then return true end
  end
  return #arg == 1 and not name:find "^ops "
end

local function side(program) return start(("'%s' '%ssuite.lua'"):format(program, folder), "0") end
local a, b = side(mine), side(other)
local rows, sum = {}, 0
for k, w in ipairs(works) do
  if wanted(w.name) then
    local x, y = a(tostring(k)), b(tostring(k))
    if x and y then -- the other build may lack the row
      for _ = 1, x + y < LONG and ROUNDS or 2 do
        y = math.min(y, b "again")
        x = math.min(x, a "again")
      end
      rows[#rows + 1] = {w.name, x * 1e6, y * 1e6, x / y}
      sum = sum + math.log(x / y)
    end
  end
end
assert(#rows > 0, "nothing was measured: no benchmark has such a word")
table.sort(rows, function(x, y) return x[4] > y[4] end)
for _, row in ipairs(rows) do
  if math.abs(row[4] - 1) > 0.05 then
    print(("%-60s %10.2f %10.2f us  %.2f"):format(table.unpack(row)))
  end
end
print(("%d benchmarks, geometric mean %.3f"):format(#rows, math.exp(sum / #rows)))
