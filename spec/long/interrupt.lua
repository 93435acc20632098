-- How soon Ctrl-C brings the prompt back, the worst of ten times: at most 200 ms of computing
-- after the press, in processor time, which does not depend on the load. limit: 20 min
package.path = "./?.lua;" .. package.path
local interrupt = require "spec.support.interrupt"

local names, late = {}, false
for name in pairs(interrupt.cases) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  local worst, longest = 0, 0
  for k = 1, 10 do
    local ok, seconds, used = interrupt.press(interrupt.cases[name], 0.1 + 0.05 * k)
    assert(ok, seconds)
    worst, longest = math.max(worst, used), math.max(longest, seconds)
  end
  late = late or worst > 0.2
  print(("figure: Ctrl-C in %s: %.0f ms of processor time%s; %.0f ms"):format(name, worst * 1e3,
    worst > 0.2 and ", more than 200" or "", longest * 1e3))
end
os.exit(not late)
