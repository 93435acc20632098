-- What backward returns: the gradients of that pass, whatever comes later.
local flare = require "flare"

local function leaf(...) return flare.tensor({...}, {requires_grad = true}) end

describe("the gradient map", function()
  it("has the gradients of its own pass alone", function()
    local x = leaf(1, 2)
    local first = (x * 2):sum():backward()
    local second = (x * 3):sum():backward()
    assert.same({2, 2}, first:get(x):totable())
    assert.same({3, 3}, second:get(x):totable())
    assert.same({5, 5}, x.grad:totable())
    x:zero_grad()
    local third = (x * 7):sum():backward{retain_graph = true}
    x.grad = nil
    assert.same({2, 2}, first[x]:totable())
    assert.same({7, 7}, third[x]:totable())
  end)

  it("goes through all leaves with pairs, and counts them", function()
    local x, y, z = leaf(1, 2), leaf(3), leaf(4)
    local grads = flare.backward({(x * 2):sum(), y:sum()})
    local n, seen = 0, {}
    for t, g in pairs(grads) do
      n = n + 1
      seen[t == x and "x" or t == y and "y" or "?"] = g:totable()
    end
    assert.equal(2, n)
    assert.equal(2, #grads)
    assert.same({x = {2, 2}, y = {1}}, seen)
    assert.is_nil(grads:get(z))
    assert.matches("gradients of 2 tensors", tostring(grads))
    assert.error_matches(function() return grads:get(1) end, "expected a tensor")
    assert.error_matches(function() return grads.x end, "gradients have no 'x'")
  end)

  it("holds no second copy, and none at all where it is not taken", function()
    local w = flare.ones(1 << 20, {requires_grad = true})
    local function pass() return (w * 2):sum():backward() end
    collectgarbage()
    local before = flare.memory.stats().live
    local grads = pass()
    collectgarbage()
    local held = flare.memory.stats().live - before
    assert.is_true(held < 5 << 20, held)
    assert.equal(w.grad:data_ptr(), grads:get(w):data_ptr())
    grads = nil -- luacheck: ignore 311
    collectgarbage()
    local at = w.grad:data_ptr();
    (w * 2):sum():backward() -- a statement: added in place
    assert.equal(at, w.grad:data_ptr())
  end)

  it("is closed with its runtime and outlives its leaves", function()
    local grads
    do
      local x = leaf(1, 2)
      grads = (x * x):sum():backward()
    end
    collectgarbage()
    for t, g in pairs(grads) do
      assert.same({1, 2}, t:totable())
      assert.same({2, 4}, g:totable())
    end
  end)
end)
