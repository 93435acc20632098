-- The kernels of collectives over peer memory, on threads of the host: no GPU is needed for what
-- they do, only for how fast.
local tree = require "spec.support.tree"

describe("collectives over peer memory", function()
  it("give the sums, in order, and end when a rank does not come", function()
    local compiler = os.getenv "CXX" or "c++"
    if not os.execute(compiler .. " --version >/dev/null 2>&1") then
      pending "there is no C++ compiler"
      return
    end
    local kernels = tree.read "kernels/cuda/peer.h"
      .. tree.read "kernels/cuda/peer.cu":gsub('#include "[^\n]*\n', "")
    local text = tree.read "spec/support/peer_emulated.cc":gsub("// KERNELS",
      function() return kernels end)
    local base = os.tmpname()
    local file <close> = assert(io.open(base .. ".cc", "w"))
    file:write(text)
    file:close()
    local out = tree.output(("%s -std=c++17 -O1 -w -pthread -o %s.run %s.cc 2>&1 && timeout 300 "
      .. "%s.run"):format(compiler, base, base, base))
    os.execute(("rm -f %s %s.cc %s.run"):format(base, base, base))
    assert.truthy(out:find "bad: 0\n$", out)
  end)
end)
