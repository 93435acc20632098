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
end)
