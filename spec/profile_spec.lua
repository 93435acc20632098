-- The profiler: which launches it counts, forward and backward apart, and what it writes.
local flare = require "flare"

describe("a profile", function()
  local function work(device)
    local w = flare.ones(8, 8, {device = device}):requires_grad_(true)
    local x = flare.ones(4, 8, {device = device})
    return flare.profile(function(scale)
      local y = (x:matmul(w) * scale):sum()
      y:backward()
      return y:item()
    end, 2)
  end

  for _, device in ipairs {"cpu", "sim:0"} do
    it("counts launches by operator, forward and backward apart, on " .. device, function()
      local report = work(device)
      assert.same({512, n = 1}, report.results)
      local calls = {}
      for _, sum in ipairs(report:sums "op") do calls[sum.name] = sum.calls end
      assert.equal(1, calls["matmul"])
      assert.equal(1, calls["matmul (backward)"]) -- x needs no gradient
      assert.equal(1, calls["sum"])
      assert.equal(0, report.lost)
    end)
  end

  it("knows lines, operations and bytes", function()
    local by_line, by_op = work("cpu"):sums "line", work("cpu"):sums "op"
    assert.truthy(by_line[1].name:find("profile_spec.lua:%d+"))
    for _, sum in ipairs(by_op) do
      if sum.name == "matmul" then assert.equal(2 * 4 * 8 * 8, sum.flops) end
      assert.is_true(sum.host > 0)
    end
  end)

  it("is a table in words, and a trace", function()
    local report, path = work "cpu", os.tmpname()
    assert.truthy(tostring(report):find "matmul %(backward%)")
    assert.is_true(report:trace(path))
    local file <close> = assert(io.open(path))
    local trace = flare.core.json.decode(file:read "a")
    os.remove(path)
    assert.equal(#report.launches, #trace.traceEvents)
    assert.equal("X", trace.traceEvents[1].ph)
  end)

  it("ends with an error in it", function()
    assert.has_error(function() flare.profile(function() error("stop", 0) end) end, "stop")
    local ok, why = pcall(flare.core.profile_stop)
    assert.is_false(ok)
    assert.truthy(tostring(why):find "not running")
  end)

  it("refuses an unknown sum by name", function()
    assert.error_matches(function() work("cpu"):sums "file" end, "by 'op', 'line' or 'launch'")
  end)
end)
