-- Random networks, trained at once and by a compiled step; spec/long/compile.lua has thousands.
local rows = require "spec.support.rows"
local training = require "spec.support.training_programs"

for _, device in ipairs(rows.devices) do
  it("a compiled step trains random networks as the step does on " .. device, function()
    for seed = 1, 12 do training.check(seed, device, true) end
    for seed = 13, 24 do training.check(seed, device, false) end
  end)
end
