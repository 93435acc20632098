-- Compiled functions: elementwise operators behind a product, and sums of a convolution's result,
-- in its kernel.
local flare = require "flare"
local core = require "flare.core"
local F = flare.nn.functional

-- Where expressions are kernels: not on the CPU, where kernels of several operators are tiles.
local device = "sim:0"
local function randn(...) return flare.randn({...}, {device = device}) end

-- Runs f by a plan three times and compares what it returns with what f gives by itself.
-- @return the plan's statistics
local function stats(f, tolerance, exact)
  local compiled, object = core.compiled(f, exact or false, true)
  for _ = 1, 3 do
    local want, got = table.pack(f()), table.pack(compiled())
    for k = 1, want.n do
      assert.same(want[k].shape, got[k].shape)
      local apart = (want[k]:to "f64" - got[k]:to "f64"):abs():max():item()
      assert(apart <= (tolerance or 1e-5), ("result %d is %g off"):format(k, apart))
    end
  end
  return core.compiled_stats(object)
end

-- @return launches and kernels of the plan
local function plan(...)
  local of = stats(...)
  return of.launches, of.kernels
end

describe("operators behind a product", function()
  local x, w, bias
  before_each(function()
    flare.manual_seed(1)
    x, w, bias = randn(3, 8, 16), randn(32, 16), randn(32)
  end)

  it("are part of its kernel", function()
    assert.same({2, 1}, {plan(function() return flare.gelu(F.linear(x, w, bias)) end)})
    assert.same({2, 1}, {plan(function() return x:matmul(w:t()):tanh() end)})
    local residual = randn(3, 8, 32)
    assert.same({4, 1}, {plan(function()
      return F.silu(F.linear(x, w, bias)) * 0.5 + residual
    end)})
  end)

  it("broadcast other operands", function()
    local column, row = randn(3, 8, 1), randn(32)
    assert.same({3, 1}, {plan(function() return (x:matmul(w:t()) * column) + row end)})
  end)

  it("may have several results", function()
    assert.same({3, 1}, {plan(function()
      local y = F.linear(x, w)
      return y:tanh(), y:sigmoid()
    end)})
  end)

  it("of a library are not left for a sum of the result", function()
    local dy, down, pre = randn(24, 16), randn(16, 32), randn(24, 32)
    for kernels, row in pairs{["matmul+gelu_backward"] = "gelu_backward",
                              ["silu_backward+sum"] = "silu_backward"} do
      local function f()
        local d = core.ops[row](dy:matmul(down), pre)
        return d, d:sum(1)
      end
      assert.same({3, 2}, {plan(f)})
      assert.truthy(tostring(flare.explain(f)):find(kernels, 1, true))
    end
  end)

  it("leave the product without memory if nothing else reads it", function()
    local function one() return F.linear(x, w):tanh() end
    local function both()
      local y = F.linear(x, w)
      return y:tanh(), y
    end
    local bytes = 3 * 8 * 32 * 4
    assert.equal(bytes, stats(one).memory)
    assert.equal(2 * bytes, stats(both).memory)
    assert.same({1, 1}, {stats(one).kernels, stats(both).kernels})
  end)

  it("count the memory of the product in plans with a cap, since a kernel may need it", function()
    local compiled = flare.compile(function() return F.linear(x, w):tanh() end, {memory = "1GiB"})
    for _ = 1, 2 do compiled() end
    local of = flare.compile_stats(compiled)
    assert.same({1, 2 * 3 * 8 * 32 * 4}, {of.kernels, of.memory})
  end)

  it("are those behind the last of two products", function()
    local gate = randn(32, 16)
    assert.same({4, 2}, {plan(function() return F.silu(x:matmul(w:t())) * x:matmul(gate:t()) end)})
  end)

  it("round what is stored, and nothing before, in 16 bits", function()
    local a, b = x:to "bf16", w:to "bf16"
    local f = function() return flare.gelu(F.linear(a, b)) end
    assert.same({2, 1}, {plan(f, 0.05)})
    assert.same({3, 1}, {plan(function() return F.linear(a, b):to "f32" * 2 end, 0.05)})
  end)

  it("are gradients of activations, too", function()
    local down = randn(16, 32)
    for _, p in ipairs {w, bias, down} do p:requires_grad_() end
    local function step()
      for _, p in ipairs {w, bias, down} do p.grad = nil end
      local y = F.linear(flare.gelu(F.linear(x, w, bias), "tanh"), down)
      y:backward(flare.ones_like(y))
      return y, w.grad, bias.grad, down.grad
    end
    local _, kernels = plan(step, 1e-4)
    local _, apart = plan(step, 1e-4, true)
    assert.equal(2, apart - kernels) -- gelu, and its gradient
  end)

  it("run in graphs", function()
    local compiled, object = core.compiled(function(a, s)
      return F.linear(a, w, bias):tanh() * s
    end, false, true)
    for k = 1, 16 do
      local a = randn(3, 8, 16)
      local want = F.linear(a, w, bias):tanh() * k
      local apart = (compiled(a, k) - want):abs():max():item()
      assert(apart < 1e-5, apart)
      compiled(a, k)
    end
    assert.equal(1, core.compiled_stats(object).kernels)
  end)

  it("are kernels of their own where the product is needed before", function()
    local _, kernels = plan(function()
      local y = x:matmul(w:t())
      return y:matmul(w), y:tanh()
    end)
    assert.equal(3, kernels)
  end)

  it("are kernels of their own where they read another order, other elements, or reduce", function()
    assert.same({3, 2}, {plan(function()
      return (x:matmul(w:t()):transpose(2, 3) + 1):contiguous()
    end)})
    assert.same({2, 2}, {plan(function() return x:matmul(w:t()):narrow(3, 1, 8):tanh() end)})
    assert.same({2, 2}, {plan(function() return x:matmul(w:t()):softmax(-1) end)})
    local _, kernels = plan(function() return x:matmul(w[1]):unsqueeze(-1) + bias end)
    assert.equal(2, kernels)
  end)

  it("may write over the result", function()
    local _, kernels = plan(function()
      local y = x:matmul(w:t())
      y:mul_(2):tanh_()
      return y
    end)
    assert.equal(2, kernels)
  end)

  it("have kernels of their own in exact plans", function()
    assert.same({2, 2}, {plan(function() return F.linear(x, w, bias):tanh() end, 0, true)})
  end)

  it("are found in the plan's text", function()
    local text = tostring(flare.explain(function() return flare.gelu(F.linear(x, w, bias)) end))
    assert.match("1 +fused product +linear%+gelu", text)
  end)

  it("are moments of the channels of a convolution, too", function()
    local images = randn(2, 8, 24, 24):to{layout = "channels_last"}
    local kernel, mean, var = randn(16, 8, 3, 3), randn(16), randn(16):abs()
    local function step()
      local y = flare.conv(images, kernel)
      local m, v = mean:clone(), var:clone()
      return y, flare.batch_norm(y, nil, nil, m, v):relu(), m, v
    end
    stats(step, 1e-4)
    assert.match("fused convolution +conv%+batch_norm", tostring(flare.explain(step)))
  end)
end)

