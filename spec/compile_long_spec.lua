-- Compiled functions that are long, or are called for ever.
local flare = require "flare"

local function same(want, got)
  assert(want.shape == got.shape and want:eq(got):all():item(), "values differ")
end

describe("a compiled function", function()
  it("may be a chain of thousands of operators", function()
    local x = flare.randn(16, 16)
    local function body(t, n)
      for k = 1, n do t = k % 3 == 0 and t:tanh() or t * 1.001 + 0.01 end
      return t
    end
    local f = flare.compile(body, {exact = true})
    for _, n in ipairs {1000, 3000} do
      local want = body(x, n)
      for _ = 1, 3 do same(want, f(x, n)) end
      local stats = flare.compile_stats(f)
      assert.equal(2 * n - n // 3, stats.launches)
      assert.is_true(stats.kernels <= stats.launches / 8)
    end
  end)

  it("may chain more reductions than a kernel takes", function()
    for _, device in ipairs {"cpu", "sim:0"} do
      local x = flare.randn({8, 33}, {device = device})
      local function body(t)
        for _ = 1, 100 do t = t:softmax(-1) * 2 - t:mean(1, {keepdim = true}) end
        return t
      end
      local f, want = flare.compile(body), body(x)
      for _ = 1, 3 do assert.is_true((f(x) - want):abs():max():item() < 1e-5) end
      assert.is_true(flare.compile_stats(f).planned >= 2)
    end
  end)

  it("keeps the memory of the process flat over two hundred thousand calls", function()
    local function resident()
      local file = io.open "/proc/self/statm"
      if not file then return 0 end
      local pages = file:read "a":match "%d+ (%d+)"
      file:close()
      return tonumber(pages) * 4096
    end
    local x, w = flare.ones(4, 4), flare.ones(4, 4):requires_grad_()
    local f = flare.compile(function(t, k)
      w.grad = nil;
      (t * w * k + 1):tanh():sum():backward()
      return w.grad
    end)
    local function run(n)
      for k = 1, n do f(x, k / 7) end
      collectgarbage()
    end
    run(20000)
    local before = resident()
    run(200000)
    assert.is_true(resident() <= before + (2 << 20),
      ("%d bytes more"):format(resident() - before))
  end)
end)
