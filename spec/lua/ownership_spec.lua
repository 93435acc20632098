-- Lua functions on the tape: what keeps them alive, and that nothing keeps them too long.
local core = require "flare.core"

local function settle()
  core.collect()
  collectgarbage()
  collectgarbage()
  return core.tensors(), collectgarbage "count"
end

local function registry_size()
  local n = 0
  for _ in pairs(debug.getregistry()) do n = n + 1 end
  return n
end

local triple = core.custom("triple", function(ctx, x) ctx:save(x) return x * 3 end,
                           function(_, dy) return dy * 3 end)

describe("functions on the tape", function()
  it("live as long as a result does", function()
    local w = core.ones(2, {requires_grad = true})
    local loss
    do
      local y = triple(w)
      local z = y + 1
      z:register_hook(function(g) return g * 2 end)
      loss = (z * z):sum()
    end
    settle()
    loss:backward()
    assert.same({2 * 2 * 4 * 3, 48}, w.grad:totable())
  end)

  it("are inherited through every kind of operation", function()
    local w = core.ones(4, {requires_grad = true})
    local ways = {
      function(y) return y:view(2, 2) end,
      function(y) return y[{{1, 4}}] end,
      function(y) return y:reshape(2, 2):t():contiguous() end,
      function(y) return core.cat({y, core.zeros(4)}) end,
      function(y) return core.stack(y, y) end,
      function(y) return y:to("f64") end,
      function(y) local z = core.zeros(4); z:add_(y); return z end,
      function(y) local z = core.zeros(2, 4); z[1] = y; return z end,
      function(y) local z = core.zeros(2, 4); z[2]:copy_(y); return z end,
      function(y) local z = core.zeros(8); z:narrow(1, 3, 4):copy_(y); return z:clone() end,
      function(y) local z = core.zeros(4, 2); z:t():select(1, 2):copy_(y); return z end,
      function(y) return y:sort() end,
      function(y) return (y:max(1)) * 4 end,
      function(y) return y:split(2)[1]:sum() * 2 end,
      function(y) return y.T * 1 end,
      function(y) return core.where(core.tensor{true, true, true, true}, y, 0) end,
    }
    for i, way in ipairs(ways) do
      w.grad = nil
      local z = way(triple(w))
      assert.equal("userdata", type(z), i)
      local loss = z:sum()
      settle()
      local ok, err = pcall(loss.backward, loss)
      assert.is_true(ok, ("way %d: %s"):format(i, err))
      assert.is_truthy(w.grad, i)
      assert.is_true(w.grad:sum():item() >= 12, i)
    end
  end)

  it("of two graphs go together", function()
    local a, b = core.ones(2, {requires_grad = true}), core.ones(2, {requires_grad = true})
    local loss = (triple(a) * triple(b) + triple(a)):sum()
    settle()
    loss:backward()
    assert.same({9 + 3, 12}, a.grad:totable())
    assert.same({9, 9}, b.grad:totable())
  end)

  it("live with what a view of a tensor was written to, however it was made", function()
    for _, way in ipairs{"view", "reshape"} do
      local w, x = core.ones(6, {requires_grad = true}), core.ones(2, 3)
      do
        local y = x[way](x, {6})
        y:mul_(triple(w))
      end
      settle()
      x:sum():backward()
      assert.same({3, 3, 3, 3, 3, 3}, w.grad:totable(), way)
    end
  end)

  it("are an error when they are gone", function()
    local w = core.ones(2, {requires_grad = true})
    local loss
    do
      local y = w * 2
      loss = y:sum()
      y:register_hook(function() end)
    end
    settle()
    assert.error_matches(function() loss:backward() end, "a hook is gone")
  end)

  it("go node by node with backward", function()
    local w = core.ones(2, {requires_grad = true})
    local seen = setmetatable({}, {__mode = "k"})
    local function build()
      local key = {}
      seen[key] = true
      local f = core.custom("f", function(_, x) return x * 1 end,
                            function(_, dy) return key and dy end)
      return f(w):sum()
    end
    local loss = build()
    settle()
    assert.is_truthy(next(seen))
    loss:backward()
    settle()
    assert.is_nil(next(seen))
    assert.is_truthy(loss)
  end)

  it("stay with retain_graph", function()
    local w = core.ones(2, {requires_grad = true})
    local loss = triple(w):sum()
    loss:backward{retain_graph = true}
    settle()
    loss:backward()
    assert.same({6, 6}, w.grad:totable())
  end)

  it("stay with create_graph", function()
    local square = core.custom("square", function(ctx, x) ctx:save(x) return x * x end,
                               function(ctx, dy) return triple(dy * ctx.saved[1]) * 2 / 3 end)
    local w = core.tensor({3, 4}, {requires_grad = true})
    local g = core.grad(square(w):sum(), w, {create_graph = true})
    settle()
    g:sum():backward()
    assert.same({2, 2}, w.grad:totable())
  end)

  it("do not come with detach and no_grad", function()
    local w = core.ones(2, {requires_grad = true})
    local seen = setmetatable({}, {__mode = "k"})
    local function build()
      local key = {}
      seen[key] = true
      return core.custom("f", function(_, x) return x * 1 end,
                         function(_, dy) return key and dy end)(w)
    end
    local y = build():detach()
    local z = core.no_grad(function() return build() * 1 end)
    settle()
    assert.is_nil(next(seen))
    assert.is_truthy(y and z)
  end)
end)

