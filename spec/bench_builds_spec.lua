-- `flare bench builds`: the least times of two builds beside each other. Both builds are shell
-- scripts here, which answer what the spec says.
local tree = require "spec.support.tree"

-- A program that answers these seconds, one after the other; an empty answer has no number.
local function answers(name, list)
  local path = os.tmpname() .. name
  local file <close> = assert(io.open(path, "w"))
  file:write("#!/bin/sh\n")
  for _, seconds in ipairs(list) do file:write("read line && echo ", seconds, "\n") end
  file:write("while read line; do echo 1; done\n")
  file:close()
  assert(os.execute("chmod +x " .. path))
  return path
end

local function builds(mine, other, words)
  local a, b = answers("flare_a", mine), answers("flare_b", other)
  local out = tree.output(("FLARE_PROGRAM=%s lua5.4 bench/builds.lua %s %s 2>&1"):format(a, b,
    words))
  os.remove(a)
  os.remove(b)
  return out
end

local skip = os.execute "command -v taskset > /dev/null" and it or pending

describe("flare bench builds", function()
  skip("compares the least time of each side", function()
    local out = builds({"9e-6", "4e-6", "3e-6", "8e-6", "8e-6", "8e-6", "8e-6"},
                       {"2e-6", "2e-6", "5e-6", "5e-6", "1.5e-6", "2e-6", "2e-6"}, "'add 16x16'")
    -- "add 16x16 with gradient" has the word, too: the scripts answer 1 second there
    assert.equal("overhead: add 16x16" .. (" "):rep(42) .. "      3.00       1.50 us  2.00\n"
      .. "2 benchmarks, geometric mean 1.414\n", out)
  end)

  skip("leaves out what the other build lacks", function()
    local out = builds({"3e-6"}, {"''"}, "'add 16x16'")
    assert.equal("1 benchmarks, geometric mean 1.000\n", out)
  end)

  skip("says that no benchmark has such a word", function()
    assert.truthy(builds({}, {}, "nothing")
      :find "nothing was measured: no benchmark has such a word")
  end)
end)
