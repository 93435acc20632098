-- copy_ between devices: what is copied by which calls, what waits, and what the values are. The
-- expected values are those of tables, or of copy_ on the CPU.
local flare = require "flare"
local fails = require "spec.support.expect".fails
local device = "sim:0"

-- Transfers by name, as {calls, bytes}, and the number of launches.
local function counted(f)
  flare.synchronize(device)
  local report = flare.profile(f)
  local list, launches = {}, report.count
  for _, s in ipairs(report:sums("op", {transfers = true})) do
    if s.name:find "^copy to" or s.name:find "^copy between" then
      list[s.name], launches = {s.calls, s.bytes}, launches - s.calls
    end
  end
  return list, launches
end

local function numbers(n) return flare.range(1, n):f32() end

describe("copy_ between devices", function()
  after_each(function() flare.synchronize(device) end)

  it("lets the device copy from and to pinned memory, and nothing else run", function()
    for _, o in ipairs {{}, {async = true}} do
      local host, gpu = numbers(256):pin_memory(), flare.zeros({256}, {device = device})
      local back = flare.zeros({256}, {pinned = true})
      local seen, launches = counted(function() gpu:copy_(host, o) end)
      assert.same({["copy to the device (pinned)"] = {1, 1024}}, seen)
      assert.equal(0, launches)
      seen, launches = counted(function()
        back:copy_(gpu, o)
        flare.synchronize(device)
      end)
      assert.same({["copy to the host (pinned)"] = {1, 1024}}, seen)
      assert.equal(0, launches)
      assert(host:equal(back))
    end
  end)

  it("writes ordinary memory straight to where it belongs, too", function()
    local host, gpu = numbers(256), flare.zeros({256}, {device = device})
    local back = flare.zeros(256)
    local seen, launches = counted(function() gpu:copy_(host) back:copy_(gpu) end)
    assert.same({["copy to the device"] = {1, 1024}, ["copy to the host"] = {1, 1024}}, seen)
    assert.equal(0, launches)
    assert(host:equal(back))
    local other = flare.zeros({256}, {device = "sim:1"}):copy_(gpu)
    assert(host:equal(other:to "cpu"))
  end)

  it("uses pinned memory in x:to, too", function()
    local host = numbers(256):pin_memory()
    local gpu
    local seen = counted(function() gpu = host:to(device) end)
    assert.same({["copy to the device (pinned)"] = {1, 1024}}, seen)
    assert(host:equal(gpu:to "cpu"))
  end)

  it("waits, unless async = true", function()
    flare.debug_streams(true)
    finally(function() flare.debug_streams(false) end)
    local gpu = numbers(64):to(device)
    local host = flare.zeros({64}, {pinned = true})
    host:copy_(gpu)
    assert.equal(2080, host:sum():item()) -- the host may read it
    gpu:copy_(host:mul_(2)) -- and write it
    host:zero_()
    assert.equal(4160, gpu:sum():item())
    host:copy_(gpu, {async = true})
    fails("a copy", function() return host[1]:item() end)
    flare.synchronize(device)
    assert.equal(4160, host:sum():item())
  end)

  it("comes after what the stream has to do", function()
    flare.core.backend_control("sim", "delay_us", 2000)
    finally(function() flare.core.backend_control("sim", "delay_us", 0) end)
    local gpu = flare.ones({64}, {device = device})
    local host = numbers(64):pin_memory()
    local before = gpu * 3
    gpu:copy_(host, {async = true})
    local after = gpu * 3
    local back = flare.zeros({64}, {pinned = true}):copy_(after)
    assert.equal(3 * 2080, back:sum():item())
    assert.equal(3 * 64, before:sum():item())
  end)

  it("gives any pair of layouts, dtypes and shapes the values of copy_ on the CPU", function()
    local shapes = { -- of x and of from: as views of fresh memory
      function(t) return t end, function(t) return t:t() end,
      function(t) return t:narrow(2, 2, 4) end, function(t) return t:select(1, 2) end,
      function(t) return t:unsqueeze(1):transpose(1, 3) end,
    }
    for i, from_of in ipairs(shapes) do
      for _, to_of in ipairs {shapes[i], shapes[1]} do
        for _, dtypes in ipairs {{"f32", "f32"}, {"bf16", "f32"}, {"f32", "i64"}} do
          for _, places in ipairs {{"cpu", device}, {device, "cpu"}} do
            for _, pinned in ipairs {true, false} do
              local function make(place, dtype, values)
                local t = (values and numbers(36) or flare.zeros(36)):to(dtype)
                if place == "cpu" and pinned then t = t:pin_memory() end
                return t:to(place):view {6, 6}
              end
              local function copied(x_place, from_place)
                local whole = make(x_place, dtypes[1], false)
                local x, from = to_of(whole), from_of(make(from_place, dtypes[2], true))
                local ok, why = pcall(x.copy_, x, from, {async = true})
                flare.synchronize(device)
                return ok and whole:to "cpu" or why:match "assign.*"
              end
              local expected, got = copied("cpu", "cpu"), copied(places[1], places[2])
              assert(expected == got or expected:equal(got), tostring(got))
            end
          end
        end
      end
    end
  end)

  it("is recorded where a gradient is wanted, and counts as a write", function()
    local w = numbers(4):pin_memory():requires_grad_(true)
    local x = flare.zeros({4}, {device = device})
    x:copy_(w)
    x:square():sum():backward()
    assert.same({2, 4, 6, 8}, w.grad:totable())
    local v = flare.ones({4}, {device = device}):requires_grad_(true)
    local y = flare.ones({4}, {device = device})
    local product = (v * y):sum()
    y:copy_(numbers(4):pin_memory())
    fails("transfer_spec.lua", product.backward, product)
    fails("leaf", function() v:copy_(numbers(4):pin_memory()) end)
  end)

  it("refuses what cannot be written", function()
    local x = flare.zeros({1}, {device = device}):expand(4)
    fails("cannot be written in place", function() x:copy_(numbers(4):pin_memory()) end)
    fails("does not broadcast", function()
      flare.zeros({2}, {device = device}):copy_(numbers(4):pin_memory())
    end)
  end)

  it("waits for launches of a compiled function", function()
    local host = numbers(8):pin_memory()
    local gpu, back = flare.zeros({8}, {device = device}), flare.zeros({8}, {pinned = true})
    local f = flare.compile(function(scale)
      gpu:mul_(0):add_(1)
      local old = gpu * 2
      gpu:copy_(host)
      back:copy_(gpu * scale)
      return old
    end)
    for scale = 1, 3 do
      assert.equal(16, f(scale):sum():item())
      assert.equal(36 * scale, back:sum():item())
    end
  end)
end)
