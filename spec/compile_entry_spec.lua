-- What a compiled function does when it begins and ends, beside its launches.
local flare = require "flare"
local core = flare.core

describe("entering and leaving a compiled function", function()
  local who

  before_each(function()
    who = core.collector()
    core.collector "flare"
  end)

  after_each(function() core.collector(who) end)

  it("allocates nothing and runs no step of the collector if nothing is launched", function()
    local f, gone = flare.compile(function() end), false
    local function run()
      for _ = 1, 5000 do f() end
      return collectgarbage "count"
    end
    run()
    collectgarbage()
    setmetatable({}, {__gc = function() gone = true end})
    local before = run()
    local after = run()
    assert.equal(before, after)
    assert.is_false(gone)
    collectgarbage()
    assert.is_true(gone)
  end)

  it("runs a step if launches wait, so that what f has dropped needs no memory", function()
    local x = flare.ones(64, 64)
    local function of(body)
      local f = flare.compile(body, {wait = true})
      for _ = 1, 3 do f(x) end
      return flare.compile_stats(f).memory
    end
    local dropped = of(function(t)
      local y = t:exp()
      return y * 2
    end)
    local one = of(function(t) return t * 2 end)
    local two = of(function(t)
      local y = t:exp()
      return y * 2, y
    end)
    assert.equal(one, dropped)
    assert.equal(2 * one, two)
  end)

  it("does not keep the garbage of a function that makes a lot of it", function()
    local x, most = flare.ones(4, 4), 0
    local f = flare.compile(function(t)
      local y = t * 2
      for _ = 1, 90 do
        local _ = ("x"):rep(1 << 20)
        most = math.max(most, collectgarbage "count")
      end
      return y
    end)
    local before = collectgarbage "count"
    assert.equal(2, f(x)[1][1]:item())
    assert.is_true(most < before + 72 * 1024, ("%.0f KiB"):format(most - before))
  end)

  it("leaves a collector that the function stops or starts as it is", function()
    local f = flare.compile(function(how) collectgarbage(how) end)
    f "stop"
    local running = collectgarbage "isrunning"
    f "restart"
    assert.is_false(running)
    assert.is_true(collectgarbage "isrunning")
  end)

  it("works within itself, after an error and in coroutines", function()
    local x = flare.randn(3, 5)
    local f
    f = flare.compile(function(t, n)
      if n == 0 then error "no more" end
      if n == 1 then coroutine.yield() end
      if n < 4 then return t + 1 end
      local ok, y = pcall(f, t, n - 4)
      return ok and y * 2 or f(t, 2) - t
    end)
    local function differs(want, got) return (want - got):abs():max():item() > 1e-6 end
    for _ = 1, 4 do
      assert.is_false(differs(x + 1, f(x, 2)))
      assert.has_error(function() f(x, 0) end)
      assert.is_false(differs(flare.ones_like(x), f(x, 4)))
      assert.is_false(differs((x + 1) * 2, f(x, 6)))
      local co = coroutine.wrap(f)
      co(x, 1)
      assert.is_false(differs((x + 1) * 2, f(x, 7)))
      assert.is_false(differs(x + 1, co()))
      coroutine.wrap(f)(x, 1) -- and leaves it
      collectgarbage()
    end
  end)
end)
