-- What hooks and backward functions give is checked before it becomes a gradient.
local flare = require "flare"

local function leaf(dtype) return flare.ones(3, {requires_grad = true, dtype = dtype}) end

-- Wrong gradients for a leaf of three f32 on the CPU, and what the message names.
local wrong = {
  i64 = {function(g) return g:to "i64" end, "of dtype i64%s, not f32"},
  bool = {function(g) return g:ne(0) end, "of dtype bool%s, not f32"},
  c64 = {function(g) return g:to "c64" end, "of dtype c64%s, not f32"},
  device = {function(g) return g:to "sim:0" end, "on sim:0%s, not cpu"},
  shape = {function(g) return g:sum() end, "of shape %%(%%)%s, not %%(3%%)"},
}

describe("a hook", function()
  for name, case in pairs(wrong) do
    it("cannot give a gradient of another " .. name, function()
      local x, y = leaf(), leaf()
      local line = debug.getinfo(1, "l").currentline + 1
      x:register_hook(function(g) return case[1](g) end)
      assert.error_matches(function() (x * 2):sum():backward() end,
        "a hook %(.*hooks_spec.lua:" .. line .. "%) gave a gradient "
        .. case[2]:format "")
      assert.is_nil(x.grad)
      local z = y * 2 -- of a result
      z:register_hook(function(g) return case[1](g) end)
      assert.error_matches(function() z:sum():backward() end,
        "gave a gradient " .. case[2]:format "")
      assert.is_nil(y.grad)
    end)
  end

  it("cannot give a float of another width", function()
    local x = leaf()
    x:register_hook(function(g) return g:to "f64" end)
    assert.error_matches(function() x:sum():backward() end, "of dtype f64, not f32")
  end)

  it("may remove itself and those after it", function()
    local x, log, hooks = leaf(), {}, {}
    for k = 1, 3 do
      hooks[k] = x:register_hook(function()
        log[#log + 1] = k
        for i = 1, 3 do hooks[i]:remove() end
        collectgarbage()
      end)
    end
    x:sum():backward()
    x:sum():backward()
    assert.same({1}, log)
    assert.same({2, 2, 2}, x.grad:totable())
  end)
end)

describe("a backward function", function()
  for name, case in pairs(wrong) do
    it("cannot give a gradient of another " .. name, function()
      local x = leaf()
      local line = debug.getinfo(1, "l").currentline + 3
      local f = flare.func{name = "wrong", forward = function(_, a) return a * 2 end,
        -- here:
        backward = function(_, g) return case[1](g) end}
      for _, input in ipairs{x, x * 1} do
        local y = f(input):sum()
        assert.error_matches(function() y:backward() end,
          "the backward function of wrong %(.*hooks_spec.lua:" .. line .. "%) gave a gradient "
          .. case[2]:format " for input 1")
      end
      assert.is_nil(x.grad)
    end)
  end

  it("may give a float of another width, which is converted", function()
    local x, y = leaf(), leaf "f64"
    local f = flare.func{name = "wide", forward = function(_, a, b)
      return a:to "f64" * b
    end, backward = function(_, g) return g, g:to "f32" end}
    f(x, y):sum():backward()
    assert.equal("f32", x.grad.dtype)
    assert.equal("f64", y.grad.dtype)
  end)
end)

describe("x.grad = g", function()
  it("refuses another dtype and another device", function()
    local x = leaf()
    assert.error_matches(function() x.grad = flare.ones(3, {dtype = "i64"}) end, "cannot be i64")
    assert.error_matches(function() x.grad = flare.ones(3, {dtype = "c64"}) end, "cannot be c64")
    assert.error_matches(function() x.grad = flare.ones(3, {device = "sim:0"}) end, "device")
    assert.error_matches(function() x.grad = flare.ones(3, {dtype = "f64"}) end, "cannot be f64")
    assert.error_matches(function() x.grad = flare.ones(3, {dtype = "bf16"}) end, "cannot be bf16")
  end)

  it("takes f32 for 16 bits, so that small gradients add up", function()
    local x = flare.ones(3, {dtype = "bf16", requires_grad = true})
    x.grad = flare.zeros(3)
    for _ = 1, 300 do (x * 1):sum():backward() end
    assert.same({"f32", 300}, {x.grad.dtype, x.grad[1]:item()})
  end)
end)
