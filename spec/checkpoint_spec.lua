-- What a checkpoint costs in memory, and what of its function's work it leaves alone.
local core = require "flare.core"
local flare = require "flare"
local nn = flare.nn

-- The bytes that one training step adds to what was live before it, at most.
local function peak(blocks, x, run)
  local function step()
    local h = x
    for _, block in ipairs(blocks) do h = run(block, h) end
    h:square():mean():backward()
    for _, block in ipairs(blocks) do block:zero_grad() end
  end
  step()
  local most = 0
  for _ = 1, 3 do
    core.collect()
    core.memory.reset_peak()
    local before = core.memory.stats().live
    step()
    most = math.max(most, core.memory.stats().peak - before)
  end
  return most
end

describe("a checkpoint", function()
  it("lowers the peak of a step to one block's activations", function()
    local blocks = {}
    for i = 1, 8 do
      blocks[i] = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
    end
    local x = core.randn(512, 256)
    local gradients = 8 * 4 * (2 * 256 * 1024 + 1024 + 256)
    local plain = peak(blocks, x, function(block, h) return block(h) end)
    local saved = peak(blocks, x, flare.checkpoint)
    assert.is_true(plain - gradients > 0 and saved < 0.75 * plain, plain .. " " .. saved)
    -- a block: inside, before and after GELU, two gradients of those, and its ends
    local block = 4 * 512 * (4 * 1024 + 4 * 256)
    assert.is_true(saved < gradients + block + 8 * 4 * 512 * 256, saved .. " " .. gradients)
  end)

  it("adds nothing for a single block", function()
    local block = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    local x = core.randn(256, 64)
    local plain = peak({block}, x, function(b, h) return b(h) end)
    local saved = peak({block}, x, flare.checkpoint)
    assert.is_true(saved <= plain + 4 * 256 * 64 * 3, plain .. " " .. saved)
  end)

  it("leaves open what its function has stored", function()
    local upvalue, list, deep = nil, {}, {inner = {}}
    local object = nn.Identity()
    local w = core.ones(3, {requires_grad = true})
    local function f(x, table)
      local y = x * w
      upvalue = y
      list[#list + 1] = y + 1
      deep.inner.x = x
      object.last = y + 2
      table.here = y + 3
      rawset(_G, "checkpoint_spec_value", y + 4)
      return y:sum()
    end
    local t = {}
    local x = core.ones(3, {requires_grad = true})
    flare.checkpoint(f, x * 2, t):backward()
    assert.same({2, 2, 2}, upvalue:totable())
    assert.equal(2, #list)
    for k = 1, 2 do assert.same({3, 3, 3}, list[k]:totable()) end
    assert.same({2, 2, 2}, deep.inner.x:totable())
    assert.same({4, 4, 4}, object.last:totable())
    assert.same({5, 5, 5}, t.here:totable())
    assert.same({6, 6, 6}, rawget(_G, "checkpoint_spec_value"):totable())
    rawset(_G, "checkpoint_spec_value", nil)
    assert.same({2, 2, 2}, x.grad:totable())
    assert.same({2, 2, 2}, w.grad:totable())
  end)

  it("runs twice where the graph is retained, and after its arguments were closed", function()
    local w = core.ones(3, {requires_grad = true})
    local h = w * 2
    local y = flare.checkpoint(function(x) return (x * x):sum() end, h)
    h:close()
    y:backward{retain_graph = true}
    y:backward()
    assert.same({16, 16, 16}, w.grad:totable())
    assert.error_matches(function() y:backward() end, "a second time")
  end)

  -- tensors of 256 KiB: what f makes is closed at once only if it is large
  it("gives the gradients of its arguments when checkpoints are nested", function()
    local function gradients(wrap)
      local x = core.full({256, 256}, 0.5, {requires_grad = true})
      local w = core.full({256}, 1.5, {requires_grad = true})
      local function inner(z, v) return z:sin() * v end
      local function outer(y, v)
        for _ = 1, 3 do y = wrap(inner, y, v) end
        return y
      end
      local y = x
      for _ = 1, 2 do y = wrap(outer, y, w) end
      y:sum():backward()
      return {x.grad[1][1]:item(), x.grad[-1][-1]:item(), w.grad[1]:item()}
    end
    assert.same(gradients(function(f, ...) return f(...) end), gradients(flare.checkpoint))
  end)

  it("refuses a function that closes its argument: the gradient would be lost", function()
    local x, again = core.full({4}, 0.5, {requires_grad = true}), false
    local function f(h)
      local y = h * 3
      if again == (h * 1).requires_grad then h:close() end
      return y
    end
    local message = "checkpoint: the function closed its argument 1"
    assert.error_matches(function() flare.checkpoint(f, x * 2) end, message, 1, true)
    again = true
    local loss = flare.checkpoint(f, x * 2):sum()
    assert.error_matches(function() loss:backward() end, message, 1, true)
    local double = flare.func{name = "double", forward = function(_, h)
      local y = h * 2
      h:close()
      return y
    end, backward = function(_, dy) return dy * 2 end}
    assert.error_matches(function() double(x * 2) end, "double: the function closed its argument 1",
                         1, true)
  end)

  it("ends its scope after an error in forward and in backward", function()
    local w, fails = core.ones(3, {requires_grad = true}), true
    local function f(x)
      local y = x * 2
      if fails then error "on purpose" end
      return y
    end
    assert.error_matches(function() flare.checkpoint(f, w) end, "on purpose")
    fails = false
    local y = flare.checkpoint(f, w)
    fails = true
    assert.error_matches(function() y:sum():backward() end, "on purpose")
    local z
    core.scope(function() z = core.ones(1) end)
    assert.is_true(z.closed)
    z = core.ones(1)
    core.scope(function() end)
    assert.is_false(z.closed)
  end)

  -- launches of a pass by their names, and its gradients
  local function launches(block, x, wrap)
    block:zero_grad()
    x.grad = nil
    local loss = wrap(block, x):square():sum()
    core.profile_start()
    loss:backward()
    local rows, n = core.profile_stop()
    local count, gradients = {}, {x.grad:clone()}
    for i = 1, n do
      local name = core.profile_row(rows, i)
      count[name] = (count[name] or 0) + 1
    end
    for _, p in ipairs(block:parameters()) do gradients[#gradients + 1] = p.grad:clone() end
    return count, gradients
  end

  local function assert_same(a, b)
    for k, g in ipairs(a) do assert.is_true(g:eq(b[k]):all():item(), k) end
  end

  local function plain(f, ...) return f(...) end

  for _, device in ipairs {"cpu", "sim"} do
    it("does not compute again what only its results need, on " .. device, function()
      local block = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 128),
        nn.Linear(128, 64)):to(device)
      local x = core.randn(512, 64):to(device):requires_grad_(true)
      local once, a = launches(block, x, plain)
      local twice, b = launches(block, x, flare.checkpoint)
      assert_same(a, b)
      assert.equal(2, twice.linear - (once.linear or 0)) -- of three
      assert.equal(1, twice.gelu - (once.gelu or 0))
    end)
  end

  it("computes again what its function has stored or reads", function()
    local stored, seen
    local first, last = nn.Linear(64, 256), nn.Linear(256, 64)
    local function f(x)
      local y = last(first(x))
      stored, seen = y, y[1][1]:item()
      return y
    end
    local x = core.randn(512, 64):requires_grad_(true)
    local y = flare.checkpoint(f, x)
    local value = y[1][1]:item()
    stored, seen = nil, nil
    y:sum():backward()
    assert.equal(value, seen)
    assert.equal(value, stored[1][1]:item())
  end)

  it("gives the gradients of a result that it returns twice, of a view and of its argument",
     function()
    local function gradient(wrap)
      local w = core.full({256, 256}, 0.5, {requires_grad = true})
      local a, b, c, d = wrap(function(x)
        local y = x:sin()
        return y, y, y:transpose(1, 2):reshape(-1), x
      end, w * 2)
      local loss = a:sum() + 2 * b:sum() + c:square():sum() + 3 * d:sum()
      loss:backward()
      return {w.grad}
    end
    assert_same(gradient(plain), gradient(flare.checkpoint))
  end)

  it("runs compiled functions by their plans when it calls them again", function()
    local w = core.full({64, 256}, 0.5, {requires_grad = true})
    local f = flare.compile(function(x) return ((x * w):sin() + x):exp() * 0.5 end)
    local function block(x) return f(x * 2):cos() end
    local x = core.randn(64, 256):requires_grad_(true)
    for _ = 1, 4 do flare.checkpoint(block, x):sum():backward() end
    local before = flare.compile_stats(f)
    local y = flare.checkpoint(block, x)
    local forward = flare.compile_stats(f)
    y:sum():backward()
    local after = flare.compile_stats(f)
    assert.equal(1, forward.windows - before.windows)
    assert.equal(1, after.windows - forward.windows)
    assert.equal(1, after.planned - forward.planned)
  end)

  it("leaves no launches waiting after an error", function()
    local w = core.ones(3, {requires_grad = true})
    local fails = false
    local y = flare.checkpoint(function(x)
      local z = x * 2
      if fails then error "on purpose" end
      return z
    end, w)
    fails = true
    assert.error_matches(function() y:sum():backward() end, "on purpose")
    core.profile_start()
    local _ = w * 3
    local _, n = core.profile_stop()
    assert.equal(1, n)
  end)
end)
