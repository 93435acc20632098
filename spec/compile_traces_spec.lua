-- Which traces a pure function keeps, and what they keep alive.
local flare = require "flare"

local function live()
  collectgarbage()
  collectgarbage()
  return flare.memory.stats().live
end

local BYTES = 256 * 256 * 4

for _, device in ipairs {"cpu", "sim:0"} do
  describe("the traces of a pure function on " .. device, function()
    local runs, weights
    local function pure()
      runs, weights = 0, {}
      return flare.compile(function(x, k)
        runs = runs + 1
        return (x * weights[k]):sum() + k
      end, {pure = true})
    end

    local function run(f, x, k)
      weights[k] = weights[k] or flare.full({256, 256}, k, {device = device})
      local want = x[1][1]:item() * k * 256 * 256 + k
      for _ = 1, 3 do
        assert.near(want, f(x, k):item(), math.abs(want) * 1e-5)
      end
    end

    it("are those used last, so that a new one can always be made", function()
      local f, x = pure(), flare.full({256, 256}, 0.5, {device = device})
      for k = 1, 40 do
        run(f, x, k)
        run(f, x, 1)
      end
      assert.equal(16, flare.compile_stats(f).traces)
      local before = runs
      for k = 26, 40 do run(f, x, k) end
      run(f, x, 1)
      assert.equal(before, runs)
      run(f, x, 2)
      assert.is_true(runs > before)
    end)

    it("let go what those that were dropped referred to, and all with the function", function()
      local x = flare.full({256, 256}, 0.5, {device = device})
      local before, f = live(), pure()
      for k = 1, 40 do run(f, x, k) end
      weights = {}
      assert.is_true(live() <= before + 17 * BYTES, "more than 16 weights are kept")
      f = nil
      assert.is_nil(f)
      assert.is_true(live() <= before + 4096, "weights are kept")
    end)

    it("end when a tensor gets another place in memory", function()
      local f, x = pure(), flare.full({256, 256}, 0.5, {device = device})
      for k = 1, 5 do run(f, x, k) end
      assert.equal(5, flare.compile_stats(f).traces)
      flare.core.place(flare.ones(3, {device = device}), flare.zeros(8, {device = device}), 2)
      run(f, x, 5)
      assert.equal(1, flare.compile_stats(f).traces)
      local before = runs
      run(f, x, 5)
      assert.equal(before, runs)
    end)
  end)
end
