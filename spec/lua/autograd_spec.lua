local core = require "flare.core"

local function values(x) return x:totable() end
local function leaf(list, dtype)
  return core.tensor(list, {dtype = dtype or "f64", requires_grad = true})
end

describe("backward", function()
  it("accumulates into leaves and maps them", function()
    local x, y = leaf{1, 2}, leaf{3, 4}
    local grads = (x * y):sum():backward()
    assert.same({3, 4}, values(x.grad))
    assert.same({1, 2}, values(grads[y]))
    assert.same({1, 2}, values(grads:get(y)))
    assert.is_nil(grads[core.zeros(1)])
    assert.error_matches(function() return grads[1] end, "expected a tensor");
    (x * 2):sum():backward()
    assert.same({5, 6}, values(x.grad))
    x:zero_grad()
    assert.is_nil(x.grad)
    x.grad = core.tensor({1, 1}, {dtype = "f64"})
    assert.same({1, 1}, values(x.grad))
    x.grad = nil
    assert.is_nil(x.grad)
    assert.has_error(function() x.grad = core.zeros(5) end)
    assert.has_error(function() x.grad = 5 end)
  end)

  it("takes gradients to start from", function()
    local x = leaf{1, 2};
    (x * x):backward(core.tensor({1, 10}, {dtype = "f64"}))
    assert.same({2, 40}, values(x.grad))
    x.grad = nil;
    (x * x):backward{gradient = core.tensor({1, 1}, {dtype = "f64"})}
    assert.same({2, 4}, values(x.grad))
    x.grad = nil
    core.backward({(x * 2):sum(), (x * 3):sum()})
    assert.same({5, 5}, values(x.grad))
    x.grad = nil
    core.backward({x * 2, (x * 3):sum()}, {gradient = {core.ones_like(x), false}})
    assert.same({5, 5}, values(x.grad))
    assert.error_matches(function() (x * 2):backward() end, "needs a gradient of that shape")
    assert.error_matches(function() (x * 2):backward{gradint = x} end, "did you mean 'gradient'")
    assert.error_matches(function() core.backward({1}) end, "expected a tensor")
  end)

  it("goes again when asked to, and says so when not", function()
    local x = leaf{1, 2}
    local y = (x * x):sum()
    y:backward{retain_graph = true}
    y:backward()
    assert.same({4, 8}, values(x.grad))
    assert.error_matches(function() y:backward() end, "a second time.*retain_graph")
  end)

  it("refuses tensors that have changed since, naming both lines", function()
    local x = leaf{1, 2}
    local y = x * 1
    local z = y * y
    y:add_(1)
    assert.error_matches(function() z:sum():backward() end,
                         "mul.*autograd_spec.*changed in place since, at .*autograd_spec")
  end)

  it("goes through a long chain", function()
    local x = leaf{1}
    local y = x
    for _ = 1, 100000 do y = y + 1 end
    y:sum():backward()
    assert.same({1}, values(x.grad))
  end)
end)

describe("grad", function()
  it("gives gradients without accumulating", function()
    local x, y = leaf{1, 2}, leaf{3, 4}
    local loss = (x * y * y):sum()
    local gx, gy = core.grad(loss, {x, y})
    assert.same({9, 16}, values(gx))
    assert.same({6, 16}, values(gy))
    assert.is_nil(x.grad)
    assert.error_matches(function() core.grad((x * 2):sum(), {x, y}) end, "no influence")
    local _, none = core.grad((x * 2):sum(), {x, y}, {allow_unused = true})
    assert.is_nil(none)
  end)

  it("can be differentiated again", function()
    local x = leaf{2, 3}
    local g = core.grad((x ^ 3):sum(), x, {create_graph = true})
    assert.same({12, 27}, values(g))
    local gg = core.grad(g:sum(), x, {create_graph = true})
    assert.same({12, 18}, values(gg))
    assert.same({6, 6}, values((core.grad(gg:sum(), x))))
    local y = leaf{2};
    (y ^ 3):sum():backward{create_graph = true}
    y.grad:sum():backward()
    assert.same({12 + 12}, values(y.grad))
  end)

  it("knows results in between", function()
    local x = leaf{2}
    local y = x * 3
    local z = (y * y):sum()
    assert.same({12}, values((core.grad(z, y))))
  end)
end)

