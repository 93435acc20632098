-- Memory of plans: what a plan says that it needs is what the allocator sees, and steps run in an
-- order that needs less at once.
local flare = require "flare"
local rows = require "spec.support.rows"
local programs = require "spec.support.steps"

-- Bytes that a run of f needs beside those before it.
local function peak_of(device, f)
  collectgarbage()
  collectgarbage()
  local before = flare.memory.stats(device).live
  flare.memory.reset_peak(device)
  f()
  return flare.memory.stats(device).peak - before
end

-- Plans at first sight, which are never dropped, launched one by one.
local function planned(f)
  local run, object = flare.core.compiled(f, false, true, false, false, 0)
  run()
  return run, function() return flare.core.compiled_stats(object).memory end
end

-- Kernels may need memory while they run; those of the simulated device, which are the CPU's on one
-- thread, need none here.
local function close(device, memory, peak)
  local text = ("%d bytes, the plan says %d"):format(peak, memory)
  assert.is_true(memory <= peak, text)
  if device:find "^sim" then assert.is_true(peak <= memory + 256, text) end
end

for _, device in ipairs(rows.devices) do
  describe("memory of plans on " .. device, function()
    for _, name in ipairs{"mlp", "conv", "gpt"} do
      it("is known before they run: a step of " .. name, function()
        local f, memory = planned(programs[name](device).step)
        local peak = peak_of(device, f)
        assert.is_true(memory() > 1 << 20)
        close(device, memory(), peak)
      end)
    end

    it("is less where a launch that frees memory may run early", function()
      local x, v = flare.randn(512, 8, {device = device}), flare.randn(256, 1, {device = device})
      local w = {}
      for k = 1, 6 do w[k] = flare.randn(8, 256, {device = device}) end
      local function products()
        local all, sum = {}, 0
        for k = 1, #w do all[k] = x:matmul(w[k]) end
        for k = #w, 1, -1 do sum = sum + all[k]:matmul(v) end
        return sum
      end
      local want = products()
      local f, memory = planned(products)
      local value = 512 * 256 * 4
      assert.is_true(memory() < 2 * value, memory() .. " bytes")
      assert.is_true(peak_of(device, f) < 2 * value)
      assert.is_true(peak_of(device, products) >= #w * value)
      assert.is_true((f() - want):abs():max():item() <= 1e-3)
    end)

    it("is that of a loop's chunks", function()
      local x, w = flare.randn(512, 16, {device = device}), flare.randn(1000, 16, {device = device})
      local target = flare.range(1, 512, {dtype = "i64", device = device})
      w:requires_grad_()
      local function step()
        w.grad = nil
        local y = flare.nn.functional.linear(x, w)
        flare.nn.functional.cross_entropy(y, target):backward()
      end
      local f = flare.compile(step, {chunk = 64 * 1000 * 4, graphs = false})
      f()
      f()
      w.grad = nil
      local peak = peak_of(device, f)
      local stats = flare.compile_stats(f)
      assert.equal(8, stats.chunks)
      assert.is_true(stats.memory < 512 * 1000 * 4 / 2)
      close(device, stats.memory, peak)
    end)
  end)
end
