-- What the tape promises beyond single rows: how gradients add up, hooks, functions of one's own,
-- second derivatives of whole models, recomputation, and what is refused by name.
local flare = require "flare"
local gradcheck = require "flare.gradcheck"
local nn = require "flare.nn"

local function leaf(list, dtype)
  return flare.tensor(list, {dtype = dtype or "f64", requires_grad = true})
end

local function fixed(...)
  return flare.randn({...}, {dtype = "f64", generator = flare.generator(3)})
end

-- The line this is called from, as messages write it.
local function here(offset)
  local info = debug.getinfo(2, "Sl")
  return ("autograd_spec.lua:%d"):format(info.currentline + (offset or 0))
end

describe("gradients add up", function()
  it("where a tensor is used again", function()
    local x = leaf{1, 2}
    local y = x * 3
    (y * y + y * x + x):sum():backward() -- 9x^2 + 3x^2 + x
    assert.same({25, 49}, x.grad:tolist())
  end)

  it("over the ways of a diamond, once each", function()
    local x, runs = leaf{2}, 0
    local y = x * x
    y:register_hook(function() runs = runs + 1 end)
    local z = y
    for _ = 1, 40 do z = z + z end -- 2^40 ways through 40 operations
    z:sum():backward()
    assert.equal(1, runs)
    assert.same({4 * 2.0 ^ 40}, x.grad:tolist())
  end)

  it("in the dtype and shape of the leaf", function()
    local x = flare.ones(3, {dtype = "bf16", requires_grad = true})
    local w = flare.ones(1, {dtype = "f32", requires_grad = true})
    local y = (x:to("f64") * w * flare.ones({4, 3}, {dtype = "f64"})):sum()
    y:backward()
    assert.equal("bf16", x.grad.dtype)
    assert.same({4, 4, 4}, x.grad:tolist())
    assert.equal("f32", w.grad.dtype)
    assert.same({12}, w.grad:tolist())
  end)

  it("across devices", function()
    local x = leaf{1, 2};
    (x:to("sim:0") * 3):sum():to("cpu"):backward();
    (x:to("sim:1") * x:to("sim:1")):sum():backward()
    assert.equal("cpu", x.grad.device)
    assert.same({5, 7}, x.grad:tolist())
  end)

  it("without sharing memory", function()
    local a, b = leaf{1, 2}, leaf{3, 4};
    (a + b):backward(flare.ones(2, {dtype = "f64"}))
    a.grad:mul_(10)
    assert.same({1, 1}, b.grad:tolist())
    local seed = flare.ones(2, {dtype = "f64"})
    local c = leaf{5, 6};
    (c + 0):backward(seed)
    c.grad:mul_(10)
    assert.same({1, 1}, seed:tolist())
    local d, e = leaf{1, 2}, leaf{3, 4} -- also where they can be differentiated
    local y = d + e
    y:retain_grad()
    y:sum():backward{create_graph = true}
    flare.no_grad(function()
      for k, t in ipairs {y, d, e} do t.grad:mul_(10 * k) end
    end)
    for k, t in ipairs {y, d, e} do assert.same({10 * k, 10 * k}, t.grad:tolist()) end
  end)

  it("over several passes, until they are taken away", function()
    local x = leaf{1, 2}
    for _ = 1, 3 do (x * 2):sum():backward() end
    assert.same({6, 6}, x.grad:tolist())
    x:zero_grad()
    local given = flare.grad((x * 5):sum(), x)
    assert.same({5, 5}, given:tolist())
    assert.is_nil(x.grad)
  end)

  it("of roots that are the same, or leaves themselves", function()
    local x, one = leaf{1, 2}, flare.ones(2, {dtype = "f64"})
    local y = x * 3
    assert.same({2, 2}, (flare.grad({x, x}, x, {gradient = {one, one}})):tolist())
    assert.same({6, 6}, (flare.grad({y, y}, x, {gradient = {one, one},
      retain_graph = true})):tolist())
    local a, b = flare.grad({x, y}, {x, x}, {gradient = {one, one}})
    assert.same({4, 4}, a:tolist())
    assert.same({4, 4}, b:tolist())
  end)
end)

describe("the gradient map", function()
  it("has the leaves that were reached", function()
    local x, y, z = leaf{1, 2}, leaf{3, 4}, leaf{5, 6}
    local grads = (x * y):sum():backward()
    assert.same({3, 4}, grads[x]:tolist())
    assert.same({1, 2}, grads:get(y):tolist())
    assert.is_nil(grads[z])
  end)

  it("identifies the tensor, not its handle", function()
    local layer = nn.Linear(2, 2)
    local grads = layer(flare.ones(1, 2)):sum():backward()
    for _, p in ipairs(layer:parameters()) do assert.is_true(grads[p] == p.grad) end
  end)
end)

