-- Time-outs of a job: what dist.init, its variable and the runtime accept.
local core = require "flare.core"
local dist = require "flare.dist"
local tree = require "spec.support.tree"

local function refused(f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  return message
end

describe("dist.init", function()
  it("refuses time-outs that are no number of seconds", function()
    for _, name in ipairs {"timeout", "first"} do
      for _, case in ipairs {{0 / 0, "NaN"}, {-1, "-1"}, {-math.huge, "-inf"}, {math.huge, "inf"},
          {1e300, "1e+300"}, {math.mininteger, "-9.22337e+18"}} do
        local message = refused(dist.init, {[name] = case[1]})
        local want = ("dist.init: %s must be a number of seconds from 0 to 1000000000, got %s")
          :format(name, case[2])
        assert.truthy(message:find(want, 1, true), message)
      end
      for _, value in ipairs {"60", true, {}} do
        local message = refused(dist.init, {[name] = value})
        assert.truthy(message:find("option '" .. name .. "' must be a number", 1, true), message)
      end
    end
    assert.truthy(refused(dist.init, {timeuot = 3}):find("did you mean 'timeout'", 1, true))
  end)

  it("names the variable with a time-out that it cannot use", function()
    local script = "print(pcall(require 'flare'.dist.init))"
    for _, value in ipairs {"abc", "-1", "nan", "1e999", "60 s"} do
      local out = tree.output(("FLARE_DIST_TIMEOUT='%s' %s/flare -e %q 2>&1"):format(value,
        tree.build, script))
      assert.truthy(out:find("FLARE_DIST_TIMEOUT must be a number of seconds from 0 to 1000000000, "
        .. "got '" .. value .. "'", 1, true), out)
    end
    for _, value in ipairs {"", "0", "1.5", "0x10"} do
      assert.equal("true\t0\t1\n", tree.output(("FLARE_DIST_TIMEOUT='%s' %s/flare -e %q 2>&1")
        :format(value, tree.build, script)))
    end
  end)
end)

describe("the runtime", function()
  it("refuses time-outs of a job that are negative or NaN", function()
    for _, name in ipairs {"timeout", "first"} do
      for _, value in ipairs {0 / 0, -1} do
        local message = refused(core.comm.open, {key = "spec-timeouts", rank = 0, size = 1,
          [name] = value})
        assert.truthy(message:find("time-outs are seconds of at least 0", 1, true), message)
      end
    end
  end)
end)
