-- Gradients of products and extremes at positions where differences say little: zeros among the
-- factors, and equal elements.
local flare = require "flare"

local function gradients(how, x, src, self)
  local index = flare.tensor({1, 1, 2, 2, 2, 3}, {dtype = "i64"})
  local function leaf(list) return flare.tensor(list, {dtype = "f64", requires_grad = true}) end
  x, src = leaf(x), leaf(src)
  local y = x:scatter_reduce{dim = 1, index = index, src = src, reduce = how, include_self = self}
  y:mul(flare.tensor({1, 10, 100, 1000}, {dtype = "f64"})):sum():backward()
  return x.grad:totable(), src.grad:totable()
end

describe("scatter_reduce", function()
  it("gives products with zeros among them their gradients", function()
    local x, src = gradients("prod", {2, 3, 4, 5}, {0, 2, 5, 6, 7, 4}, true)
    assert.same({0, 2100, 400, 1000}, x)
    assert.same({4, 0, 1260, 1050, 900, 400}, src)
    x, src = gradients("prod", {0, 3, 4, 5}, {3, 2, 0, 0, 7, 4}, true)
    assert.same({6, 0, 400, 1000}, x)
    assert.same({0, 0, 0, 0, 0, 400}, src)
    x, src = gradients("prod", {0, 3, 4, 5}, {3, 2, 0, 6, 7, 4}, false)
    assert.same({0, 0, 0, 1000}, x)
    assert.same({2, 3, 420, 0, 0, 100}, src)
  end)

  it("shares the gradient of extremes among equal elements", function()
    local x, src = gradients("amax", {2, 3, 9, 5}, {2, 2, 5, 5, 4, 1}, true)
    assert.same({1 / 3, 0, 100, 1000}, x)
    assert.same({1 / 3, 1 / 3, 5, 5, 0, 0}, src)
    x, src = gradients("amin", {2, 3, 9, 5}, {2, 2, 5, 5, 4, 9}, false)
    assert.same({0, 0, 0, 1000}, x)
    assert.same({0.5, 0.5, 0, 0, 10, 100}, src)
  end)
end)