describe("operators behind the gradient of a norm", function()
  local x, w, b, dy, residual
  before_each(function()
    flare.manual_seed(2)
    x, w, b = randn(30, 40, 24), randn(24), randn(24)
    dy, residual = randn(30, 40, 24), randn(30, 40, 24)
    for _, p in ipairs{x, w, b} do p:requires_grad_() end
  end)

  local function gradients(norm, ...)
    local leaves = {x, ...}
    for _, p in ipairs(leaves) do p.grad = nil end
    norm(x, ...):backward(dy)
    local all = {}
    for k, p in ipairs(leaves) do all[k] = p.grad end
    return table.unpack(all)
  end

  it("are part of its kernel, with sums over all rows", function()
    for norm, more in pairs{[flare.layer_norm] = {w, b}, [flare.rms_norm] = {w}} do
      local function f()
        local dx, dw, db = gradients(norm, table.unpack(more))
        local sum = dx + residual
        return sum, sum:to "bf16", sum:sum{1, 2}:to "f32", dw, db or dw
      end
      local forward, kernels = 1, select(2, plan(f, 1e-3))
      assert.equal(forward + 1, kernels)
      assert.truthy(tostring(flare.explain(f)):find("_norm_backward+add+sum+copy", 1, true))
    end
  end)

  it("may need no sum, or no other operand", function()
    local _, kernels = plan(function() return (gradients(flare.layer_norm, w, b) * 2):tanh() end,
                            1e-4)
    assert.equal(2, kernels)
  end)

  it("leave its result without memory if nothing else reads it", function()
    local rstd = flare.ones({30, 40}, {device = device})
    local function f(keeps)
      return function()
        local dx = core.ops.rms_norm_backward(dy, residual, dy[1][1], rstd)
        return dx * residual, keeps and dx or dy
      end
    end
    local apart = stats(f(true), 1e-4).memory - stats(f(false), 1e-4).memory
    assert.equal(30 * 40 * 24 * 4, apart)
  end)

  it("are kernels of their own where they reduce rows, or are read by the norm", function()
    local _, kernels = plan(function() return gradients(flare.layer_norm, w, b):softmax(-1) end,
                            1e-4)
    assert.equal(3, kernels)
  end)
end)
