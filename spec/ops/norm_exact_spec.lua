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

-- What gradients are made of is the difference from the mean, not from its rounding.
describe("gradients far from 0", function()
  local w = flare.linspace(0.5, 1.5, 64)
  local functions = {
    layer_norm = function(x) return x:layer_norm() end,
    ["layer_norm with weight"] = function(x) return x:layer_norm(w:to(x.dtype):to(x.device)) end,
    group_norm = function(x) return x:group_norm{groups = 4} end,
    ["group_norm with weight"] = function(x)
      local scale = flare.linspace(0.5, 1.5, x:size(2)):to(x.dtype):to(x.device)
      return x:group_norm(scale, nil, {groups = 2})
    end,
    batch_norm = function(x) return (x:batch_norm()) end,
    ["batch_norm of channels-last"] = function(x)
      return ((x:dim() == 4 and x:to{layout = "channels_last"} or x):batch_norm())
    end,
    ["batch_norm by columns"] = function(x) return (x:flatten(1, -2):batch_norm()) end,
    var = function(x) return x:var(-1) end,
    std = function(x) return x:std() end,
    cov = function(x) return x:flatten(1, -2):t():cov() end,
    logsumexp = function(x) return x:logsumexp(-1) end,
  }
  local generator = flare.generator(11)
  local function difference(a, b)
    return (greatest(a:to("cpu"):to "f64" - b) / greatest(b))
  end

  -- {what f gives, its gradient towards x, that by rows which have gradients themselves}
  local function results(f, x, dy)
    local y = f(x)
    local function towards(create)
      local loss = (y * dy:to(y.dtype):to(y.device)):sum()
      return flare.grad(loss, {x}, {retain_graph = true, create_graph = create})[1]:detach()
    end
    return {y:detach(), towards(false), towards(true)}
  end

  for _, device in ipairs(devices) do
    for name, f in pairs(functions) do
      it(("of %s are those of f64 on %s"):format(name, device), function()
        for _, shape in ipairs {{2, 8, 64}, {4, 4, 5, 64}, {2, 1024, 64}, {30, 4, 64}} do
          for _, offset in ipairs {-1e6, 3e4, 100} do
            local x = (flare.randn(shape, {dtype = "f64", generator = generator}) + offset):to "f32"
            local exact = f(x:to "f64")
            local dy = flare.randn(exact.shape, {generator = generator})
            local want = results(f, x:to("f64"):requires_grad_(true), dy)
            local got = results(f, x:to(device):detach():requires_grad_(true), dy)
            for k = 1, 3 do
              local off = difference(got[k], want[k])
              assert(off < 6e-6, ("%s, offset %g, result %d: %g"):format(table.concat(shape, " x "),
                offset, k, off))
            end
          end
        end
      end)
    end
  end
end)
