-- Compiled functions compare launches with those of an earlier run as they come.
local flare = require "flare"

-- One of the calls of a chain is another one: its operator, an operand, a number, an attribute, the
-- shape of what follows; or the chain ends early, or goes on.
local LENGTH = 8
local changes = {
  operator = function(t) return t:tanh() end,
  operand = function(_, x) return x + x end,
  number = function(t) return t * 3 + 1 end,
  slice = function(t) return (t[{{2, -1}}]:cumsum(1) * 2):sum(1, true) + t end,
  attribute = function(t) return t:cumsum(2) end,
  written = function(t, x) return t + x:clone():add_(1) end,
}

local function chain(x, at, change)
  local t = x
  for k = 1, LENGTH do
    if k == at then t = change(t, x) else t = t * 0.5 + k end
    t = k % 3 == 0 and t:sigmoid() or t
  end
  return t
end

for _, device in ipairs {"cpu", "sim:0"} do
  describe("a compiled function on " .. device, function()
    local x = flare.randn(6, 10, {device = device})
    local function same(a, b) assert.is_true(a:eq(b):all():item()) end
    -- plans that lose on the CPU are kept as well
    local function kept(f) return flare.core.compiled(f, true, true) end

    for name, change in pairs(changes) do
      it("leaves the launches of the last run at any call: another " .. name, function()
        local f = kept(chain)
        for at = 1, LENGTH do
          for _ = 1, 2 do same(f(x, 0, change), chain(x, 0, change)) end
          for _ = 1, 2 do same(f(x, at, change), chain(x, at, change)) end
        end
      end)
    end

    it("runs the beginning of an earlier run, and more", function()
      local f = kept(function(t, n)
        for k = 1, n do t = t * 1.5 + k end
        return t
      end)
      for _, n in ipairs {9, 9, 4, 9, 12, 12, 4, 1, 12} do
        local t = x
        for k = 1, n do t = t * 1.5 + k end
        same(f(x, n), t)
      end
    end)

    it("has several windows in a call, in another order each time", function()
      local f = kept(function(t, order)
        local read = 0
        for c in order:gmatch "." do
          t = c == "a" and t * 0.5 + 1 or c == "b" and t:tanh() - x or (t + t):relu()
          read = read + t[1][1]:item()
        end
        return t, read
      end)
      local function plain(t, order)
        local read = 0
        for c in order:gmatch "." do
          t = c == "a" and t * 0.5 + 1 or c == "b" and t:tanh() - x or (t + t):relu()
          read = read + t[1][1]:item()
        end
        return t, read
      end
      for _, order in ipairs {"abc", "abc", "acb", "abc", "bca", "aaa", "abc", "cab", "ab"} do
        local t, read = f(x, order)
        local right, number = plain(x, order)
        same(t, right)
        assert.equal(number, read)
      end
    end)

    it("shares the window with others that run in turn", function()
      local f = kept(function(t) return t * 2 + 1 end)
      local g = kept(function(t) return (t - 3):exp() end)
      for k = 1, 6 do
        same(f(x * k), x * k * 2 + 1)
        same(g(x * k), (x * k - 3):exp())
      end
    end)

    it("takes a result for an older tensor when it is one", function()
      local old = x * 1
      local f = kept(function(fresh)
        local t = fresh and x * 1 or old
        t:add_(1)
        return t * 2
      end)
      for _, fresh in ipairs {true, true, false, true, false, false} do
        local right = ((fresh and x or old) + 1) * 2
        same(f(fresh), right)
      end
    end)

    it("moves an operand of which an earlier part comes later", function()
      local long = flare.randn(40, 10, {device = device})
      local f = kept(function(i, j) return long:narrow(1, i, 4) * 2 + long:narrow(1, j, 4) end)
      for _, at in ipairs {{1, 9}, {1, 9}, {9, 1}, {9, 1}, {5, 13}, {30, 2}, {2, 30}, {1, 9}} do
        local i, j = at[1], at[2]
        same(f(i, j), long:narrow(1, i, 4) * 2 + long:narrow(1, j, 4))
      end
    end)

    it("has a node for each call, whether it follows or not", function()
      local w = flare.randn(6, 10, {device = device}):requires_grad_()
      local function loss(n)
        local t = w
        for k = 1, n do t = t * w + k end
        return t:sum()
      end
      local f = kept(loss)
      for _, n in ipairs {3, 3, 3, 2, 3, 4, 4} do
        w.grad = nil
        f(n):backward()
        local got = w.grad
        w.grad = nil
        loss(n):backward()
        same(got, w.grad)
      end
    end)
  end)
end
