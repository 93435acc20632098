-- Ctrl-C brings the prompt back, whatever it is doing, and everything still works.
local interrupt = require "spec.support.interrupt"
local tree = require "spec.support.tree"

describe("Ctrl-C stops", function()
  for name, case in pairs(interrupt.cases) do
    it(name, function()
      local ok, said = interrupt.press(case)
      assert.is_true(ok, said)
    end)
  end

  for what, text in pairs {
    ["a script's loop that calls nothing"] = "while true do end",
    ["a script's loop around pcall"] = "while true do pcall(function() while true do end end) end",
  } do
    it(what .. ", with an error that names its line", function()
      local press = "local pid = require('flare').core.net.pid() "
        .. "os.execute('(sleep 0.1; kill -INT ' .. pid .. ') &')"
      local said = tree.output(("timeout -k 10 60 '%s' -e %q 2>&1")
        :format(os.getenv "FLARE_PROGRAM" or tree.build .. "/flare", press .. " " .. text))
      assert.matches("%(command line%):1: interrupted!", said)
    end)
  end
end)
