-- A new implementation of an operator beside the old one: what is compared, what the script gets,
-- and what is kept.
local flare = require "flare"
local message = require "spec.support.expect".message

local library = (os.getenv "FLARE_BUILD" or "build") .. "/spec/op_module.so"

local function cube(name, more)
  local o = {name = name, signature = "x:float, by:real=1 -> y:x",
             expression = "y = x * x * x * by"}
  for key, value in pairs(more or {}) do o[key] = value end
  return flare.op.register(o)
end

describe("the shadow of an operator", function()
  it("gives the old results, and finds the greatest error and where it was", function()
    local f = cube "shadow_a"
    local found = flare.op.find "shadow_a"
    local s <close> = flare.op.shadow("shadow_a", {expression = "y = x * x * x * by + x / 8"})
    assert.same({1, 8}, f(flare.tensor {1, 2}):totable())
    assert.equal(0.25 / 8, s.error) -- at 2: 8 for 8.25
    assert.same({16}, found(flare.tensor {2}, {by = 2}):totable())
    assert.equal(0.25 / 8, s.error) -- 16 for 16.25 is less
    f(flare.tensor {{-1, 0.5, -4}}) -- -64 for -64.5
    found(flare.tensor {0.5}) local line = debug.getinfo(1, "l").currentline
    assert.equal(0.5, s.error) -- 0.125 for 0.1875
    assert.same({4, 0}, {s.calls, s.failures})
    assert.truthy(tostring(s):find(("at most 0.5 of the largest value (%s:%d, on f32 (1) cpu)")
      :format(debug.getinfo(1, "S").short_src, line), 1, true), tostring(s))
    assert.is_nil(s.gradient_error)
  end)

  it("compares gradients where there are some, and leaves the script's own alone", function()
    local f = cube "shadow_b"
    local s <close> = flare.op.shadow("shadow_b",
      {expression = "y = x * x * x * by", gradient = "gx = gy * x * x * 6 * by"})
    f(flare.ones(3))
    assert.is_nil(s.gradient_error)
    local x = flare.tensor({1, 2}, {requires_grad = true})
    f(x):sum():backward()
    assert.same({3, 12}, x.grad:totable())
    assert.same({0, 1}, {s.error, s.gradient_error}) -- twice as large
  end)

  it("counts what fails and what does not fit, and goes on", function()
    local f = cube "shadow_c"
    local calls = 0
    local s <close> = flare.op.shadow("shadow_c", function(x)
      calls = calls + 1
      if calls == 1 then error("not today", 0) end
      if calls == 2 then return x:sum() end
      if calls == 3 then return nil end
      return calls == 4 and x:to "f64" or x * (0 / 0)
    end)
    for k = 1, 5 do
      assert.same({8, 1}, f(flare.tensor {2, 1}):totable())
      assert.same({k, math.min(k, 4)}, {s.calls, s.failures})
    end
    assert.equal("not today", s.problem)
    assert.equal(math.huge, s.error)
    -- the old one's error is the script's
    assert.match("shadow_c: x: expected a tensor, got no value", message(f))
    assert.equal(5, s.calls)
  end)

  it("takes NaN and infinity on both sides for equal", function()
    local f = cube "shadow_d"
    local s <close> = flare.op.shadow("shadow_d", {expression = "y = by * x * x * x"})
    f(flare.tensor {0 / 0, 1 / 0, -1 / 0, 2})
    f(flare.zeros(0))
    assert.same({0, 0}, {s.error, s.failures})
  end)

  it("gives both the same random numbers, and the script those of one", function()
    local noise = cube "shadow_noise"
    local s <close> = flare.op.shadow("shadow_noise", function(x) return x + flare.rand(2) end)
    flare.manual_seed(5)
    local expected = flare.rand(2):totable()
    flare.manual_seed(5)
    noise(flare.ones(2))
    assert.same(expected, flare.rand(2):totable())
    s:back()
    local old <close> = flare.op.shadow("shadow_noise", function(x) return x + flare.rand(2) end)
    old:keep()
    local again <close> = flare.op.shadow("shadow_noise", function(x) return x + flare.rand(2) end)
    for _ = 1, 3 do noise(flare.ones(2)) end
    assert.same({3, 0, 0}, {again.calls, again.error, again.failures})
  end)

  it("keeps the new one, also for functions that a script holds", function()
    local f = cube "shadow_e"
    local s = flare.op.shadow("shadow_e", {expression = "y = x + by"})
    assert.same({8}, f(flare.tensor {2}):totable())
    assert.equal(s, s:keep())
    assert.same({3}, f(flare.tensor {2}):totable())
    assert.same({7}, flare.op.find "shadow_e"(flare.tensor {2}, {by = 5}):totable())
    assert.equal("x:float, by:real=1 -> y:x", flare.op.info "shadow_e".signature)
    -- a function may be the new one, and have a shadow in turn
    flare.op.shadow("shadow_e", function(x) return f(x) * 10 end):keep()
    local t = flare.op.shadow("shadow_e", {expression = "y = x"})
    assert.same({30}, f(flare.tensor {2}):totable())
    assert.same({1, 0}, {t.calls, t.failures})
    t:back()
    assert.same({30}, f(flare.tensor {2}):totable())
  end)

  it("goes back, at the end of its block too", function()
    local f = cube "shadow_f"
    do
      local s <close> = flare.op.shadow("shadow_f", {expression = "y = x"})
      f(flare.ones(1))
      assert.equal(1, s.calls)
    end
    local s = flare.op.shadow("shadow_f", {expression = "y = x"})
    assert.equal(s, s:back())
    assert.same({8}, f(flare.tensor {2}):totable())
    assert.equal(0, s.calls)
    assert.match("the shadow of shadow_f has ended: the old one was kept", message(s.keep, s))
    assert.same({27}, cube("shadow_f")(flare.tensor {3}):totable())
  end)

  it("compares a function of a library with an expression", function()
    flare.op.register {name = "outside_plain_backward", library = library,
      symbol = "scale_backward", signature = "x:float, y:float, dy:float, by:real=2 -> dx:x"}
    local scale = flare.op.register {name = "outside_shadowed", library = library, symbol = "scale",
      signature = "x:float, by:real=2 -> y:x", init = "scale_init",
      backward = "outside_plain_backward"}
    local s <close> = flare.op.shadow("outside_shadowed", {expression = "y = x * by + 1"})
    local x = flare.tensor({1, 2, 3}, {requires_grad = true})
    assert.same({6, 11, 16}, scale(x, {by = 5}):totable())
    assert.same({1, 0, 0, 0}, {s.calls, s.error, s.gradient_error, s.failures})
  end)

  it("works in compiled functions, and says where it cannot", function()
    local f = cube "shadow_g"
    local s <close> = flare.op.shadow("shadow_g", {expression = "y = x"})
    local g = flare.compile(function(x) return f(x + 1):sum() end)
    for _ = 1, 3 do assert.equal(8, g(flare.tensor {1}):item()) end
    assert.same({3, 0.75, 0}, {s.calls, s.error, s.failures})
    local pure = flare.compile(function(x) return f(x + 1):sum() end, {pure = true})
    for _ = 1, 3 do assert.equal(8, pure(flare.tensor {1}):item()) end
    assert.match("compiled with {pure = true}", s.problem)
    assert.equal(3, s.calls)
  end)

  it("is refused where something is wrong", function()
    local f = cube "shadow_h"
    local function refused(why, ...)
      local got = message(flare.op.shadow, ...)
      assert.truthy(got:find(why, 1, true), got)
    end
    refused("op.shadow: there is no operator 'shadow_hh' (did you mean 'shadow_h'?)", "shadow_hh",
            {})
    refused("softmax is an operator of flare's", "softmax", {})
    refused("the name of a registered operator is expected, got function: 'shadow_h'", f, {})
    refused("must be a function or a table of options as for op.register, got string", "shadow_h",
            "y = x")
    refused("the new implementation has the name other, the operator is shadow_h", "shadow_h",
            {name = "other", expression = "y = x"})
    refused("the new shadow_h has the signature 'x:float -> y:x', the old one 'x:float, by:real=1 "
            .. "-> y:x'", "shadow_h", {signature = "x:float -> y:x", expression = "y = x"})
    refused("op.shadow: unknown option 'expresion' (did you mean 'expression'?)", "shadow_h",
            {expresion = "y = x"})
    local s <close> = flare.op.shadow("shadow_h", {expression = "y = x"})
    refused("shadow_h has a shadow already", "shadow_h", {expression = "y = x"})
    assert.match("shadow_h has a shadow: end it by its :keep", message(cube, "shadow_h"))
    assert.equal(0, s.calls)
  end)
end)
