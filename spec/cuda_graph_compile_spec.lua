-- Graphs of compiled functions: the launches that are captured are those of the plan. (A process
-- that has made streams, as cuda_graph_spec.lua does, runs compiled functions at once.)
local flare = require "flare"

local devices = {"sim:0"}
if flare.cuda.available() then devices[2] = "cuda" end

local function close(a, b)
  assert.same(b.shape, a.shape)
  assert.near(0, (a - b):abs():max():item(), 1e-4)
end

for _, device in ipairs(devices) do
  describe("a graph of a compiled function on " .. device, function()
    local w, x
    local function randn(...) return flare.randn({...}, {device = device}) end
    before_each(function()
      flare.manual_seed(3)
      w, x = randn(8, 8), randn(4, 8)
    end)

    it("has its fused kernels", function()
      local function long(a) return ((a * 2 + w[1]) * a - 1):tanh() * 3 + a end
      local plain, fused = flare.cuda.graph(long, x), flare.cuda.graph(flare.compile(long), x)
      assert.same({7, 1}, {plain:stats().launches, fused:stats().launches})
      for _ = 1, 3 do
        local y = randn(4, 8)
        close(fused(y), long(y))
        w:add_(1)
      end
    end)

    it("writes in place, and has several results", function()
      local count = flare.zeros({8}, {device = device})
      local g = flare.cuda.graph(flare.compile(function(a)
        count:add_(1)
        count:mul_(2)
        return a + count, a * 2
      end), x)
      count:zero_()
      local first = g(x)
      close(first, x + 2)
      local again, twice = g(x)
      close(again, x + 6)
      close(twice, x * 2)
      assert.equal(6, count[1]:item())
    end)

    it("has a training step", function()
      local function make(wrap)
        flare.manual_seed(5)
        local net = flare.nn.Sequential(flare.nn.Linear(8, 16), flare.nn.Tanh(),
          flare.nn.Linear(16, 1)):to(device)
        local opt = flare.optim.SGD(net:parameters(), {lr = 0.05})
        return wrap(function(a)
          opt:zero_grad()
          local loss = net(a):square():mean()
          loss:backward()
          opt:step()
          return loss
        end)
      end
      local eager, g = make(function(f) return f end), flare.cuda.graph(make(flare.compile), x)
      for _ = 1, 3 do eager(x) end -- as often as the graph was warmed up
      for _ = 1, 5 do
        local y = randn(4, 8)
        assert.near(eager(y):item(), g(y):item(), 1e-5)
      end
    end)

    it("keeps what it reads alive, and its memory to itself", function()
      local scale = flare.full({4, 8}, 3, {device = device})
      local g = flare.cuda.graph(flare.compile(function(a) return (a * scale + 1):tanh() end), x)
      scale = nil
      collectgarbage()
      local others = {}
      for i = 1, 50 do others[i] = flare.full({4, 8}, i, {device = device}) end
      close(g(x), (x * 3 + 1):tanh())
      for i = 1, 50 do assert.equal(i, others[i][1][1]:item()) end
    end)

    it("refuses what a graph of the function refuses", function()
      for wanted, f in pairs {
        ["values that the host reads"] = function(a) return a * a:sum():item() end,
        ["work on cpu"] = function(a) return a, flare.ones(3) * 2 end,
        ["random numbers"] = function(a) return a + flare.randn({8}, {device = device}) end,
      } do
        local runs = 0
        local ok, why = pcall(flare.cuda.graph, flare.compile(function(a)
          runs = runs + 1
          if runs > 3 then return f(a) end
          return a + 1
        end), x)
        assert.is_false(ok)
        assert.truthy(why:find("a graph cannot capture " .. wanted, 1, true), why)
        close(flare.compile(function(a) return a + 1 end)(x), x + 1)
      end
    end)
  end)
end
