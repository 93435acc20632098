-- The kernels of depthwise convolutions, and the choice among them, on the host: no GPU is needed
-- for what they compute, only for how fast. spec/long/depthwise.lua has more shapes.
local host = require "spec.support.depthwise_host"

local place = os.tmpname() .. ".d"

describe("convolutions of groups with few channels", function()
  if not os.execute(host.compiler .. " --version >/dev/null 2>&1") then
    pending "there is no C++ compiler"
    return
  end
  teardown(function() os.execute("rm -rf " .. place) end)

  it("and their gradients are as on the CPU", function()
    local said = host.run(place, 4, 24)
    assert.truthy(said:find "^0 of [67]%d differ\n$", said)
  end)
end)
