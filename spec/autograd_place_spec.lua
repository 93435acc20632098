-- Gradients that are written into a part of another tensor, as those of data parallel training are
-- into what is sent.
local core = require "flare.core"
local flare = require "flare"

describe("a gradient with a place", function()
  local function placed(shape, dtype)
    local x, flat = flare.ones(shape):to(dtype or "f32"):requires_grad_(true), flare.zeros{20}
    core.place_grad(x, flat, 5)
    return x, flat:narrow(1, 5, x:numel()):view(x.shape), flat
  end

  it("is written there, added up there, and nowhere else", function()
    local x, place, flat = placed{2, 3};
    (x * 2):sum():backward()
    assert.is_true(x.grad:shares(flat))
    assert.same({{2, 2, 2}, {2, 2, 2}}, place:tolist());
    (x * x + x:t():t()):sum():backward() -- three uses
    assert.same({{5, 5, 5}, {5, 5, 5}}, place:tolist())
    assert.is_true(x.grad:shares(flat))
    assert.equal(30, flat:sum():item())
    x:zero_grad()
    x:sum():backward()
    assert.same({{1, 1, 1}, {1, 1, 1}}, place:tolist())
    core.place_grad(x, nil)
    x:zero_grad()
    x:sum():backward()
    assert.is_false(x.grad:shares(flat))
  end)

  it("goes through hooks, and keeps requires_grad as it was set", function()
    local x, place, flat = placed{4}
    local seen
    local hook = x:register_hook(function(g) seen = g.dtype return g * 3 end)
    x:to("bf16"):sum():backward()
    assert.equal("f32", tostring(seen))
    assert.same({3, 3, 3, 3}, place:tolist())
    hook:remove()
    x.grad = flare.ones{4};
    (x * 2):sum():backward()
    assert.same({3, 3, 3, 3}, x.grad:tolist())
    assert.is_false(x.grad:shares(flat))
  end)

  it("is converted by the write that puts it there", function()
    local x, place = placed{6}
    local y = x:to "bf16"
    local report = flare.profile(function() (y * 3):sum():backward() end)
    assert.same({3, 3, 3, 3, 3, 3}, place:tolist())
    local by_op = {}
    for _, sum in ipairs(report:sums "op") do by_op[sum.name] = sum.calls end
    assert.is_nil(by_op["copy (backward)"])
    assert.equal(1, by_op["assign (backward)"])
  end)

  it("is not written there if it has a graph of its own", function()
    local x, place = placed{3}
    local g = flare.grad((x * x * x):sum(), x, {create_graph = true})
    assert.is_false(g:shares(place))
    assert.same({0, 0, 0}, place:tolist())
    g:sum():backward()
    assert.same({6, 6, 6}, place:tolist())
  end)

  it("may be of another dtype", function()
    local x, flat = flare.ones({3}):requires_grad_(true), flare.zeros({4}, {dtype = "bf16"})
    core.place_grad(x, flat, 2);
    (x * 1.001):sum():backward()
    assert.equal("bf16", x.grad.dtype)
    assert.same({0, 1, 1, 1}, flat:tolist())
    x:sum():backward() -- adds up there
    assert.same({0, 2, 2, 2}, flat:tolist())
    x.grad = flare.zeros{3}
    x:sum():backward() -- as what is there is
    assert.equal("f32", x.grad.dtype)
    assert.same({1, 1, 1}, x.grad:tolist())
    assert.error_matches(function() core.place_grad(x, flare.zeros({4}, {dtype = "i32"}), 1) end,
      "of floats for floats", 1, true)
  end)

  it("is in a tensor on its tensor's device, with room", function()
    local function leaf() return flare.ones({2}, {dtype = "f64"}):requires_grad_(true) end
    local x = leaf()
    local enough = flare.zeros({3}, {dtype = "f64"})
    for _, bad in ipairs {{enough, 3}, {enough, 0}, {flare.zeros{1}, 1}, {leaf(), 1},
      {flare.zeros({4, 4}, {dtype = "f64"}):t(), 1},
      {flare.zeros({2}, {dtype = "f64", device = "sim:0"}), 1}} do
      assert.error_matches(function() core.place_grad(x, bad[1], bad[2]) end,
        "the place of a gradient is in a contiguous tensor on its tensor's device, of floats for "
          .. "floats, which needs no gradient itself and has room for 2 elements", 1, true)
    end
    core.place_grad(x, enough, 2);
    (x * 3):sum():backward()
    assert.same({0, 3, 3}, enough:tolist())
    assert.error_matches(function() core.place_grad(flare.zeros{2}, flare.zeros{2}, 1) end,
      "only a leaf that requires a gradient has a place for it", 1, true)
    enough:close()
    assert.same({3, 3}, x.grad:tolist())
  end)
end)
