--- Milliseconds of a step of examples/char_gpt.lua's recipe, the median: what
-- bench/peers/char_gpt.py measures as step_ms.
--   flare bench/char_gpt_time.lua TEXT STEPS
local path, steps = arg[1], arg[2] or "300"
local folder = os.tmpname()
os.remove(folder)
_G.arg = {[0] = "examples/char_gpt.lua", "--data", path, "--steps", steps, "--out", folder,
  "--quiet"}
local flare = require "flare"
local clock, times, last = flare.core.clock, {}, nil
-- a step ends where the optimizer's does
local AdamW = flare.optim.AdamW
local step = AdamW.step
function AdamW.step(...)
  local result = step(...)
  local now = clock()
  if last then times[#times + 1] = now - last end
  last = now
  return result
end
assert(loadfile(arg[0], "t"))(table.unpack(arg))
table.sort(times)
print(("step_ms %.3f"):format(times[#times // 2 + 1] * 1e3))
os.execute("rm -rf '" .. folder .. "'")
