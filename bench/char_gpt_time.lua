--- The median time of a training step of examples/char_gpt.lua in milliseconds, which
-- bench/peers/char_gpt.py measures as step_ms in PyTorch.
--   flare bench/char_gpt_time.lua TEXT STEPS [options of the example, --device cuda ...]
-- On a GPU, where calls are asynchronous, it measures runs of 50 steps with synchronization.
local path, steps = arg[1], arg[2] or "300"
local more = table.move(arg, 3, #arg, 1, {})
local folder = os.tmpname()
os.remove(folder)
_G.arg = {[0] = "examples/char_gpt.lua", "--data", path, "--steps", steps, "--out", folder,
  "--quiet", "--device", "cpu"}
table.move(more, 1, #more, #_G.arg + 1, _G.arg)
local flare = require "flare"
local clock, times, last, done = flare.core.clock, {}, nil, 0
local run = flare.cuda.available() and 50 or 1
-- a step ends with the optimizer's step
local AdamW = flare.optim.AdamW
local step = AdamW.step
function AdamW.step(...)
  local result = step(...)
  done = done + 1
  if done % run == 0 then
    flare.synchronize()
    local now = clock()
    if last then times[#times + 1] = (now - last) / run end
    last = now
  end
  return result
end
assert(loadfile(arg[0], "t"))(table.unpack(arg))
table.sort(times)
print(("step_ms %.3f"):format(times[#times // 2 + 1] * 1e3))
os.execute("rm -rf '" .. folder .. "'")
