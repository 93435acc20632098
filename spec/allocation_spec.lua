-- Allocations of training steps that fail: every fifth, once, twice and for good.
local starve = require "spec.support.starve"

describe("a training step without memory", function()
  for name, step in pairs(starve.steps()) do
    it(("(%s) ends in a clear error, leaves nothing, and can be repeated"):format(name), function()
      local _, errors = starve.run(name, step, 5, {1, 2, -1})
      assert.is_true(errors > 0)
    end)
  end
end)
