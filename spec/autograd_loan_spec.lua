-- Memory that is lent for forward: the tape keeps marks, and asks for the elements again.
local flare = require "flare"
local core = require "flare.core"

local function close(x, y) return (x - y):abs():max():item() < 1e-6 end

describe("lent tensors", function()
  -- a weight (3, 2) as a view of lent memory, its stand-in, and what has been asked for
  local function lent(make)
    local values = flare.arange(1, 9, {dtype = "f32"})
    local flat, asked = values:clone(), {}
    local function f(dtype)
      asked[#asked + 1] = dtype
      return make and make(dtype) or values:to(dtype)
    end
    core.lend(flat, f)
    local w = flat:narrow(1, 3, 6):view{3, 2}
    local leaf = flare.zeros{}:expand{3, 2}:requires_grad_(true)
    core.stand_in(w, leaf)
    return w, leaf, asked, f, values:narrow(1, 3, 6):view{3, 2}, flat
  end
  local x = flare.randn(4, 2)

  it("is asked for in backward, as it was used, also by views", function()
    for _, autocast in ipairs {false, "bf16"} do
      local w, leaf, asked, f, plain, flat = lent()
      local input = x:clone():requires_grad_(true)
      local linear = flare.nn.functional.linear
      local y = flare.autocast(autocast, function()
        return autocast and linear(input, w) or flare.matmul(input, w:t())
      end)
      flat:zero_() -- no call reads it any more
      w:close()
      flat:close()
      y:to("f32"):square():sum():backward()
      local p, q = plain:clone():requires_grad_(true), x:clone():requires_grad_(true)
      flare.autocast(autocast, linear, q, p):to("f32"):square():sum():backward()
      assert.is_true(close(p.grad, leaf.grad) and close(q.grad, input.grad))
      assert.same({autocast or "f32"}, asked)
      assert.is_function(f)
    end
  end)

  it("has no memory on the tape", function()
    local layers, n = {}, 4
    local before = flare.memory.stats().live
    local h, keep = flare.ones(2, 256), {}
    for k = 1, n do
      local values = 256 * 256
      local flat = flare.ones{values}
      keep[k] = function(dtype) return flare.ones({values}, {dtype = dtype}) end
      core.lend(flat, keep[k])
      local w = flat:view{256, 256}
      layers[k] = flare.zeros{}:expand{256, 256}:requires_grad_(true)
      core.stand_in(w, layers[k])
      h = flare.autocast("bf16", flare.matmul, h, w):to "f32" / 256
      w:close()
      flat:close()
    end
    flare.core.collect()
    assert.is_true(flare.memory.stats().live - before < 2 ^ 17)
    h:sum():backward()
    for k = 1, n do assert.is_true(layers[k].grad:eq(2 / 256):all():item()) end
  end)

  it("goes through gradients of gradients", function()
    local w, leaf, _, f, plain = lent()
    local input = x:clone():requires_grad_(true)
    local function twice(weight, from)
      local g = flare.grad(flare.matmul(from, weight:t()):tanh():sum(), from, {create_graph = true})
      g:square():sum():backward()
    end
    twice(w, input)
    local p = plain:clone():requires_grad_(true)
    twice(p, x:clone():requires_grad_(true))
    assert.is_true(close(p.grad, leaf.grad))
    assert.is_function(f)
  end)

  it("must come back as it was", function()
    for _, case in ipairs {{function() return 3 end, "must come back as a tensor, not"},
        {function() return flare.zeros({8}, {dtype = "f64"}) end, "has come back as f64 of 8"},
        {function() return flare.zeros{5} end, "has come back as f32 of 5 elements"},
        {function() error "no owner" end, "no owner"}} do
      local w, _, _, f = lent(case[1])
      local y = flare.matmul(x:clone():requires_grad_(true), w:t()):sum()
      assert.error_matches(function() y:backward() end, case[2], 1, true)
      assert.is_function(f)
    end
    local w = lent()
    local y = flare.matmul(x:clone():requires_grad_(true), w:t()):sum()
    flare.core.collect()
    assert.error_matches(function() y:backward() end, "who lent a tensor is gone", 1, true)
  end)

  it("is lent once, from its memory's start, and stands for what has no history", function()
    local _, leaf, _, f, _, flat = lent()
    for _, bad in ipairs {flat, flare.zeros{8}:narrow(1, 2, 3), flare.zeros(3, 4):t()} do
      assert.error_matches(function() core.lend(bad, f) end, "contiguous tensor", 1, true)
    end
    assert.error_matches(function() core.stand_in(flare.zeros(2, 3), leaf) end, "a leaf of its",
      1, true)
    assert.error_matches(function() core.stand_in(flare.zeros(3, 2), flare.zeros(3, 2)) end,
      "a leaf of its", 1, true)
    assert.error_matches(function() core.stand_in(leaf, leaf) end, "a leaf of its", 1, true)
  end)

  it("is held as long as a tape leads to it", function()
    local w, leaf = lent()
    local y = flare.matmul(x, w:t())
    w:close()
    assert.is_true(core.held(leaf))
    y:close()
    flare.core.collect()
    assert.is_false(core.held(leaf))
  end)
end)
