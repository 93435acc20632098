-- Norms of rows that are far from 0: of equal elements they are 0, of a small spread as exact as
-- f32 lets them be.
local flare = require "flare"

local devices = {"cpu", "sim:0"}
local sizes = {3, 16, 17, 100, 768, 1000, 5000}

local function greatest(x)
  return x:to("cpu"):abs():max():item()
end

describe("norms of a constant row", function()
  for _, device in ipairs(devices) do
    for _, v in ipairs {123456.7, 16777215, 1e6 + 0.3, -7.1e5, 3e15, 1e-30} do
      it(("of %g are 0 on %s"):format(v, device), function()
        for _, n in ipairs(sizes) do
          local x = flare.full({2, 4, n}, v, {device = device})
          assert.equal(0, greatest(x:layer_norm()))
          assert.equal(0, greatest(x:group_norm{groups = 2}))
          assert.equal(0, greatest(x:group_norm{groups = 4}))
          assert.equal(0, greatest((x:batch_norm())))
          assert.equal(0, greatest(x:var(3)))
          assert.equal(0, greatest(x:std(3)))
        end
      end)
    end
  end

  it("have no gradient but that of the bias", function()
    local x = flare.full({2, 1000}, 123456.7):requires_grad_(true)
    local w = flare.ones({1000}, {requires_grad = true})
    local b = flare.zeros({1000}, {requires_grad = true})
    x:layer_norm(w, b):sum():backward()
    assert.equal(0, greatest(w.grad))
    assert.same({2, 2}, {b.grad[1]:item(), b.grad[1000]:item()})
    assert.is_true(greatest(x.grad) < 1e-3)
  end)
end)

describe("norms of a small spread", function()
  it("do not have the rounding of the mean", function()
    for _, n in ipairs {16, 100, 1000, 5000} do
      local x = (flare.randn(4, n, {generator = flare.generator(5), dtype = "f64"}) * 0.05 + 1e4)
        :to "f32"
      local exact = x:to("f64"):layer_norm()
      local function check(y)
        local off = greatest(y:to("f64"):view(4, n) - exact)
        assert(off < 1e-5, off)
      end
      check(x:layer_norm())
      check(x:layer_norm(flare.ones(n)))
      check(x:layer_norm(flare.ones(n), flare.zeros(n)))
      check(x:view(4, 1, n):group_norm{groups = 1})
      check(x:view(4, n, 1):group_norm{groups = 1})
      check(x:view(1, 4, n):batch_norm())
      check(x:t():contiguous():batch_norm():t():contiguous())
      local rstd = select(3, x:layer_norm{all = true})
      local want = select(3, x:to("f64"):layer_norm{all = true})
      assert.is_true(greatest(rstd:to "f64" / want - 1) < 1e-4)
    end
  end)
end)

describe("norms of a row whose first element is an outlier", function()
  it("have the mean and deviation of f64", function()
    for _, n in ipairs {100, 5000, 100000} do
      for _, first in ipairs {3, 30, 1e5, -1e9} do
        local x = flare.randn(2, n, {generator = flare.generator(7)})
        x[{{}, 1}] = first
        local _, mean, rstd = x:layer_norm{all = true}
        local _, mean64, rstd64 = x:to("f64"):layer_norm{all = true}
        local allowed = 4e-6 * (1 + math.abs(first) / n)
        assert.is_true(greatest(mean:to "f64" - mean64) < allowed)
        assert.is_true(greatest(rstd:to "f64" / rstd64 - 1) < 4e-6)
      end
    end
  end)
end)
