-- Trainings killed at any moment: nothing is lost, and what goes on is what would have been.
local kill = require "spec.support.kill"

describe("50 trainings with dropout, killed while they save", function()
  it("leave the checkpoint before or the new one, and go on bit for bit", function()
    local inside = kill.campaign(kill.reference(), 50, 1, 25)
    assert.is_true(inside >= 25, inside .. " kills inside a save")
  end)
end)
