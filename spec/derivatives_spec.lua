-- Jacobians, Hessians and their products, against each other and by hand.
local flare = require "flare"
local fails = require "spec.support.expect".refused

local function near(got, want, what)
  assert(got.shape == want.shape, ("%s: %s, not %s"):format(what, got.shape, want.shape))
  local off = (got:detach():to "f64" - want:detach():to "f64"):abs()
  assert(off:numel() == 0 or off:max():item() < 1e-4, what)
end

local x = flare.tensor({0.5, -1, 2}, {dtype = "f64"})
local w = flare.tensor({{1, 2, 3}, {-1, 0.5, 0}}, {dtype = "f64"})
local function f(t) return w:matmul(t:tanh()) end
local function energy(t) return (w:matmul(t):square():sum() + t:exp():sum()) end

describe("jacobian", function()
  it("is dy/dx, y's dims first", function()
    local sech2 = 1 - x:tanh():square()
    near(flare.jacobian(f, x), w * sech2, "vector")
    near(flare.jacobian(function(t) return t:sum() end, x), flare.ones(3), "number")
    local j = flare.jacobian(function(t) return t:unsqueeze(1) * t:unsqueeze(2) end, x)
    assert.same({3, 3, 3}, {table.unpack(j.shape)})
    assert.equal(2 * x[2]:item(), j[2][2][2]:item())
    assert.equal(x[1]:item(), j[1][3][3]:item())
  end)

  it("is a list for a list", function()
    local a, b = flare.randn(2, {dtype = "f64"}), flare.randn(3, {dtype = "f64"})
    local j = flare.jacobian(function(p, q) return p:unsqueeze(2) * q end, {a, b})
    assert.same({2, 3, 2}, {table.unpack(j[1].shape)})
    assert.equal(b[3]:item(), j[1][1][3][1]:item())
    assert.equal(a[2]:item(), j[2][2][1][1]:item())
    assert.equal(0, j[2][2][1][3]:item())
  end)

  it("is zero for inputs without influence", function()
    near(flare.jacobian(function() return w[1] end, x), flare.zeros(3, 3), "constant")
  end)

  it("can be differentiated", function()
    local t = x:clone():requires_grad_(true)
    local j = flare.jacobian(function(u) return u ^ 3 end, t, {create_graph = true})
    near(flare.grad(j:sum(), {t}), 6 * x, "second")
  end)
end)

describe("hessian", function()
  it("is symmetric and right", function()
    local h = flare.hessian(energy, x)
    near(h, 2 * w.T:matmul(w) + x:exp() * flare.eye(3), "by hand")
    near(h, h.T, "symmetric")
  end)

  it("has blocks for a list", function()
    local a, b = flare.randn(2, {dtype = "f64"}), flare.randn(2, {dtype = "f64"})
    local h = flare.hessian(function(p, q) return (p * q * q):sum() end, {a, b})
    near(h[1][1], flare.zeros(2, 2), "linear in p")
    near(h[1][2], 2 * b * flare.eye(2), "mixed")
    near(h[2][2], 2 * a * flare.eye(2), "q")
  end)
end)

describe("logaddexp", function()
  it("bends where both are the same, and not where both are infinite", function()
    local a = flare.tensor({1, math.huge}, {dtype = "f64"})
    for name, unit in pairs {logaddexp = 1, logaddexp2 = math.log(2)} do
      local b = a:clone():requires_grad_()
      local g = flare.grad(flare[name](a, b):sum(), {b}, {create_graph = true})
      assert.same({0.5, 0.5}, g:tolist())
      near(flare.grad(g[1], {b}), flare.tensor({0.25 * unit, 0}), name)
    end
  end)
end)

describe("products", function()
  local v = flare.tensor({1, -2, 0.5}, {dtype = "f64"})
  local u = flare.tensor({3, -1}, {dtype = "f64"})

  it("agree with the matrices", function()
    local j, h = flare.jacobian(f, x), flare.hessian(energy, x)
    local y, product = flare.vjp(f, x, u)
    near(y, f(x), "value")
    near(product, j.T:matmul(u), "vjp")
    y, product = flare.jvp(f, x, v)
    near(y, f(x), "value")
    near(product, j:matmul(v), "jvp")
    y, product = flare.hvp(energy, x, v)
    near(y, energy(x), "value")
    near(product, h:matmul(v), "hvp")
    near(select(2, flare.vjp(energy, x)), flare.jacobian(energy, x), "vjp of a number")
  end)

  it("take lists", function()
    local a, b = flare.randn(3, {dtype = "f64"}), flare.randn(3, {dtype = "f64"})
    local function g(p, q) return p * q end
    local _, back = flare.vjp(g, {a, b}, v)
    near(back[1], b * v, "p")
    near(back[2], a * v, "q")
    local _, along = flare.jvp(g, {a, b}, {v, a})
    near(along, b * v + a * a, "along both")
  end)

  it("are zero for inputs without influence", function()
    near(select(2, flare.jvp(function() return u end, x, v)), flare.zeros(2), "jvp")
    near(select(2, flare.hvp(function(t) return t:sum() end, x, v)), flare.zeros(3), "hvp")
  end)

  it("do not need what they were given to be leaves, and leave no gradient there", function()
    local t = (x * 1):requires_grad_(true)
    flare.vjp(f, t * 2, u)
    assert.is_nil(t.grad)
  end)

  it("report errors", function()
    fails("jacobian: x must be a tensor or a list of tensors, got number", flare.jacobian, f, 3)
    fails("jacobian: x[2] is a number, not a tensor", flare.jacobian, f, {x, 3})
    fails("jacobian: the function must return a tensor, got nil", flare.jacobian, function() end, x)
    fails("hessian: the function must return one number, got shape (2)", flare.hessian, f, x)
    fails("vjp: v is missing: the function gives shape (2)", flare.vjp, f, x)
    fails("vjp: v has shape (3), expected (2)", flare.vjp, f, x, v)
    fails("jvp: v has 2 tensors, not 1", flare.jvp, f, x, {v, v})
    fails("unknown option 'create'", flare.jacobian, f, x, {create = true})
  end)
end)

describe("gradgradcheck", function()
  it("proves second derivatives, and finds those that are wrong", function()
    assert(flare.gradgradcheck(energy, {x}))
    assert(flare.gradgradcheck(function(a, b) return a:matmul(b) end, {w, x}))
    local wrong = flare.func{
      name = "wrong_twice",
      forward = function(ctx, t) ctx:save(t) return t ^ 3 end,
      backward = function(ctx, dy) return dy * 3 * ctx.saved[1]:detach():square() end,
    }
    local ok, why = flare.gradgradcheck(wrong, {x})
    assert.is_nil(ok)
    assert.equal("string", type(why))
    assert.has_error(function() flare.gradgradcheck(f, 3) end,
                     "gradgradcheck: the inputs must be a list of tensors, got number")
  end)
end)
