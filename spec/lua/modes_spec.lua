-- Modes belong to coroutines: what a guard sets holds in the coroutine that made it and in those
-- that it resumes, and nowhere else.
local flare = require "flare"
local output = require "spec.support.script"

local function collect()
  for _ = 1, 4 do collectgarbage() end
end

local function open_and_yield(...)
  local _ <close> = ...
  coroutine.yield()
end

-- Each mode: what makes its guard, and what shows whether it is on here.
local modes = {
  no_grad = {flare.no_grad, function() return not flare.grad_enabled() end},
  meta = {flare.meta, function()
    return not pcall(function() return flare.zeros(2):totable() end)
  end},
  anomaly = {flare.anomaly, function()
    return not pcall(function() return flare.tensor{-1}:log() end)
  end},
  autocast = {function() return flare.autocast "bf16" end, function()
    return flare.ones(2, 2):matmul(flare.ones(2, 2)).dtype == "bf16"
  end},
}

describe("modes", function()
  for name, mode in pairs(modes) do
    local guard, on = mode[1], mode[2]

    it(name .. " belongs to the coroutine that opened the guard", function()
      local function make()
        return coroutine.create(function()
          local _ <close> = guard()
          assert.is_true(on())
          coroutine.yield()
          assert.is_true(on())
        end)
      end
      local a, b = make(), make()
      assert(coroutine.resume(a))
      assert.is_false(on())
      assert(coroutine.resume(b))
      assert.is_false(on())
      assert(coroutine.close(a))
      assert.is_false(on())
      assert(coroutine.resume(b))
      assert.is_false(on())
    end)

    it(name .. " ends with a coroutine that is dropped", function()
      local co = coroutine.wrap(function() open_and_yield(guard()) end)
      co()
      co = nil -- luacheck: ignore 311
      assert.is_false(on())
      collect()
      assert.is_false(on())
    end)

    it(name .. " ends when a guard without <close> is collected", function()
      guard()
      collect()
      assert.is_false(on())
      local kept = guard()
      collect()
      assert.is_true(on())
      kept:close()
      kept:close()
      assert.is_false(on())
    end)

    it(name .. " holds in coroutines that run inside, also where they began before", function()
      local seen = {}
      local co = coroutine.wrap(function()
        while true do
          seen[#seen + 1] = on()
          coroutine.yield()
        end
      end)
      co()
      do
        local _ <close> = guard()
        co()
        local inner = coroutine.wrap(function() co() end)
        inner()
      end
      co()
      assert.same({false, true, true, false}, seen)
    end)

    it(name .. " of a coroutine that ended without closing it is gone", function()
      local kept
      coroutine.wrap(function() kept = guard() end)()
      assert.is_false(on())
      kept:close()
      assert.is_false(on())
    end)

    it(name .. " is as it was after guards were closed in any order", function()
      local a, b = guard(), guard()
      a:close()
      assert.is_true(on())
      b:close()
      assert.is_false(on())
    end)
  end

  it("of the coroutine itself come before those of the one that resumes it", function()
    local co = coroutine.wrap(function()
      local _ <close> = flare.enable_grad()
      coroutine.yield(flare.grad_enabled())
      return flare.grad_enabled()
    end)
    assert.is_true(co())
    flare.no_grad(function()
      assert.is_true(co())
      assert.is_false(flare.grad_enabled())
    end)
  end)

  it("are restored after a function whose coroutines change them", function()
    local co
    flare.no_grad(function()
      co = coroutine.wrap(function()
        local _ <close> = flare.enable_grad()
        coroutine.yield()
      end)
      co()
      assert.is_false(flare.grad_enabled())
    end)
    assert.is_true(flare.grad_enabled())
    collect()
    assert.is_true(flare.grad_enabled())
  end)

  it("of a hook and a backward function do not reach the pass, nor what follows", function()
    local kept = {}
    local w = flare.ones(3, {requires_grad = true})
    w:register_hook(function()
      kept[1] = flare.enable_grad()
      kept[2] = flare.autocast "bf16"
      coroutine.wrap(function()
        kept[3] = flare.no_grad()
        coroutine.yield()
      end)()
      assert.is_true(flare.grad_enabled())
    end)
    local y = (w * w):sum()
    y:backward()
    assert.is_nil(w.grad.grad_fn)
    assert.same({2, 2, 2}, w.grad:totable())
    for k = 3, 1, -1 do kept[k]:close() end
    assert.is_true(flare.grad_enabled())
    assert.equal("f32", flare.ones(2, 2):matmul(flare.ones(2, 2)).dtype)
    assert.is_true((w * 2).requires_grad)
  end)

  it("without an end are set for the program, inside a coroutine, too", function()
    coroutine.wrap(function() flare.anomaly(true) end)()
    assert.is_true(flare.anomaly(false))
    flare.anomaly(function() flare.anomaly(false) end)
    assert.is_false(flare.anomaly(false))
  end)

  it("a recorded kernel keeps its own while coroutines run in it", function()
    local f = flare.kernel(function(x)
      local co = coroutine.wrap(function()
        local _ <close> = flare.no_grad()
        coroutine.yield(x * 2)
      end)
      local y = co()
      return y + 1
    end)
    assert.same({3, 5}, f(flare.tensor{1, 2}):totable())
  end)
end)

describe("vmap", function()
  it("cannot be left by yielding, and nothing of it stays", function()
    local function each() return flare.vmap(function(x)
      coroutine.yield()
      return x * 2
    end)(flare.ones(3, 2)) end
    local a, b = coroutine.create(each), coroutine.create(each)
    for _, co in ipairs{a, b} do
      local ok, message = coroutine.resume(co)
      assert.is_false(ok)
      assert.matches("yield", message)
    end
    local w = flare.ones(2, {requires_grad = true});
    (w * 2):sum():backward()
    assert.same({2, 2}, w.grad:totable())
    assert.same({{2, 2}}, flare.vmap(function(x) return x * 2 end)(flare.ones(1, 2)):totable())
  end)
end)

describe("backward without a graph", function()
  it("says that recording is off, and where the guard was made", function()
    local w = flare.ones(2, {requires_grad = true})
    local guard = flare.no_grad()
    local line = debug.getinfo(1, "l").currentline - 1
    assert.error_matches(function() (w * 2):sum():backward() end,
      "recording is off, by no_grad at .*modes_spec.lua:" .. line)
    guard:close()
    assert.error_matches(function() flare.ones(1):backward() end,
      "does not depend on anything that requires a gradient$")
  end)
end)

describe("a guard that no variable holds", function()
  it("is reported once, with the line and the cure", function()
    for call, name in pairs{["no_grad()"] = "no_grad", ["enable_grad()"] = "enable_grad",
                            ["autocast('bf16')"] = "autocast", ["meta()"] = "meta",
                            ["anomaly()"] = "anomaly"} do
      local text, path = output(("for _ = 1, 2 do\n  flare.%s\nend\nflare.%s\n"):format(call, call))
      local _, n = text:gsub("flare: ", "")
      assert.equal(1, n, text)
      assert.truthy(text:find(path .. ":3: " .. name .. " without a function", 1, true), text)
      assert.truthy(text:find("local _ <close> = flare." .. name, 1, true), text)
    end
  end)

  it("is the only one: a guard that is kept, and a function, are not", function()
    assert.equal("false\tguard\n", (output [[
local _ <close> = flare.no_grad()
do
  local kept = flare.autocast "bf16"
  kept:close()
end
local list = {flare.enable_grad()}
list[1]:close()
flare.no_grad(function() end)
pcall(flare.no_grad, function() end)
local function guard() return flare.no_grad() end
local own <close> = guard()
local _, name = select("#", flare.meta()), "guard"
collectgarbage()
flare.anomaly(true)
flare.anomaly(false)
print(flare.grad_enabled(), name)
]]))
  end)
end)
