-- Users' streams on a device that is not there: order by waits alone, memory that streams
-- share, failures by line, gradients across streams, pinned memory.
local flare = require "flare"
local fails = require "spec.support.expect".fails
local device = "sim:0"
local first = flare.current_stream(device)

local function delay(us) flare.core.backend_control("sim", "delay_us", us) end

local function line() return debug.getinfo(2, "l").currentline end

local function ones(...) return flare.ones({...}, {device = device}) end

-- f gives back how long it took, nil if nothing can be said; on a machine that is busy, the best of
-- some.
local function within(seconds, f)
  local best = math.huge
  for _ = 1, 50 do
    best = math.min(best, f() or best)
    if best < seconds then return end
  end
  error(("%.1f ms, not %.1f"):format(best * 1e3, seconds * 1e3))
end

describe("streams", function()
  after_each(function()
    delay(0)
    flare.synchronize(device)
    collectgarbage()
  end)

  it("are numbers of a device and run functions", function()
    local s = flare.stream(device)
    assert.equal(first, flare.current_stream(device))
    local seen, sum = s:run(function(a, b)
      return flare.current_stream(device), a + b
    end, 3, 4)
    assert.equal(s, seen)
    assert.equal(7, sum)
    assert.equal(first, flare.current_stream(device))
    assert.equal(device, s:device())
    assert.match("^flare.stream %(%d+ of sim:0%)$", tostring(s))
  end)

  it("wait by themselves for what another has promised", function()
    local s, x, y = flare.stream(device), ones(1000), ones(1000)
    local third = flare.stream(device)
    third:wait(first)
    flare.debug_streams(true)
    delay(3000)
    s:wait(first)
    s:run(function() x:add_(2) y:add_(3) end)
    s:promise{x, y}
    local there = third:run(function() return x:narrow(1, 10, 1) * 2 end)
    local sum = x:sum() + y:sum()
    delay(0)
    assert.equal(7000, sum:item())
    first:wait(third)
    assert.equal(6, there:item())
    x:mul_(2) -- s may use it again behind that
    s:wait(first)
    s:run(function() y:copy_(x) end)
    assert.match("without order", fails("mul", function() return y * 2 end))
    s:promise{y}
    assert.equal(6, y:max():item())
    s:run(function() y:add_(1) end)
    s:promise{y}
    assert.equal(7, y:to("cpu"):max():item())
    flare.debug_streams(false)
    local cpu = ones(3):to "cpu"
    fails("promise: a tensor of cpu, and a stream of sim:0", s.promise, s, {cpu})
    fails("promise", s.promise, s, {3})
    flare.stream("cpu"):promise{cpu}
  end)

  it("nest, and are restored after errors", function()
    local a, b = flare.stream(device), flare.stream(device)
    assert.are_not.equal(a, b)
    a:run(function()
      b:run(function() assert.equal(b, flare.current_stream(device)) end)
      assert.equal(a, flare.current_stream(device))
      fails("boom", b.run, b, function() error "boom" end)
      assert.equal(a, flare.current_stream(device))
    end)
    assert.equal(first, flare.current_stream(device))
  end)

  it("report errors in arguments", function()
    local s = flare.stream(device)
    fails("run: expected a function, got no value", s.run, s)
    fails("wait: expected a stream or an event, got an integer", s.wait, s, 1)
    fails("expected a stream made by flare.stream", flare.event(device).record,
      flare.event(device), 3)
    fails("the event is of sim:1, the stream of sim:0", s.record, s, flare.event "sim:1")
    s:close()
    fails("the stream is closed", s.run, s, function() end)
    fails("unknown option", function() ones(2):to(device, {streem = s}) end)
  end)

  it("are lent again, and there are not too many", function()
    local held = {}
    local err
    for _ = 1, 64 do
      local ok, s = pcall(flare.stream, "sim:1")
      if not ok then err = s break end
      held[#held + 1] = s
    end
    assert.match("sim:1 has %d+ streams already", tostring(err))
    local name = tostring(held[#held])
    held[#held]:close()
    local again <close> = flare.stream "sim:1"
    assert.equal(name, tostring(again))
    for _, s in ipairs(held) do s:close() end
  end)

  it("run beside each other and wait for events", function()
    local s = flare.stream(device)
    local x = ones(8)
    s:wait(first)
    within(0.075, function() -- one after the other it would be 0.08
      delay(5000)
      local before, y, z = flare.clock(), x, x
      s:run(function() for _ = 1, 8 do y = y + 1 end end)
      for _ = 1, 8 do z = z * 2 end
      local e = s:record()
      local early = e:query() -- the host has not waited yet, unless it slept
      e:wait(first)
      delay(0)
      assert.equal(9 + 256, (y + z)[1]:item())
      local took = flare.clock() - before
      assert.is_true(took > 0.04)
      assert.is_true(e:query())
      e:synchronize()
      return not early and took or nil
    end)
  end)

  it("give times between events", function()
    local a, b = flare.event(device), flare.event(device)
    a:record()
    delay(3000)
    local x = ones(4) + 1
    b:record()
    fails("synchronize%(%) the later one first", a.elapsed, a, b)
    b:synchronize()
    local ms = a:elapsed(b)
    assert.is_true(ms >= 3, ms)
    assert.equal(2, x[1]:item())
    fails("must be recorded", a.elapsed, a, flare.event(device))
  end)

  it("do all in order on the CPU", function()
    local s = flare.stream "cpu"
    local a = s:record()
    local y = s:run(function() return flare.ones(3) + 1 end)
    local b = flare.event "cpu"
    b:record(s)
    flare.current_stream("cpu"):wait(b)
    assert.is_true(b:query())
    assert.is_true(a:elapsed(b) >= 0)
    assert.equal(6, y:sum():item())
  end)

  it("hand memory on only when all have passed it", function()
    -- what is freed is overwritten at once by its own stream, while another still reads
    local s = flare.stream(device)
    for round = 1, 20 do
      local x = ones(1024) * round
      s:wait(first)
      delay(300)
      local y = s:run(function() return ((x + 0) + 0) + x end)
      delay(0)
      x:close()
      local junk = {}
      for k = 1, 4 do junk[k] = ones(1024) * -1000 end
      first:wait(s)
      assert.equal(2 * round, y:min():item())
      assert.equal(-1000, junk[4][1]:item())
    end
  end)

  it("keep their memory apart, count it together and end without leaks", function()
    local s = flare.stream(device)
    collectgarbage() collectgarbage()
    flare.synchronize(device)
    local before = flare.memory.stats(device)
    do
      local held = {}
      for k = 1, 10 do held[k] = s:run(function() return ones(1000, 100) end) end
      for k = 11, 20 do held[k] = ones(1000, 100) end
      assert.equal(before.live + 20 * 400000, flare.memory.stats(device).live)
      first:wait(s)
      for k = 1, 10 do held[k] = held[k] + 1 end
      for k = 1, 20 do held[k]:close() end
    end
    collectgarbage() collectgarbage()
    flare.memory.flush(device)
    local after = flare.memory.stats(device)
    assert.equal(before.live, after.live)
    assert.is_true(after.reserved <= before.reserved, after.reserved)
  end)

  it("wait for memory of others when it runs out", function()
    local s = flare.stream(device)
    flare.memory.flush(device)
    local limit = flare.memory.stats(device).reserved + (40 << 20)
    flare.memory.limit(limit, device)
    local ok, err = pcall(function()
      for _ = 1, 12 do
        local x = ones(5 << 20) -- 20 MiB
        s:wait(first)
        delay(2000)
        local y = s:run(function() return x:sum() end)
        delay(0)
        x:close()
        y:close()
      end
    end)
    flare.memory.limit(0, device)
    assert(ok, err)
  end)

  it("tell a late failure with its own line", function()
    local s = flare.stream(device)
    local x, index = ones(4), flare.tensor({9}, {dtype = "i64", device = device})
    s:wait(first)
    delay(1000)
    local bad
    s:run(function() bad = x:index_select(1, index) end) local here = line()
    delay(0)
    for _ = 1, 600 do x = x + 1 end -- more than a stream remembers
    local err = fails("position 9 is out of range", s.synchronize, s)
    assert.match("streams_spec.lua:" .. here, err, 1, true)
    s:synchronize()
    flare.synchronize(device)
    s:run(function() bad = flare.ones(4, {device = device}):index_select(1, index) end)
    fails("position 9 is out of range", flare.synchronize, device)
    assert(bad)
    assert.equal(601, x[1]:item())
  end)
end)

describe("copies", function()
  after_each(function() delay(0) flare.synchronize(device) end)

  it("of pinned memory do not wait", function()
    local s = flare.stream(device)
    local x = flare.arange(1, 1000):f32():pin_memory()
    assert.is_true(x:is_pinned())
    assert.is_false(flare.ones(2):is_pinned())
    assert.is_true(flare.zeros({2, 2}, {pinned = true}):is_pinned())
    assert.equal(x, x:pin_memory())
    local y, z
    within(0.015, function()
      delay(20000)
      local before = flare.clock()
      y = x:to(device, {stream = s, async = true})
      z = s:run(function() return (y * 2):to("cpu", {async = true}) end)
      local e = s:record()
      local took = flare.clock() - before
      e:synchronize()
      return took
    end)
    assert.is_true(z:is_pinned())
    assert.equal(999000, z:sum():item())
    delay(0)
    fails("is on sim:0", y.pin_memory, y)
  end)

  it("hold pinned memory that is let go", function()
    local s = flare.stream(device)
    for round = 1, 10 do
      local x = flare.full({512}, round):pin_memory()
      delay(1000)
      local y = x:to(device, {stream = s, async = true})
      x:close()
      local other = flare.full({512}, -1):pin_memory()
      delay(0)
      first:wait(s)
      assert.equal(round * 512, y:sum():item())
      assert.equal(-512, other:sum():item())
    end
  end)

  it("of ordinary memory come out right, too", function()
    local s = flare.stream(device)
    for _, n in ipairs {1, 1000, 1 << 20} do
      local y = flare.ones(n):to(device, {stream = s, async = true})
      first:wait(s)
      assert.equal(n, y:sum():item())
      local z = y:to{device = "cpu", dtype = "f64", async = true}
      flare.synchronize(device)
      assert.equal(n, z:sum():item())
    end
  end)

  it("between devices follow their streams", function()
    delay(500)
    local x = ones(16)
    for _ = 1, 10 do x = x + 1 end
    local y = x:to("sim:1", {async = true})
    assert.equal(11 * 16, y:sum():item())
  end)
end)

describe("gradients", function()
  after_each(function() delay(0) flare.synchronize(device) end)

  -- two branches on streams of their own, joined; a parameter used by both and twice
  local function branches(run_a, run_b, join)
    flare.manual_seed(1)
    local w = flare.randn({16, 16}, {device = device, requires_grad = true})
    local v = flare.randn({16, 16}, {device = device, requires_grad = true})
    local x = flare.randn({8, 16}, {device = device})
    join.fork()
    local a = run_a(function() return x:matmul(w):tanh():matmul(v) end)
    local b = run_b(function() return x:matmul(v):sigmoid():matmul(w):exp() end)
    join.join()
    local loss = (a * b + a):mean()
    loss:backward()
    return w.grad:to "cpu", v.grad:to "cpu", loss:item()
  end

  it("flow on the streams of their forward and are ready where backward was called", function()
    local function plain(f) return f() end
    local nothing = {fork = function() end, join = function() end}
    local dw, dv, loss = branches(plain, plain, nothing)
    local s, t = flare.stream(device), flare.stream(device)
    local function on(stream) return function(f) return stream:run(f) end end
    for _, us in ipairs {0, 300} do
      for _ = 1, us == 0 and 20 or 3 do
        local was = flare.debug_streams(true)
        delay(us)
        local ok, dw2, dv2, loss2 = pcall(branches, on(s), on(t), {
          fork = function() s:wait(first) t:wait(first) end,
          join = function() first:wait(s) first:wait(t) end,
        })
        flare.debug_streams(was)
        assert(ok, dw2)
        assert.equal(loss, loss2)
        assert.is_true(dw:eq(dw2):all():item() and dv:eq(dv2):all():item())
      end
    end
  end)

  it("of parts are added where they belong, whichever stream made them", function()
    local s, t = flare.stream(device), flare.stream(device)
    local was = flare.debug_streams(true)
    for _, us in ipairs {0, 300} do
      delay(us)
      local x = flare.full({1000}, 1, {device = device, requires_grad = true})
      local h = x * 2
      s:wait(first)
      t:wait(first)
      local a = s:run(function() return h:narrow(1, 1, 600) * 3 end)
      local b = t:run(function() return h:narrow(1, 401, 600) * 5 end)
      local c = h:narrow(1, 501, 1) * 7
      first:wait(s)
      first:wait(t)
      local loss = a:sum() + b:sum() + c:sum()
      local ops = {}
      local report = flare.profile(function() loss:backward() end)
      for _, sum in ipairs(report:sums "op") do ops[sum.name] = sum.calls end
      assert.is_nil(ops["as_strided_backward (backward)"])
      delay(0)
      local at = x.grad:tolist()
      assert.same({6, 6, 16, 16, 30, 16, 10},
        {at[1], at[400], at[401], at[500], at[501], at[502], at[1000]})
    end
    flare.debug_streams(was)
  end)

  it("come back in the functional form", function()
    local s = flare.stream(device)
    local x = flare.full({4}, 3, {device = device, requires_grad = true})
    s:wait(first)
    local y = s:run(function() return (x ^ 3):sum() end)
    first:wait(s)
    delay(300)
    local dx = flare.grad(y, {x}, {create_graph = true})
    local ddx = flare.grad(dx:sum(), {x})
    assert.equal(27, dx[1]:item())
    assert.equal(18, ddx[1]:item())
  end)
end)
