-- How many threads the CPU's kernels use, and what ends a thread of a script.
local flare = require "flare"

local function tasks()
  local pipe <close> = assert(io.popen("ls /proc/$PPID/task | wc -l"))
  return pipe:read "n"
end

describe("flare.threads", function()
  it("sets and tells how many threads the CPU's kernels use", function()
    local before = flare.threads()
    assert.are.equal(1, flare.threads(1))
    local alone = tasks()
    assert.are.equal(4, flare.threads(4))
    assert.are.equal(4, flare.threads())
    assert.are.equal(alone + 3, tasks())
    local x = flare.rand(300, 300)
    local four = x:matmul(x)
    assert.are.equal(2, flare.threads(2))
    assert.are.equal(alone + 1, tasks())
    assert.is_true(x:matmul(x):eq(four):all():item())
    assert.are.equal(before, flare.threads(before))
  end)

  it("refuses invalid numbers of threads", function()
    for _, n in ipairs{0, -1, 1 << 40, 1.5, "two"} do
      local ok, message = pcall(flare.threads, n)
      assert.is_false(ok)
      assert.matches("threads", message)
    end
  end)
end)

describe("t:stop", function()
  for name, text in pairs{
    ["an empty loop"] = "while true do end",
    ["a loop around pcall"] = "while true do pcall(error) end",
    ["a coroutine's loop"] = "coroutine.wrap(function() while true do end end)()",
    ["the loop of a coroutine in a coroutine"] = "coroutine.wrap(function() "
      .. "coroutine.resume(coroutine.create(function() while true do end end)) "
      .. "while true do end end)()",
    ["a loop around pcall of a loop"] = "local function spin() while true do end end "
      .. "while true do pcall(spin) end",
    ["a loop around pcall of coroutines"] = "while true do "
      .. "pcall(coroutine.wrap(function() while true do end end)) end",
    ["a loop of C functions"] = "local x = 0 while true do x = math.sin(x) end",
    ["a loop of Lua functions"] = "local function f(n) return n > 0 and 1 + f(n - 1) or 0 end "
      .. "while true do f(20) end",
    ["a sort that never ends"] = "local t = {} for i = 1, 2000 do t[i] = i end "
      .. "while true do table.sort(t, function(a, b) return a > b end) end",
    ["a loop of small calls"] = "local x = require('flare.core').ones(3) "
      .. "while true do x:add_(1) end",
    ["a factorization"] = "require('flare').rand(2000, 2000):svd()",
    ["a thread that waits for another"] = "local flare = require 'flare' "
      .. "flare.spawn('while true do end'):join()",
  } do
    it("ends " .. name, function()
      local t = assert(flare.spawn(text))
      assert.are.same({nil, "timeout"}, {t:join(0.2)})
      t:stop()
      local ok, message = t:join(60)
      assert.is_nil(ok)
      assert.matches("interrupted!", message)
    end)
  end

  it("ends a thread that has just begun", function()
    for _ = 1, 20 do
      local t = assert(flare.spawn "while true do end")
      t:stop()
      assert.matches("interrupted!", select(2, t:join(60)))
    end
  end)
end)

describe("a thread", function()
  it("runs without a hook, which would double the time of its loops", function()
    assert.are.same({true, true}, {flare.spawn("return debug.gethook() == nil"):join(60)})
  end)

  it("has coroutines that work as elsewhere", function()
    local text = [[
      local f = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end)
      local co = coroutine.create(function(...) return select("#", ...) end)
      return f(1), f(5), select(2, coroutine.resume(co, nil, nil)), coroutine.status(co),
        select(2, pcall(coroutine.create, 3)), select(2, pcall(coroutine.wrap))]]
    assert.are.same({true, load(text)()}, {flare.spawn(text):join(60)})
  end)
end)
