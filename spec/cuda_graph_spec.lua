-- Launch graphs: what a function launches is captured once and run again as a whole, with other
-- inputs, on the simulated device and on a GPU where one is.
local flare = require "flare"

local devices = {"sim:0"}
if flare.cuda.available() then devices[2] = "cuda" end

local function close(a, b)
  assert.same(b.shape, a.shape)
  assert.near(0, (a - b):abs():max():item(), 1e-5)
end

-- The message without the lines, which are those of this file.
local function refusal(f, ...)
  local ok, why = pcall(f, ...)
  assert.is_false(ok)
  assert.truthy(why:find("cuda_graph_spec.lua:", 1, true), why)
  return (why:gsub("^.-cuda_graph_spec.lua:%d+: ", ""))
end

for _, device in ipairs(devices) do
  local function randn(...) return flare.randn({...}, {device = device}) end

  describe("a graph on " .. device, function()
    local w, x
    before_each(function()
      flare.manual_seed(3)
      w, x = randn(8, 8), randn(4, 8)
    end)

    local function layer(input) return (input:matmul(w) + 1):relu():sum(2) end

    it("computes what the function does, from the inputs of each call", function()
      local g = flare.cuda.graph(layer, x)
      for _ = 1, 3 do
        local y = randn(4, 8)
        close(g(y), layer(y))
      end
      w:mul_(2) -- what the function refers to is read again
      close(g(x), layer(x))
      assert.same({launches = 4, runs = 4, bytes = g:stats().bytes}, g:stats())
      assert.truthy(tostring(g):find("4 launches", 1, true))
    end)

    it("runs nothing while it is captured, and the Lua code no more after that", function()
      local count, calls = flare.zeros({1}, {device = device}), 0
      local g = flare.cuda.graph(function()
        calls = calls + 1
        count:add_(1)
      end, x)
      assert.same({4, 3}, {calls, count:item()})
      g(x)
      g(x)
      assert.same({4, 5}, {calls, count:item()})
    end)

    it("overwrites its results, and autograd knows", function()
      local v = randn(4):requires_grad_(true)
      local g = flare.cuda.graph(function(a) return a:sum(2), {twice = a * 2} end, x)
      local first, more = g(x)
      close(more.twice, x * 2)
      local before = first:clone()
      local loss = (v * first):sum()
      local second = g(x + 1)
      assert.is_true(first == second)
      close(first, before + 8)
      assert.truthy(refusal(function() loss:backward() end):find "in place")
    end)

    it("copies inputs from other devices, and takes its own memory as it is", function()
      local g = flare.cuda.graph(layer, x)
      local y = flare.randn(4, 8)
      close(g(y), layer(y:to(device)))
      g.inputs[1]:fill_(2)
      close(g(g.inputs[1]), layer(flare.full({4, 8}, 2, {device = device})))
    end)

    it("has a training step: backward pass and optimizer", function()
      local function make()
        flare.manual_seed(5)
        local net = flare.nn.Sequential(flare.nn.Linear(8, 16), flare.nn.Tanh(),
          flare.nn.Linear(16, 1)):to(device)
        local opt = flare.optim.SGD(net:parameters(), {lr = 0.05})
        return function(a)
          opt:zero_grad()
          local loss = net(a):square():mean()
          loss:backward()
          opt:step()
          return loss
        end
      end
      local eager, step = make(), make()
      local g = flare.cuda.graph(step, x)
      for _ = 1, 3 do eager(x) end -- as often as the graph was warmed up
      for _ = 1, 5 do
        local y = randn(4, 8)
        assert.near(eager(y):item(), g(y):item(), 1e-6)
      end
    end)

    it("has attention that drops nothing", function()
      local q = randn(2, 4, 3, 8)
      local function f(a) return flare.attention(a, a, a) end
      local g = flare.cuda.graph(f, q)
      local other = randn(2, 4, 3, 8)
      close(g(other), f(other))
      assert.truthy(refusal(flare.cuda.graph, function(a)
        return flare.attention(a, a, a, {dropout = 0.5})
      end, q):find("attention: a graph cannot capture random numbers", 1, true))
    end)

    it("keeps its memory to itself, and what it reads alive", function()
      local scale = flare.full({4, 8}, 3, {device = device})
      local g = flare.cuda.graph(function(a)
        local b <close> = a * scale
        local c <close> = b + 1
        return c:exp()
      end, x)
      scale = nil
      collectgarbage()
      local others = {}
      for i = 1, 50 do others[i] = flare.full({4, 8}, i, {device = device}) end
      close(g(x), (x * 3 + 1):exp())
      for i = 1, 50 do assert.equal(i, others[i][1][1]:item()) end
    end)

    it("uses memory again inside, and returns it when it is closed", function()
      collectgarbage()
      flare.memory.flush(device)
      local before = flare.memory.stats(device).reserved
      local g = flare.cuda.graph(function(a)
        for _ = 1, 100 do
          local big <close> = flare.ones({1 << 18}, {device = device})
          local one <close> = big[1] -- else the view keeps big until the collector comes
          a = a + one
        end
        return a
      end, x)
      close(g(x), x + 100)
      assert.is_true(g:stats().bytes < 12 << 20)
      local y = g(x)
      g:close()
      assert.truthy(refusal(g, x):find "it is closed")
      close(y, x + 100) -- results outlive it
      y = nil -- luacheck: ignore
      g = nil -- luacheck: ignore
      collectgarbage()
      flare.memory.flush(device)
      assert.is_true(flare.memory.stats(device).reserved <= before)
    end)

    it("that is collected goes away without a word", function()
      for _ = 1, 3 do
        local g = flare.cuda.graph(layer, x)
        g(x)
      end
      collectgarbage()
      close(layer(x), layer(x))
    end)

    it("that is closed while another is captured goes away afterwards", function()
      local g, runs = flare.cuda.graph(layer, x), 0
      local h = flare.cuda.graph(function(a)
        runs = runs + 1
        if runs == 4 then g:close() end
        return a + 1
      end, x)
      close(h(x), x + 1)
      assert.truthy(refusal(g, x):find "it is closed")
    end)

    it("takes modules and kernels, too", function()
      local kernel = flare.kernel(function(a) return a * 2 + 1 end)
      close(flare.cuda.graph(kernel, x)(x), x * 2 + 1)
      local net = flare.nn.Linear(8, 2):to(device)
      close(flare.cuda.graph(net, x)(x), net(x))
    end)

    it("has checkpoints", function()
      local v = randn(8):requires_grad_(true)
      local g = flare.cuda.graph(function(a)
        v.grad = nil
        flare.checkpoint(function(b) return (b * v):sum() end, a):backward()
        return v.grad
      end, x)
      close(g(x), x:sum(1))
    end)

    it("runs on the stream of its capture only", function()
      local g = flare.cuda.graph(layer, x)
      local side = flare.stream(device)
      assert.truthy(refusal(side.run, side, g, x):find "runs there only; stream %d is in use")
      side:wait(flare.current_stream(device))
      local h = side:run(function() return flare.cuda.graph(layer, x) end)
      close(side:run(function() return h(x):clone() end), layer(x))
    end)

    it("is not captured in a compiled function, which can run it", function()
      local g = flare.cuda.graph(layer, x)
      local f = flare.compile(function() return flare.cuda.graph(layer, x) end)
      assert.truthy(refusal(f):find "cannot be captured in a compiled function")
      close(flare.compile(function(a) return g(a) + 1 end)(x), layer(x) + 1)
    end)

    it("casts parameters again in every run", function()
      flare.autocast("bf16", function()
        layer(x)
        local g = flare.cuda.graph(function(a) return a:matmul(w) end, x)
        w:zero_()
        assert.equal(0, g(x):abs():max():item())
        assert.equal(0, x:matmul(w):abs():max():item())
      end)
    end)

    it("reports a failure that only the device sees with the line of the capture", function()
      local table_ = randn(5, 3)
      local at = flare.tensor({1, 5}, {dtype = "i64", device = device})
      local g = flare.cuda.graph(function(i)
        return table_:index_select(1, i)
      end, at)
      local line = debug.getinfo(1, "l").currentline - 2
      for _ = 1, 300 do g(at) end -- more launches than are remembered
      local y = g(flare.tensor({1, 6}, {dtype = "i64", device = device}))
      local why = refusal(y.tolist, y)
      assert.truthy(why:find("index_select: position 6 is out of range 1..5", 1, true), why)
      assert.truthy(why:find(("launched at .*cuda_graph_spec.lua:%d%%)"):format(line)), why)
      close(g(at), table_:index_select(1, at)) -- it goes on
    end)

    it("refuses other inputs than those of the capture", function()
      local g = flare.cuda.graph(function(a, n) return a * n end, x, 2)
      close(g(x, 2), x * 2)
      for _, case in ipairs {
        {randn(3), 2, "input 1 has shape (3), the graph was captured with (4, 8)"},
        {x:to "f64", 2, "input 1 is f64, the graph was captured with f32"},
        {x:clone():requires_grad_(true), 2, "input 1 requires a gradient, the one of the capture"},
        {3, 2, "input 1: expected a tensor, got an integer"},
        {x, 3, "input 2 is not a tensor, so it must be the same in every call"},
      } do
        local why = refusal(g, case[1], case[2])
        assert.truthy(why:find("graph: " .. case[3], 1, true), why)
      end
      assert.truthy(refusal(g):find "expected 2 inputs, got 0")
      assert.truthy(refusal(flare.cuda.graph, 3):find "expected a function or a module, got number")
      assert.truthy(refusal(flare.cuda.graph, layer, flare.ones(4, 8)):find "are on the CPU")
    end)
  end)

  describe("the capture of a graph on " .. device, function()
    local x
    before_each(function() x = flare.ones({4, 8}, {device = device}) end)

    -- What is refused: its name, the function, what the message must have.
    local side = flare.stream(device)
    local calls, adam = 0, nil
    local numbers = {["a number that changes"] = true, ["a position that changes"] = true,
                     ["the step count of Adam"] = true}
    local waits = "a graph cannot capture values that the host reads"
    local cases = {
      {"a value that is read", function(a) return a * a:sum():item() end, "item: " .. waits},
      {"values that are read", function(a) a:tolist() end, waits},
      {"printing", function(a) local s = tostring(a) return s end, waits},
      {"values from the host", function(a)
        return a + flare.tensor({2}, {device = device})
      end, "a graph cannot capture values that the host writes"},
      {"a result of unknown size", function(a) return (a:nonzero()) end, "nonzero: " .. waits},
      {"a mask", function(a) return (a[a:gt(0)]) end, "masked_select: " .. waits},
      {"random numbers", function(a)
        return a + flare.randn({8}, {device = device})
      end, "randn: a graph cannot capture random numbers: every run would draw the same ones"},
      {"dropout", function(a)
        return (flare.nn.functional.dropout(a, 0.5))
      end, "dropout: a graph cannot capture random numbers"},
      {"work on the CPU", function(a)
        local n = flare.ones(3) * 2 return a, n
      end, "mul: a graph cannot capture work on cpu: it is a graph of"},
      {"another device", function(a) return (a:to "cpu") end, waits},
      {"a number that changes", function(a)
        calls = calls + 1
        return a * calls
      end, "mul: a graph cannot capture a number that changes from run to run"},
      {"a position that changes", function(a)
        calls = calls + 1
        return (a:narrow(1, calls % 2 + 1, 1) + 0)
      end, "narrow: a graph cannot capture a number that changes"},
      {"the step count of Adam", function(a)
        if not adam then
          local p = flare.ones({4, 8}, {device = device}):requires_grad_(true)
          p.grad = a:detach():clone()
          adam = flare.optim.AdamW({p}, {lr = 0.1})
        end
        adam:step()
        return a
      end, "a graph cannot capture a number that changes from run to run"},
      {"a wait", function(a) flare.synchronize() return a end,
        "a graph cannot capture a wait for the device"},
      {"another stream", function(a)
        return (side:run(function() return a + 1 end))
      end, "a graph cannot capture a change of the stream"},
      {"an event", function(a) flare.event(device):record() return a end,
        "a graph cannot capture events"},
      {"another graph", function(a)
        return (flare.cuda.graph(function(b) return b + 1 end, a))
      end, "a graph cannot capture another graph"},
      {"an error", function(a) error("mine", 1) return a end, "mine"},
    }
    for _, case in ipairs(cases) do
      local name, f, wanted = table.unpack(case)
      it("refuses " .. name .. " and leaves all as it was", function()
        local live = flare.memory.stats(device).live
        local passed = 0
        local why = refusal(flare.cuda.graph, function(a)
          passed = passed + 1
          -- the warm-up is not refused
          if passed > 3 or numbers[name] then return f(a + 1) end
          return a + 1
        end, x)
        assert.equal(4, passed)
        assert.truthy(why:find(wanted, 1, true), why)
        collectgarbage()
        collectgarbage()
        assert.is_true(flare.memory.stats(device).live <= live)
        assert.equal(2, (x + 1)[1][1]:item())
        assert.equal(1, flare.rand({1}, {device = device}):numel())
        local g = flare.cuda.graph(function(a) return a + 2 end, x)
        assert.equal(3, g(x)[1][1]:item())
      end)
    end

    it("fails even if the function goes on after a refusal", function()
      local why = refusal(flare.cuda.graph, function(a)
        pcall(a.tolist, a)
        return a + 1
      end, x)
      assert.truthy(why:find(waits, 1, true), why)
    end)

    it("does not begin while the profiler runs", function()
      local _, why = pcall(flare.profile, function()
        flare.cuda.graph(function(a) return a + 1 end, x)
      end)
      assert.truthy(tostring(why):find "while the profiler runs", why)
    end)

    it("does not return memory that the graph needs, nor wait for it when memory runs out",
      function()
      if device ~= "sim:0" then return end
      flare.memory.limit(40 << 20, device)
      local ok, why = pcall(flare.cuda.graph, function(a)
        local keep = {}
        for i = 1, 8 do keep[i] = flare.ones({1 << 20}, {device = device}) end
        return a + keep[8][1]
      end, x)
      assert.is_true(ok, why)
      local runs = 0
      ok, why = pcall(flare.cuda.graph, function(a)
        runs = runs + 1
        local list = {}
        for i = 1, runs > 3 and 20 or 1 do list[i] = flare.ones({1 << 20}, {device = device}) end
        return a + list[1][1]
      end, x)
      flare.memory.limit(0, device)
      assert.is_false(ok)
      assert.truthy(why:find "out of memory on sim:0", why)
      assert.equal(2, (x + 1)[1][1]:item())
    end)
  end)
end
