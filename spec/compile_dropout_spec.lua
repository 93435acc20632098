-- Compiled functions: dropout in the kernels of what comes before and after it. Which elements stay
-- is what the operator's own kernel says for the same seed.
local flare = require "flare"
local core = require "flare.core"
local rows = require "spec.support.rows"

-- Three results of f from one seed, the last two by a plan, and the kernels of the plan.
local function plan(f, ...)
  local compiled, object = core.compiled(f, false, true)
  local all = {}
  flare.manual_seed(7)
  for k = 1, 3 do all[k] = compiled(...) end
  return all, core.compiled_stats(object).kernels
end

local function eager(f, ...)
  local all = {}
  flare.manual_seed(7)
  for k = 1, 3 do all[k] = f(...) end
  return all
end

-- Elements that differ by more than rounding, in all three.
local function differ(a, b, most)
  local n = 0
  for k = 1, 3 do
    local off = (a[k]:to "f64" - b[k]:to "f64"):abs()
    n = n + off:gt(most):sum():item() + off:isnan():sum():item()
  end
  return n
end

local shapes = {{64, 128}, {7, 13, 5}, {10007}, {3, 4, 6, 11}, {33, 1}}
local limits = {f32 = 1e-5, f64 = 1e-12, bf16 = 0.2, f16 = 0.03}

for _, device in ipairs(rows.devices) do
  describe("dropout in compiled functions on " .. device, function()
    local function same(f, dtype, kernels)
      for _, shape in ipairs(shapes) do
        local x = flare.randn(shape):to(dtype):to(device)
        local want, got, n = eager(f, x), plan(f, x)
        assert.equal(0, differ(want, got, limits[dtype]),
          dtype .. " " .. table.concat(shape, " x "))
        assert.equal(0, differ({want[1]:eq(0), want[2]:eq(0), want[3]:eq(0)},
          {got[1]:eq(0), got[2]:eq(0), got[3]:eq(0)}, 0))
        assert.equal(kernels, n)
      end
    end

    for dtype in pairs(limits) do
      it("drops the same elements of " .. dtype .. " between elementwise operators", function()
        same(function(x) return flare.dropout(x * 2, 0.3):abs() * 3 end, dtype, 1)
        same(function(x) return flare.dropout(flare.dropout(x, 0.5) * 0.5, 0.1) * 2 end, dtype, 1)
      end)
    end

    it("counts elements of turned, cut and joined tensors as its own kernel does", function()
      same(function(x) return flare.dropout(x:transpose(1, -1), 0.5) * 3 end, "f32", 1)
      same(function(x) return flare.dropout(x * 3, 0.5):transpose(1, -1) + 1 end, "f32", 1)
      same(function(x) return flare.dropout(x + 1, 0.4):narrow(1, 2, 2) * 2 end, "f32", 1)
      same(function(x) return flare.cat({flare.dropout(x * 2, 0.4), x}, 1) * 2 end, "f32", 1)
      same(function(x) return flare.dropout(x:expand {2, table.unpack(x.shape)}, 0.4) + 1 end,
        "f32", 1)
    end)

    it("counts them where rows that are summed begin before it", function()
      for _, f in ipairs {
        function(x) return flare.dropout(x * 2, 0.5):pad({1, 2}):sum(-1) end,
        function(x)
          local y, first = flare.dropout(x + 1, 0.5), x:narrow(-1, 1, 1)
          return flare.cat({first, first, y:narrow(-1, 1, y:size(-1) - 1)}, -1):sum(-1)
        end,
        function(x)
          local to = x * 2
          to:narrow(-1, 3, 2):copy_(flare.dropout(x + 1, 0.5):narrow(-1, 1, 2))
          return to:sum(-1)
        end,
      } do
        for _, shape in ipairs {{7, 9}, {3, 2, 130}, {5}} do
          local x = flare.randn(shape):to(device)
          local want, got, kernels = eager(f, x), plan(f, x)
          assert.equal(0, differ(want, got, 1e-3))
          assert.equal(1, kernels)
        end
      end
    end)

    it("keeps everything, or nothing", function()
      same(function(x) return flare.dropout(x * 2, 0) + 1 end, "f32", 1)
      same(function(x) return flare.dropout(x * 2, 1) * 2 end, "f32", 1)
    end)

    it("is before and after sums of rows", function()
      local x = flare.randn(16, 300):to(device)
      for _, f in ipairs {
        function() return (flare.dropout(x * 2, 0.3) + x):softmax(-1) end,
        function() return flare.dropout((x * 2):softmax(-1), 0.3) end,
        function() return (flare.dropout(x, 0.3) * 2):sum(2) end,
        function() return (flare.dropout(x, 0.3) * 2):sum(1) end,
      } do
        local want, got, n = eager(f), plan(f)
        assert.equal(0, differ(want, got, 1e-4))
        assert.equal(1, n)
      end
    end)

    it("gives gradients to the elements that it kept", function()
      local x = flare.randn(40, 50):to(device)
      local function step()
        local leaf = x:detach():clone():requires_grad_()
        local y = (flare.dropout((leaf * 2):tanh(), 0.4) * leaf):sum()
        y:backward()
        return leaf.grad
      end
      assert.equal(0, differ(eager(step), (plan(step)), 1e-5))
    end)

    it("draws other numbers in each call", function()
      local x = flare.ones(1000):to(device)
      local got = plan(function() return flare.dropout(x * 2, 0.5) + 1 end)
      assert.is_true(got[2]:eq(got[3]):sum():item() < 600)
    end)
  end)
end
