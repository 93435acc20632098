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
    ["a pattern that never ends"] = "('a'):rep(60):find(('a*'):rep(40) .. 'b')",
    ["a replacement that never ends"] = "('a'):rep(60):gsub(('a-'):rep(40) .. 'b', '')",
    ["a loop of small calls"] = "local x = require('flare.core').ones(3) "
      .. "while true do x:add_(1) end",
    ["a factorization"] = "require('flare').rand(2000, 2000):svd()",
    ["a message handler's loop"] = "xpcall(error, function() while true do end end)",
    ["a loop whose message handler does not end"] =
      "local function spin() while true do end end xpcall(spin, spin)",
    ["a message handler that calls itself"] =
      "local function f() xpcall(f, f) return f() end f()",
    ["the message handler of a coroutine"] = "local function spin() while true do end end "
      .. "coroutine.wrap(function() xpcall(spin, spin) end)()",
    ["an error's __tostring"] = "error(setmetatable({}, {__tostring = function() "
      .. "while true do end end}))",
    ["a loop that removes hooks"] = "while true do debug.sethook() end",
    ["a coroutine that removes its hook"] =
      "coroutine.wrap(function() debug.sethook() while true do end end)()",
    ["a coroutine with a hook of its own"] = "local co = coroutine.create(function() "
      .. "while true do end end) debug.sethook(co, function() end, 'r') "
      .. "while true do coroutine.resume(co) end",
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

  it("has xpcall as elsewhere", function()
    local text = [[
      local function f() error({1}) end
      local function trace(e) return debug.traceback(e, 2) end
      local co = coroutine.wrap(function(...)
        return xpcall(function(...) return coroutine.yield(...), 7 end, print, ...)
      end)
      return select(2, xpcall(f, function(e) return #e end)),
        select("#", xpcall(select, print, 2, nil, nil)), select(2, pcall(xpcall, f)),
        (select(2, xpcall(string.rep, trace)):match "^.-main chunk"), co(5), co(6)]]
    local function run() return {true, load(text, "=thread")()} end
    assert.are.same(coroutine.wrap(run)(), {flare.spawn(text):join(60)})
  end)

  it("has hooks as elsewhere", function()
    local text = [[
      local events = {}
      debug.sethook(function(event)
        if debug.getinfo(2, "f").func == math.sin then events[#events + 1] = event end
      end, "cr")
      math.sin(1)
      debug.sethook()
      local n = 0
      debug.sethook(function() n = n + 1 end, "", 10)
      for _ = 1, 1000 do end
      debug.sethook()
      return table.concat(events, " "), n > 50]]
    assert.are.same({true, "call return", true}, {flare.spawn(text):join(60)})
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