describe("modes", function()
  it("switch recording off and on", function()
    local x = leaf{1}
    assert.is_true(core.grad_enabled())
    local y = core.no_grad(function(a) assert.is_false(core.grad_enabled()); return x * a end, 2)
    assert.is_false(y.requires_grad)
    do
      local _ <close> = core.no_grad()
      assert.is_false((x * 2).requires_grad)
      do
        local _ <close> = core.enable_grad()
        assert.is_true((x * 2).requires_grad)
      end
      assert.is_false((x * 2).requires_grad)
    end
    assert.is_true((x * 2).requires_grad)
    pcall(core.no_grad, error)
    assert.is_true(core.grad_enabled())
    local g = core.no_grad()
    g:close()
    g:close()
    assert.is_true(core.grad_enabled())
  end)

  it("run shapes only", function()
    local before = core.memory.stats().live
    local big = core.meta(function()
      return core.zeros(1 << 20, 1 << 20):matmul(core.zeros(1 << 20, 3))
    end)
    assert.equal("(1048576, 3)", tostring(big.shape))
    assert.equal(before, core.memory.stats().live)
    assert.error_matches(function() return big + 1 end, "meta mode")
  end)

  it("change the default device", function()
    assert.equal("cpu", core.device())
    assert.equal("sim:0", core.device("sim:0", function() return core.zeros(1).device end))
    assert.equal("cpu", core.zeros(1).device)
    core.device("sim:1")
    assert.equal("sim:1", core.rand(2).device)
    core.set_default_device("cpu")
    assert.equal("cpu", core.tensor{1}.device)
  end)

  it("find the first NaN", function()
    local ok, err = pcall(core.anomaly, function()
      return core.tensor{1, -1}:log():sum()
    end)
    assert.is_false(ok)
    assert.matches("log", err)
    assert.is_false(core.anomaly(false))
  end)
end)

describe("leaves", function()
  it("are what requires a gradient and has no history", function()
    local x = core.zeros(2)
    assert.is_true(x.is_leaf)
    assert.is_false(x.requires_grad)
    assert.is_true(rawequal(x, x:requires_grad_()))
    assert.is_true(x.requires_grad)
    x:requires_grad_(false)
    assert.is_false(x.requires_grad)
    x.requires_grad = true
    local y = x * 2
    assert.is_false(y.is_leaf)
    assert.equal("mul", y.grad_fn)
    assert.matches("autograd_spec.lua:%d+", y.site)
    assert.is_nil(x.grad_fn)
    assert.is_nil(x.site)
    assert.is_false(y:detach().requires_grad)
    assert.is_true(y:detach():shares(y))
    assert.matches("^#%d+ mul %(2%) .*autograd_spec.lua:%d+ saves %d: leaf %d+\n$", y:graph())
    assert.error_matches(function() core.arange(1):requires_grad_() end, "only floats")
    assert.error_matches(function() y.requires_grad = false end, "detach")
    y:retain_grad()
    y:sum():backward()
    assert.same({1, 1}, values(y.grad))
  end)
end)