describe("10^4 steps", function()
  it("with hooks and functions that capture everything leave nothing", function()
    local module = {w = core.ones(4, {requires_grad = true})}
    module.hook = module.w:register_hook(function(g)
      module.calls = (module.calls or 0) + 1
      return g
    end)
    local function step()
      local y, loss
      local f = core.custom("f", function(ctx, x)
        ctx:save(x)
        ctx.module, ctx.me = module, ctx
        return x * 2
      end, function(ctx, dy)
        assert(ctx.module == module and y and loss)
        return dy * 2
      end)
      y = f(module.w)
      local h = y:register_hook(function(g) return g + 0 * (y + loss) end)
      loss = (y * y):sum()
      loss:backward()
      module.w:zero_grad()
      module.last = {y, h, loss}
    end
    for _ = 1, 200 do step() end
    local tensors, memory = settle()
    local registry = registry_size()
    for _ = 1, 10000 do step() end
    local tensors2, memory2 = settle()
    assert.equal(tensors, tensors2)
    assert.equal(registry, registry_size())
    assert.is_true(memory2 < memory + 64, memory2 - memory)
    assert.equal(10200, module.calls)
  end)

  it("that are abandoned leave nothing either", function()
    local w = core.ones(4, {requires_grad = true})
    local function step()
      local y
      y = core.custom("f", function(_, x) return x * 2 end, function() return y end)(w)
      y:register_hook(function() return y end)
      return core.checkpoint(function(t) return t * w end, y)
    end
    for _ = 1, 1000 do step() end
    local tensors, memory = settle()
    for _ = 1, 3000 do step() end
    local tensors2, memory2 = settle()
    assert.equal(tensors, tensors2)
    assert.is_true(memory2 < memory + 200, memory2 - memory)
  end)

  it("of functions on a lasting tensor do not pile up on it", function()
    local w = core.ones(4, {requires_grad = true})
    local x = triple(w) -- its graph's table lives on
    for _ = 1, 2000 do triple(x):sum() end
    local _, memory = settle()
    for _ = 1, 5000 do triple(x):sum() end
    local _, memory2 = settle()
    assert.is_true(memory2 < memory + 200, memory2 - memory)
    assert.is_truthy(x)
  end)

  it("of views do not make chains", function()
    local x = core.zeros(2, 2)
    for _ = 1, 10000 do x = x:t() end
    settle()
    assert.is_true(core.tensors() < 100)
  end)
end)
