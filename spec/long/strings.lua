-- The string and table functions of flare's states beside Lua's own: four million random calls, a
-- million from each of four seeds. limit: 20 min
local tree = require "spec.support.tree"

for seed = 101, 104 do
  assert(os.execute(("'%s/spec/lua_strings' 1000000 %d"):format(tree.build, seed)))
end
