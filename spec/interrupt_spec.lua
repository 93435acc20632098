-- Ctrl-C brings the prompt back, whatever it is doing, and everything still works.
local interrupt = require "spec.support.interrupt"

describe("Ctrl-C stops", function()
  for name, case in pairs(interrupt.cases) do
    it(name, function()
      local ok, said = interrupt.press(case)
      assert.is_true(ok, said)
    end)
  end
end)
