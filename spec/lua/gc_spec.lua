-- When garbage is collected: peaks of temporaries, scopes, out of memory.
local core = require "flare.core"

local MB = 1 << 20

local function peak_of(f)
  core.collect()
  core.memory.reset_peak()
  local before = core.memory.stats().live
  f()
  local peak = core.memory.stats().peak - before
  core.collect()
  return peak
end

describe("temporaries", function()
  local was = core.collector()
  setup(function() core.collector "flare" end)
  teardown(function() core.collector(was) end)

  it("of 1 KB stay few", function()
    local x = core.rand(16, 16)
    local peak = peak_of(function() for _ = 1, 200000 do local _ = x + x end end)
    assert.is_true(peak < 4 * MB, peak)
  end)

  it("of 1 MB stay few", function()
    local x = core.rand(512, 512)
    local peak = peak_of(function() for _ = 1, 2000 do local _ = x + x end end)
    assert.is_true(peak < 16 * MB, peak)
  end)

  it("stay few beside what lives", function()
    local alive = {}
    for i = 1, 40 do alive[i] = core.zeros(512, 512) end
    local x = alive[1]
    local peak = peak_of(function() for _ = 1, 2000 do local _ = x + x end end)
    assert.is_true(peak < 16 * MB, peak)
    assert.equal(40, #alive)
  end)

  it("of a training step stay near the minimum", function()
    local w = core.rand{256, 256, requires_grad = true}
    local x = core.rand(256, 256)
    local function step()
      local h = x
      for _ = 1, 8 do h = h:matmul(w):tanh() end
      h:sum():backward()
      w:zero_grad()
    end
    local needed = core.memory.needed(step) - core.memory.stats().live
    local peak = peak_of(function() for _ = 1, 200 do step() end end)
    assert.is_true(peak < 1.15 * needed + 2 * MB, ("%d of %d"):format(peak, needed))
  end)

  it("are not collected while the collector is stopped", function()
    core.collect()
    collectgarbage "stop"
    local x = core.rand(16)
    local before = core.tensors()
    for _ = 1, 2000 do local _ = x + 1 end
    assert.is_true(core.tensors() - before >= 2000)
    collectgarbage "restart"
    core.collect()
    assert.is_true(core.tensors() <= before)
  end)
end)

describe("a host's collector", function()
  it("is left alone and still keeps temporaries few", function()
    local was = core.collector()
    core.collector "host"
    assert.equal("host", core.collector())
    local x, y = core.rand(16, 16), core.rand(512, 512)
    local small = peak_of(function() for _ = 1, 100000 do local _ = x + x end end)
    local big = peak_of(function() for _ = 1, 2000 do local _ = y + y end end)
    core.collector(was)
    assert.is_true(small < 40 * MB, small)
    assert.is_true(big < 80 * MB, big)
    assert.error_matches(function() core.collector "me" end, 'expected "flare" or "host"')
  end)
end)

describe("scopes", function()
  it("close what they leave behind", function()
    local outside, lost = core.zeros(1), nil
    local a, t, n = core.scope(function(k)
      local x = core.ones(3)
      lost = x + 1
      return x * k, {inner = {x - 1}}, 5
    end, 2)
    assert.same({2, 2, 2}, a:totable())
    assert.same({0, 0, 0}, t.inner[1]:totable())
    assert.equal(5, n)
    assert.is_true(lost.closed)
    assert.is_false(outside.closed)
  end)

  it("nest, and close after errors", function()
    local first, second, third
    core.scope(function()
      first = core.scope(function()
        second = core.ones(2)
        return core.ones(1)
      end)
      assert.is_true(second.closed)
      assert.is_false(first.closed)
    end)
    assert.is_true(first.closed)
    assert.error_matches(function()
      core.scope(function() third = core.ones(1) error("on purpose") end)
    end, "on purpose")
    assert.is_true(third.closed)
    assert.is_false(core.ones(1).closed)
  end)

  it("leave gradients alone", function()
    local w = core.ones(3, {requires_grad = true})
    core.scope(function() (w * 2):sum():backward() end)
    assert.same({2, 2, 2}, w.grad:totable())
  end)
end)

describe("out of memory", function()
  it("collects and goes on", function()
    core.collect()
    core.memory.limit(core.memory.stats().live + 20 * MB)
    collectgarbage "stop"
    local ok, err = pcall(function()
      for _ = 1, 200 do local _ = core.zeros(MB // 4) end
    end)
    collectgarbage "restart"
    core.memory.limit(0)
    assert.is_true(ok, err)
  end)

  it("is an error with figures, and passes", function()
    core.collect()
    core.memory.limit(core.memory.stats().live + 4 * MB)
    local ok, err = pcall(core.zeros, 8 * MB)
    assert.is_false(ok)
    assert.matches("out of memory", err)
    assert.matches("MB", err)
    ok = pcall(core.zeros, 1000)
    core.memory.limit(0)
    assert.is_true(ok)
    assert.equal("string", type(core.memory.holders(3)))
    local held = core.empty(64 * MB, {dtype = "u8"})
    assert.matches("^67.1 MB spec/lua/gc_spec.lua:148", core.memory.holders(3))
    assert.equal(64 * MB, held:numel())
  end)

  it("of a device has its figures, and the lines that hold most", function()
    local function bytes_of(text)
      local n, unit = text:match "([%d.]+) (%a+)"
      return n * ({B = 1, KB = 1e3, MB = 1e6, GB = 1e9})[unit]
    end
    core.collect()
    core.memory.flush "sim:0"
    core.backend_control("sim", "memory_limit", 100e6)
    local most = core.zeros(10e6, {device = "sim:0"}) local line = debug.getinfo(1, "l").currentline
    local some = core.zeros(25e4, {device = "sim:0"})
    local ok, err = pcall(core.zeros, 15e6, {device = "sim:0"})
    local after = core.memory.stats "sim:0"
    local fits, left = pcall(core.zeros, 11e6, {device = "sim:0"})
    core.backend_control("sim", "memory_limit", 0)
    assert.is_false(ok)
    local asked, live, blocks, reserved, free, total, top, file, at = tostring(err):match(
      "out of memory on sim:0: asked for (%S+ %a+); live (%S+ %a+) in (%d+) blocks, "
      .. "reserved (%S+ %a+), .-; the device has (%S+ %a+) free of (%S+ %a+); "
      .. "held most: (%S+ %a+) (%S+):(%d+)")
    assert.is_truthy(at, err)
    local function near(want, text)
      assert(math.abs(bytes_of(text) / want - 1) < 0.01, text .. " for " .. want)
    end
    near(60e6, asked)
    near(after.live, live)
    near(after.reserved, reserved)
    near(100e6 - after.reserved, free)
    near(100e6, total)
    near(40e6, top)
    assert.equal(2, tonumber(blocks))
    assert.equal(line, tonumber(at))
    assert.matches("gc_spec.lua$", file)
    assert.is_true(fits, left)
    for _, x in ipairs {most, some, left} do x:close() end
  end)

  it("keeps operands that a finaliser closes", function()
    core.collect()
    core.memory.flush()
    local x = core.ones(MB // 4)
    local stats = core.memory.stats()
    core.memory.limit(stats.reserved) -- no more segments
    local many = {}
    for i = 1, stats.largest_free // MB + 2 do many[i] = x end
    local function leave() setmetatable({}, {__gc = function() x:close() end}) end
    leave()
    local ok, err = pcall(core.cat, many)
    core.memory.limit(0)
    assert.is_false(ok)
    assert.matches("out of memory", err)
    assert.is_true(x.closed)
    assert.error_matches(function() return x + 1 end, "tensor is closed")
  end)

  it("injected anywhere leaves no trace", function()
    local w = core.rand{4, 4, dtype = "f64", requires_grad = true}
    local function step()
      local x = core.tensor{{1, 2, 3, 4}, {5, 6, 7, 8}}:to("f64")
      local y = x:matmul(w)
      y[1] = 0
      local v, i = y:max(2)
      local z = core.cat({y, v:unsqueeze(2)}, 2)[{{}, {1, 3}}]
      local loss = z:softmax(-1):log():sum() + i:sum()
      loss:backward()
      w:zero_grad()
      return core.custom("f", function(ctx, t) ctx:save(t) return t * 2 end,
                         function(_, dy) return dy end)(w):sum():item()
    end
    step()
    core.collect()
    local tensors, live = core.tensors(), core.memory.stats().live
    local failures = 0
    for n = 0, 400 do
      core.memory.fail(n, 3)
      local ok, err = pcall(step)
      local asked = core.memory.fail(0, 0)
      if not ok then
        failures = failures + 1
        assert.is_truthy(tostring(err):find("memory", 1, true), err)
      end
      w:zero_grad()
      if ok and asked < n then break end
    end
    core.collect()
    assert.is_true(failures > 20)
    assert.equal(tensors, core.tensors())
    assert.equal(live, core.memory.stats().live)
    assert.equal("number", type(step()))
  end)
end)

describe("views and handles", function()
  it("keep a storage as long as one of them lives", function()
    core.collect()
    local before = core.memory.stats().live
    local x = core.zeros(MB)
    local row = x[1]
    x:close()
    assert.equal(0, row:item())
    assert.is_true(core.memory.stats().live - before >= 4 * MB)
    row:close()
    core.collect()
    assert.equal(before, core.memory.stats().live)
  end)
end)
