-- Compiled functions on a device with several streams, and events.
local flare = require "flare"
local programs = require "spec.support.programs"
local device = "sim:0"

describe("a compiled function", function()
  it("has run what an event is behind", function()
    local x = flare.randn(64, {device = device})
    local here, event = flare.current_stream(device), nil
    local f = flare.compile(function(t)
      local y = t * 2 + 1
      event = here:record()
      return y, t - 1
    end, {exact = true})
    for run = 1, 3 do
      local y, z = f(x)
      event:synchronize()
      assert.equal(2 * run, flare.compile_stats(f).windows)
      assert.is_true(y:eq(x * 2 + 1):all():item() and z:eq(x - 1):all():item())
    end
  end)

  it("reads its arguments before another stream writes them", function()
    local s, here = flare.stream(device), flare.current_stream(device)
    local buffer = flare.ones(1000, {device = device})
    local new = flare.full({1000}, 7, {device = device})
    local f = flare.compile(function(t) return (t * 2 + 1) * t end, {exact = true})
    for _ = 1, 4 do
      buffer:fill_(3)
      local y = f(buffer)
      local event = here:record()
      event:wait(s)
      s:run(function() buffer:copy_(new) end)
      here:wait(s)
      assert.is_true(y:eq(21):all():item() and buffer:eq(7):all():item())
    end
  end)

  it("runs by its plan, on each of the streams", function()
    local streams = {flare.stream(device), flare.stream(device)}
    for _, where in ipairs {"cpu", device} do
      local f = flare.compile(function(t) return (t * 2 + 1) * t end, {exact = true})
      local x = flare.randn(200, 300, {device = where})
      local right = (x * 2 + 1) * x
      flare.core.synchronize()
      for run = 1, 12 do
        local y
        if where == "cpu" then y = f(x)
        else streams[run % 2 + 1]:run(function() y = f(x) end) end
        flare.core.synchronize()
        assert.is_true(y:eq(right):all():item())
      end
      local stats = flare.compile_stats(f)
      assert.is_true(stats.planned >= 5)
      assert.equal(3, stats.launches)
      assert.equal(1, stats.kernels)
    end
  end)

  it("waits for what another stream has promised", function()
    local s = flare.stream(device)
    local w = flare.ones(300, 300, {device = device})
    local f = flare.compile(function(g) return g * 2 + 1 end, {exact = true})
    for _ = 1, 6 do
      local product
      s:run(function()
        for _ = 1, 10 do product = w:matmul(w) end
        s:promise {product}
      end)
      assert.is_true(f(product):eq(601):all():item())
    end
    assert.is_true(flare.compile_stats(f).planned >= 4)
  end)

  it("computes any program that uses streams", function()
    local streams = {flare.stream(device), flare.stream(device)}
    local count = tonumber(os.getenv "FLARE_PROGRAMS") or 100
    programs.check(device, count, true, {wild = true, streams = streams})
    programs.check(device, count, false, {wild = true, streams = streams})
  end)
end)