describe("a graph's text", function()
  it("has a line for each node, each once, and no more than asked for", function()
    local w = core.ones(2, {requires_grad = true})
    local h = w:tanh()
    local y = (h * h + h:exp()):sum()
    local lines = {}
    for line in y:graph():gmatch "[^\n]+" do lines[#lines + 1] = line:match "^#%d+ (%S+)" end
    table.sort(lines)
    assert.same({"add", "exp", "mul", "sum", "tanh"}, lines)
    assert.equal(2, select(2, y:graph(2):gsub("\n", "\n")))
    assert.equal(1, select(2, y:graph(-5):gsub("\n", "\n")))
    assert.equal("", w:graph())
    assert.equal(2, w:view(1, 2):mul(2):trace():item()) -- a method of that name is an operator
  end)

  it("has room for long names", function()
    local name = ("long"):rep(3000)
    local f = core.custom(name, function(_, x) return x * 1 end, function(_, dy) return dy end)
    local w = core.ones(1, {requires_grad = true})
    local text = f(w):graph(1)
    assert.equal(name:sub(1, 60), text:match "^#%d+ (%S+) ")
    assert.is_true(#text < 600)
  end)
end)

describe("hooks", function()
  it("see gradients, may replace them, and go away", function()
    local x = leaf{1, 2}
    local seen = {}
    local h = x:register_hook(function(g) seen[#seen + 1] = values(g) end)
    local h2 = x:register_hook(function(g) return g * 10 end);
    (x * 2):sum():backward()
    assert.same({{2, 2}}, seen)
    assert.same({20, 20}, values(x.grad))
    h2:remove()
    h2:remove()
    x.grad = nil;
    (x * 2):sum():backward()
    assert.same({2, 2}, values(x.grad))
    h:remove();
    (x * 2):sum():backward()
    assert.equal(2, #seen)
  end)

  it("work inside the graph", function()
    local x = leaf{1, 2}
    local y = x * 3
    y:register_hook(function(g) return g + 1 end);
    (y * 2):sum():backward()
    assert.same({9, 9}, values(x.grad))
  end)

  it("are errors when they are no hooks or return nonsense", function()
    local x = leaf{1}
    assert.error_matches(function() core.zeros(1):register_hook(print) end, "requires a gradient")
    x:register_hook(function() return 5 end)
    assert.error_matches(function() (x * 1):sum():backward() end, "a hook returns a gradient")
  end)

  it("cannot yield, and may close what they hold", function()
    local x = leaf{1}
    x:register_hook(function() coroutine.yield() end)
    local co = coroutine.wrap(function() (x * 1):sum():backward() end)
    assert.error_matches(co, "yield")
    local y = leaf{1, 2}
    local z = y * 2
    local s = z:sum()
    y:register_hook(function() z:close() s:close() end)
    s:backward()
    assert.same({2, 2}, values(y.grad))
  end)
end)

describe("functions with gradients of their own", function()
  local square = core.func{
    name = "square",
    forward = function(ctx, x) ctx:save(x); return x * x end,
    backward = function(ctx, dy) return dy * 2 * ctx.saved[1] end,
  }

  it("are differentiated as told", function()
    local x = leaf{3, 4}
    local y = square(x)
    assert.equal("square", y.grad_fn)
    y:sum():backward()
    assert.same({6, 8}, values(x.grad))
    assert.is_false(core.no_grad(square, x).requires_grad)
    assert.same({9, 16}, values(square(x:detach())))
  end)

  it("may be differentiated twice if their backward can", function()
    local x = leaf{3}
    local g = core.grad(square(x):sum(), x, {create_graph = true})
    assert.same({2}, values((core.grad(g:sum(), x))))
  end)

  it("take other arguments and give several results", function()
    local f = core.custom("mix", function(ctx, a, n, b)
      ctx.n = n
      assert.same({true, false, true}, ctx.needs)
      return a * n, b + 1, "text"
    end, function(ctx, da, db)
      assert.is_nil(db)
      return da * ctx.n, nil, nil
    end)
    local a, b = leaf{1, 2}, leaf{3, 4}
    local u, v, w = f(a, 5, b)
    assert.equal("text", w)
    assert.is_true(v.requires_grad)
    u:sum():backward()
    assert.same({5, 5}, values(a.grad))
    assert.is_nil(b.grad)
  end)

  it("may return what they were given", function()
    local f = core.custom("same", function(_, x) return x end, function(_, dy) return dy * 2 end)
    local x = leaf{1, 2}
    f(x):sum():backward()
    assert.same({2, 2}, values(x.grad))
    f(x * 1):sum():backward()
    assert.same({4, 4}, values(x.grad))
  end)

  it("are errors when they are wrong", function()
    assert.error_matches(function() core.func{forward = print} end, "backward: expected a function")
    assert.error_matches(function() core.func{forwrd = print} end, "did you mean 'forward'")
    local x = leaf{1, 2}
    local f = core.custom("bad", function(_, t) return t * 1 end,
                          function() return core.zeros(3, {dtype = "f64"}) end)
    assert.error_matches(function() f(x):sum():backward() end,
                         "backward function of bad .*gave a gradient of shape %(3%) for input 1, "
                         .. "not %(2%)")
    f = core.custom("bad", function(_, t) return t * 1 end, function() return 5 end)
    assert.error_matches(function() f(x):sum():backward() end, "gradient 1 is not a tensor")
    f = core.custom("bad", function() error("on purpose") end, print)
    assert.error_matches(function() f(x) end, "on purpose")
    assert.is_true(core.grad_enabled())
    local y = x * 1
    local z = square(y)
    y:add_(1)
    assert.error_matches(function() z:sum():backward() end, "saved tensor 1 was changed in place")
  end)

  it("may go backward inside backward, over another graph", function()
    local f = core.custom("inner", function(ctx, x) ctx:save(x); return x * x end,
      function(ctx, dy)
        local t = ctx.saved[1]:detach():requires_grad_()
        core.enable_grad(function() (t * t):sum():backward() end)
        return t.grad * dy
      end)
    local x = leaf{3}
    f(x):sum():backward()
    assert.same({6}, values(x.grad))
  end)
end)

describe("checkpoint", function()
  it("computes again, with the same random numbers and gradients", function()
    local w = core.rand{8, 8, dtype = "f64", requires_grad = true}
    local x = core.rand{4, 8, dtype = "f64", requires_grad = true}
    local calls = 0
    local function block(t, scale)
      calls = calls + 1
      return (t:matmul(w) * scale):dropout(0.5):gelu()
    end
    core.manual_seed(3)
    local y = block(x, 2)
    y:sum():backward()
    local gx, gw = values(x.grad), values(w.grad)
    x.grad, w.grad = nil, nil
    core.manual_seed(3)
    local z = core.checkpoint(block, x, 2)
    assert.same(values(y), values(z))
    core.rand(5)
    local seed, offset = core.default_generator():state()
    z:sum():backward()
    assert.equal(3, calls)
    assert.same(gx, values(x.grad))
    assert.same(gw, values(w.grad))
    local seed2, offset2 = core.default_generator():state()
    assert.same({seed, offset}, {seed2, offset2})
  end)

  it("works where only the function's own tensors require gradients", function()
    local w = leaf{2}
    local x = core.tensor({3}, {dtype = "f64"})
    core.checkpoint(function(t) return t * w end, x):sum():backward()
    assert.same({3}, values(w.grad))
    assert.is_false(core.no_grad(core.checkpoint, function(t) return t * w end, x).requires_grad)
  end)

  it("shares leaves with code outside", function()
    local w = leaf{2}
    local y = core.checkpoint(function(t) return t * w * w end, w * 3) * w
    y:sum():backward() -- 3 w^4
    assert.same({12 * 8}, values(w.grad))
    w.grad = nil
    y = w * core.checkpoint(function(t) return t * w end, w) + w * 5 -- w^3 + 5w
    y:sum():backward()
    assert.same({3 * 4 + 5}, values(w.grad))
  end)

  it("passes errors through and other values by", function()
    local x = leaf{1}
    local y, s = core.checkpoint(function(t) return t * 2, "more" end, x)
    assert.equal("more", s)
    y:sum():backward()
    assert.error_matches(function() core.checkpoint(error, "on purpose") end, "on purpose")
  end)
end)