describe("hooks", function()
  it("see a whole gradient once, in the order they came", function()
    local x, seen = leaf{1, 2}, {}
    local y = x * 2
    y:register_hook(function(g) seen[#seen + 1] = {1, g:tolist()} end)
    y:register_hook(function(g)
      seen[#seen + 1] = {2, g:tolist()}
      return g * 10
    end)
    y:register_hook(function(g) seen[#seen + 1] = {3, g:tolist()} end);
    (y + y * 3):sum():backward()
    assert.same({{1, {4, 4}}, {2, {4, 4}}, {3, {40, 40}}}, seen)
    assert.same({80, 80}, x.grad:tolist())
  end)

  it("change what retain_grad keeps, before or after it", function()
    local x = leaf{1}
    local y = x * 2
    y:retain_grad()
    y:register_hook(function(g) return g * 5 end);
    (y * 3):sum():backward()
    assert.same({15}, y.grad:tolist())
    assert.same({30}, x.grad:tolist())
  end)

  it("run in flare.grad, and under create_graph are differentiated", function()
    local x, on = leaf{3}, true
    local y = x * x
    y:register_hook(function(g) return on and g * x or nil end)
    local g = flare.grad((y * y):sum(), x, {create_graph = true}) -- 2 x^2 x 2x = 4 x^4
    assert.same({4 * 81}, g:tolist())
    on = false -- it would run again where the second pass meets y
    assert.same({16 * 27}, (flare.grad(g:sum(), x)):tolist())
  end)

  it("that fail end the pass with their message, and the next one works", function()
    local x, on = leaf{1, 2}, true
    local y = x * 2
    y:register_hook(function() if on then error("a hook failed") end end)
    local z = (y * y):sum()
    assert.error_matches(function() z:backward{retain_graph = true} end, "a hook failed")
    assert.is_nil(x.grad)
    on = false
    z:backward()
    assert.same({8, 16}, x.grad:tolist())
  end)
end)

describe("second derivatives", function()
  it("of a model are those by differences", function()
    local w1, b1, w2 = fixed(5, 3), fixed(5), fixed(2, 5)
    local target = flare.tensor({1, 2, 2, 1}, {dtype = "i64"})
    local function f(x, a, b, c)
      local h = flare.linear(x, a, b, {act = "gelu"})
      h = flare.layer_norm(h)
      return flare.cross_entropy(flare.linear(h, c), target)
    end
    local inputs = {fixed(4, 3), w1, b1, w2}
    assert(gradcheck.gradcheck(f, inputs, {1, 2, 3, 4}))
    assert(gradcheck.gradgradcheck(f, inputs, {1, 2, 3, 4}))
  end)

  it("give a Hessian times a vector", function()
    local x, v = leaf{1, 2, 3}, flare.tensor({1, 0, -1}, {dtype = "f64"})
    local y = (x ^ 3):sum() + x[1] * x[2] * x[3]
    local g = flare.grad(y, x, {create_graph = true})
    local hv = flare.grad((g * v):sum(), x)
    assert.same({6 - 2, 3 * 1 - 1 * 1, 2 - 18}, hv:tolist())
  end)

  it("go on to higher orders by ordinary operators", function()
    local x, orders = leaf{1.5}, {}
    local y = x * x * x * x
    for n = 1, 4 do
      y = flare.grad(y:sum(), x, {create_graph = true})
      orders[n] = y:item()
    end
    assert.same({4 * 1.5 ^ 3, 12 * 1.5 ^ 2, 24 * 1.5, 24}, orders)
  end)

  it("of a norm of gradients train a parameter", function()
    local w, x = leaf{0.5, -1}, leaf{2, 3}
    local out = ((w * x):sum()):tanh()
    local g = flare.grad(out, x, {create_graph = true});
    (g * g):sum():backward()
    local function penalty(a, b)
      local t = 1 - 2 / (math.exp(2 * (a * 2 + b * 3)) + 1) -- tanh
      return (1 - t * t) ^ 2 * (a * a + b * b)
    end
    local eps = 1e-6
    local slope = (penalty(0.5 + eps, -1) - penalty(0.5 - eps, -1)) / (2 * eps)
    assert.near(slope, w.grad:tolist()[1], 1e-5)
  end)
end)

describe("functions of one's own", function()
  local sine = flare.func{
    name = "sine",
    forward = function(ctx, x, by)
      ctx:save(x)
      ctx.by = by
      return (x * by):sin()
    end,
    backward = function(ctx, dy) return dy * ctx.by * (ctx.saved[1] * ctx.by):cos() end,
  }

  it("have gradients of both orders like any row", function()
    local function f(x) return sine(x, 1.5) end
    assert(gradcheck.gradcheck(f, {fixed(3)}, {1}))
    assert(gradcheck.gradgradcheck(f, {fixed(3)}, {1}))
  end)

  it("work between rows, in place and through views", function()
    local x = leaf{0.1, 0.2, 0.3}
    local y = x * 2
    y[{{1, 2}}] = sine((x * 2)[{{2, 3}}], 1)
    y:sum():backward()
    local got = x.grad:tolist()
    assert.near(0, got[1], 1e-12)
    assert.near(2 * math.cos(0.4), got[2], 1e-12)
    assert.near(2 + 2 * math.cos(0.6), got[3], 1e-12)
  end)
end)

describe("a backward function", function()
  local function of(...)
    local list = table.pack(...)
    return flare.func{
      forward = function(_, x, w) return x * w end,
      backward = function() return table.unpack(list, 1, list.n) end,
    }
  end

  it("gives a gradient for each tensor that came", function()
    local x, one = leaf{2}, leaf{1}:detach()
    for n, f in pairs{[0] = of(), of(one), [3] = of(one, one, one)} do
      assert.error_matches(function() f(x, x):backward() end,
        "gave " .. n .. " gradients for 2 arguments: it returns one for each, nil where")
    end
    of(one, nil)(x, x):backward()
    assert.same({1}, x.grad:tolist())
    x.grad = nil
    of(one)(x, 3):backward()
    assert.same({1}, x.grad:tolist())
  end)
end)

describe("the check of gradients", function()
  local function wrong(forward, backward)
    return flare.func{name = "wrong", forward = forward, backward = backward}
  end
  local function save(ctx, x)
    ctx:save(x)
    return x * x * x
  end

  it("notices a wrong first derivative", function()
    local f = wrong(save, function(ctx, dy) return dy * 2.99 * ctx.saved[1] ^ 2 end)
    local ok, why = gradcheck.gradcheck(f, {fixed(3)}, {1})
    assert.is_nil(ok)
    assert.matches("by the rule, .- by differences", why)
    assert.is_nil(gradcheck.gradcheck(f, {fixed(10, 10)}, {1})) -- by random directions, too
  end)

  it("notices a wrong or missing second derivative", function()
    local f = wrong(save, function(ctx, dy)
      local x = ctx.saved[1]
      return dy * 3 * x * x:detach()
    end)
    assert(gradcheck.gradcheck(f, {fixed(3)}, {1}))
    assert.is_nil(gradcheck.gradgradcheck(f, {fixed(3)}, {1}))
    f = wrong(save, function(ctx, dy) return (dy * 3 * ctx.saved[1] ^ 2):detach() end)
    assert.is_nil(gradcheck.gradgradcheck(f, {fixed(3)}, {1}))
    f = wrong(save, function(ctx, dy) return dy:detach() * 3 * ctx.saved[1] ^ 2 end)
    assert.is_nil(gradcheck.gradgradcheck(f, {fixed(3)}, {1}))
  end)
end)

describe("recomputation", function()
  -- Twelve blocks with dropout; the sum of squares of what they give.
  local function build(wrap)
    flare.manual_seed(5)
    local blocks = {}
    for n = 1, 12 do
      blocks[n] = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(128, 32))
    end
    local x = flare.randn{16, 32}
    flare.manual_seed(6)
    local y = x
    for n = 1, 12 do y = y + (wrap and flare.checkpoint(blocks[n], y) or blocks[n](y)) end
    return y:square():sum(), blocks
  end

  local function bits(blocks)
    local list = {}
    for _, block in ipairs(blocks) do
      for _, p in ipairs(block:parameters()) do list[#list + 1] = p.grad:reshape(-1):tolist() end
    end
    return list
  end

  it("gives the same gradients bit for bit", function()
    local plain, a = build(false)
    plain:backward()
    local again, b = build(true)
    again:backward()
    assert.equal(plain:item(), again:item())
    assert.same(bits(a), bits(b))
  end)

  it("sees tensors in tables, and leaves other tables alone", function()
    local function both(call)
      local x, w = flare.tensor({1, 2}, {requires_grad = true}), flare.tensor{3, 5}
      w:requires_grad_(true)
      local options, told = {}, nil
      local y, rest = call(function(t, o, none)
        o.seen, told = true, none
        return {sum = t[1] * w, [1] = {t.deep.x:square(), 7}, o = o}, "more"
      end, {x * 2, deep = {x = x + 1}}, options, nil)
      assert.is_nil(told)
      assert.equal("more", rest)
      assert.is_true(options.seen and rawequal(options, y.o))
      assert.equal(7, y[1][2]);
      (y.sum + y[1][1] * 3):sum():backward()
      return {y.sum:tolist(), y[1][1]:tolist(), x.grad:tolist(), w.grad:tolist()}
    end
    assert.same(both(function(f, ...) return f(...) end), both(flare.checkpoint))
    assert.error_matches(function() flare.checkpoint(3) end,
      "checkpoint: expected a function or a module, got an integer", 1, true)
  end)

  it("is in autocast where the first time was", function()
    local function both(wrap)
      local loss, blocks = flare.autocast("bf16", build, wrap)
      loss:backward()
      return bits(blocks)
    end
    local a, b = both(false), both(true)
    assert.same(a, b)
    assert.not_same(a, (function()
      local loss, blocks = build(false)
      loss:backward()
      return bits(blocks)
    end)())
  end)

  it("saves memory three times over", function()
    local function held(wrap)
      collectgarbage()
      collectgarbage()
      local before = flare.memory.stats().live
      local loss, blocks = build(wrap)
      local own = 0
      for _, block in ipairs(blocks) do
        for _, p in ipairs(block:parameters()) do own = own + p:nbytes() end
      end
      collectgarbage()
      collectgarbage()
      local after = flare.memory.stats().live
      assert(loss)
      return after - before - own
    end
    local plain, wrapped = held(false), held(true)
    assert.is_true(plain >= 3 * wrapped, ("%d and %d bytes"):format(plain, wrapped))
  end)
end)

describe("what cannot be", function()
  it("is going again without retain_graph", function()
    local x = leaf{1, 2}
    local line = here(1)
    local y = (x * x):sum()
    y:backward{retain_graph = true}
    y:backward{retain_graph = true}
    y:backward()
    assert.same({6, 12}, x.grad:tolist())
    assert.error_matches(function() y:backward() end,
      "backward through mul %(.-" .. line .. "%) a second time.-retain_graph = true")
    assert.has_error(function() flare.grad(y, x) end)
    local z = (x + 1):sum() -- saves nothing, so that it may
    z:backward()
    z:backward()
  end)

  it("is going backward inside backward over the same graph", function()
    local x = leaf{1}
    local y = x * x
    local z = (y * 2):sum()
    y:register_hook(function() flare.enable_grad(z.backward, z) end)
    assert.error_matches(function() z:backward() end,
      "backward inside backward over the same graph: .- at .-autograd_spec.lua")
    -- over another graph it may be
    local a = leaf{2}
    local b = a * a
    b:register_hook(function()
      flare.enable_grad(function() (leaf{3} * 2):sum():backward() end)
    end)
    b:sum():backward()
    assert.same({4}, a.grad:tolist())
  end)

  it("is a gradient of what does not depend on it", function()
    local x, y = leaf{1}, leaf{2}
    assert.error_matches(function() flare.grad((x * 2):sum(), y) end, "no influence.-allow_unused")
    assert.is_nil((flare.grad((x * 2):sum(), y, {allow_unused = true})))
    assert.error_matches(function() flare.ones(1):backward() end, "does not depend on anything")
    assert.error_matches(function() (x:detach() * 2):backward() end, "does not depend on anything")
    assert.error_matches(function() flare.no_grad(function() return x * 2 end):backward() end,
      "does not depend on anything")
  end)

  it("is starting from more than one number without saying from what", function()
    local x = leaf{1, 2}
    assert.error_matches(function() (x * 2):backward() end, "needs a gradient of that shape")
    assert.error_matches(function() (x * 2):backward(flare.ones(3, {dtype = "f64"})) end,
      "the gradient has shape %(3%), the tensor %(2%)")
  end)
end)

describe("no_grad and detach", function()
  it("cut a graph where they stand", function()
    local x = leaf{2}
    local y = x * x
    local z = flare.no_grad(function() return y * 5 end)
    assert.is_false(z.requires_grad);
    (y * z + y:detach() * x):sum():backward() -- 20 x^2 + 4 x
    assert.same({84}, x.grad:tolist())
  end)

  it("end with their scope, after errors too", function()
    local x = leaf{1}
    pcall(flare.no_grad, function() error "on purpose" end)
    assert.is_true((x * 2).requires_grad)
    local co = coroutine.wrap(function()
      local _ <close> = flare.no_grad()
      error "inside"
    end)
    pcall(co)
    collectgarbage()
    assert.is_boolean(flare.grad_enabled())
  end)
end)

describe("a chain of 10^5 operations", function()
  it("goes backward and is given back", function()
    local x = leaf{1, 2}
    local y = x
    for n = 1, 100000 do y = n % 2 == 0 and -y or y + 1 end
    y:sum():backward()
    assert.same({1, 1}, x.grad:tolist())
    y = x
    for _ = 1, 100000 do y = y * 1 end
    y = nil -- never run: freeing must not recurse either
    collectgarbage()
    assert.is_nil(y)
  end)
end)
