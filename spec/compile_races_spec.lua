-- Compiled functions beside what else happens in a program: any collector, finalisers, coroutines,
-- interrupts, memory that others see or that runs out, modes that look at calls, ranks.
local flare = require "flare"
local ranks = require "spec.support.ranks"
local rows = require "spec.support.rows"

local function same(want, got, what)
  assert(want.shape == got.shape and want.dtype == got.dtype, what)
  assert(want:eq(got):all():item(), (what or "values") .. " differ")
end

-- A body whose inner values escape by chance, and which checks them two runs later.
local function escaping(compile, device)
  local kept, seed = {}, 1
  local f = compile(function(x, keep)
    local a = x * 2
    local b = a + 1
    local c = (b * a):tanh()
    if keep == 1 then kept[#kept + 1] = {a, x * 2} end
    if keep == 2 then kept[#kept + 1] = {b, x * 2 + 1} end
    if keep == 3 then kept[#kept + 1] = {c, c:clone()} end
    return c
  end)
  return function(runs)
    for _ = 1, runs do
      seed = (seed * 1103515245 + 12345) % 2147483648
      local x = flare.randn({17}, {device = device})
      same(((x * 2 + 1) * (x * 2)):tanh(), f(x, (seed >> 16) % 6))
      if #kept > 4 then
        local pair = table.remove(kept, 1)
        same(pair[2], pair[1], "what escaped")
      end
    end
  end
end

for _, device in ipairs(rows.devices) do
  describe("a compiled function on " .. device, function()
    local function exact(f) return flare.compile(f, {exact = true}) end

    it("leaves the collector running if its code collects", function()
      local tree = require "spec.support.tree"
      local path = os.tmpname()
      local file <close> = assert(io.open(path, "w"))
      file:write(([[
        local x = require "flare".ones({4}, {device = %q})
        local f = require "flare".compile(function() collectgarbage() return x + 1 end)
        for _ = 1, 4 do f() end
        print(collectgarbage "isrunning")
      ]]):format(device))
      file:flush()
      assert.equal("true\n", tree.output(("%s/flare %s 2>&1"):format(tree.build, path)))
      os.remove(path)
    end)

    it("computes the same with each collector", function()
      local run = escaping(exact, device)
      local mode = collectgarbage "incremental"
      local ok, why = pcall(function()
        run(30)
        collectgarbage "generational"
        run(30)
        collectgarbage "stop"
        run(30)
        collectgarbage "restart"
        run(30)
      end)
      collectgarbage "restart"
      collectgarbage(mode)
      assert(ok, why)
    end)

    it("lets finalisers compute, and call it", function()
      local x, sums, f = flare.randn({40}, {device = device}), {}, nil
      local function watch()
        setmetatable({}, {__gc = function()
          sums[#sums + 1] = (x * 3 + 1):sum():item()
          sums[#sums + 1] = f(x, false):sum():item()
        end})
      end
      f = exact(function(t, more)
        local y = (t * 2):exp()
        if more then
          for _ = 1, 20 do watch() end
          collectgarbage()
        end
        return y + 1
      end)
      local want = (x * 2):exp() + 1
      for _ = 1, 4 do same(want, f(x, true)) end
      collectgarbage()
      assert.is_true(#sums >= 80)
      for k = 1, #sums, 2 do
        assert.equal((x * 3 + 1):sum():item(), sums[k])
        assert.equal(want:sum():item(), sums[k + 1])
      end
    end)

    it("leaves what coroutines have begun, whichever are resumed", function()
      local x = flare.randn({12}, {device = device})
      local f = exact(function(t, k)
        local y = t * k
        coroutine.yield(y)
        local z = y + 1
        coroutine.yield(z)
        return z * y
      end)
      local open = {}
      for k = 1, 30 do
        local co = coroutine.wrap(f)
        same(x * k, co(x, k))
        open[k % 4] = co
        if k % 3 == 0 then same(x * k + 1, co()) end
        if k % 7 == 0 then collectgarbage() end
      end
      same((x * 30 + 1) * (x * 30), open[30 % 4]())
      open = {}
      collectgarbage()
      local g = exact(function(t) return t * 2 + 1 end)
      for _ = 1, 4 do same(x * 2 + 1, g(x)) end
      assert.is_true(flare.compile_stats(g).planned > 0 and open[1] == nil)
    end)

    it("has done what came before an interrupt, and goes on", function()
      local x, state = flare.randn({12}, {device = device}), flare.zeros({12}, {device = device})
      local f = exact(function(t, count)
        state:add_(1)
        if count > 0 then
          debug.sethook(function()
            debug.sethook()
            error("interrupted!", 0)
          end, "", count)
          while true do state:add_(0) end
        end
        return t * 2 + state
      end)
      for run = 1, 6 do
        local ok, why = pcall(f, x, run % 2 * 40)
        assert.equal(run % 2 == 0, ok, why)
        same(flare.full({12}, run, {device = device}), state)
      end
    end)

    it("runs at once on memory that others see", function()
      local x = flare.zeros({8}, {device = device})
      local shared = device == "cpu" and flare.from_dlpack(x:to_dlpack()) or x
      local address = device == "cpu" and x:data_ptr()
      local f = exact(function(t)
        t:add_(1)
        local seen = shared:clone()
        shared:mul_(2)
        return seen, t * 1
      end)
      local value = 0
      for _ = 1, 5 do
        local seen, after = f(x)
        assert.equal(value + 1, seen[8]:item())
        value = (value + 1) * 2
        assert.equal(value, after[1]:item())
      end
      assert.is_true(device ~= "cpu" or address ~= nil)
    end)

    it("gives the same while calls are looked at", function()
      local x = flare.randn({30}, {device = device})
      local f = exact(function(t) return ((t * 2 + 1):tanh() * t):sum(), t * 3 end)
      local function check()
        for _ = 1, 3 do
          local sum, y = f(x)
          same(((x * 2 + 1):tanh() * x):sum(), sum)
          same(x * 3, y)
        end
      end
      check()
      flare.debug_streams(true)
      check()
      flare.debug_streams(false)
      flare.anomaly(true)
      check()
      flare.anomaly(false)
      check()
    end)

    it("takes no more memory when its path changes at the limit", function()
      local MB = 1 << 20
      flare.memory.flush(device)
      collectgarbage()
      local function body(x, odd)
        local y = x
        for k = 1, 12 do y = (y * 1.01 + k):tanh() end
        if odd then y = y - y:mean() end
        return y:sum():item()
      end
      local x = flare.randn({MB}, {device = device}) -- 4 MiB
      local want, want_odd = body(x, false), body(x, true)
      collectgarbage()
      collectgarbage()
      flare.memory.flush(device)
      local f = flare.compile(body, {exact = true})
      local reserved = flare.memory.stats(device).reserved
      flare.memory.limit(reserved + 13 * MB, device)
      local ok, why = pcall(function()
        for run = 1, 12 do
          local odd = run % 5 == 4
          assert.equal(odd and want_odd or want, f(x, odd))
        end
      end)
      flare.memory.limit(0, device)
      assert(ok, why)
    end)
  end)
end

describe("compiled functions of two ranks", function()
  it("may differ between collectives", function()
    ranks.good(2, [[
      local w = flare.full({6}, rank + 1)
      local count = 0
      local f = flare.compile(function(n)
        local y = w * n + 1
        if rank == 0 and n % 2 == 0 then count = count + y:sum():item() end
        if rank == 1 and n % 3 == 0 then y = (y * 1):clone():add_(0) end
        y:comm_all_reduce_()
        if rank == n % 2 then y:mul_(1):add_(0) end
        return y / 2
      end, {exact = true})
      for n = 1, 12 do
        local y = f(n)
        assert(y:eq((3 * n + 2) / 2):all():item(), tostring(y))
      end
    ]])
  end)
end)
