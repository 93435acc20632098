-- Functions compiled with {pure = true}: what a call without the code does is what the code does.
local flare = require "flare"
local programs = require "spec.support.pure_programs"
local nn = flare.nn

local function equal(a, b)
  assert.same(a:to("cpu"):tolist(), b:to("cpu"):tolist())
end

-- A training step, what it trains, and how often its code has run.
local function training(device, class, opts)
  flare.manual_seed(3)
  local s = {runs = 0}
  s.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.25), nn.BatchNorm1d(16),
    nn.Linear(16, 4)):to(device)
  s.opt = flare.optim[class](s.net:parameters(), {lr = 0.05})
  local function step(x, y)
    s.runs = s.runs + 1
    s.opt:zero_grad()
    local loss = (s.net(x) - y):square():mean()
    loss:backward()
    flare.optim.clip_grad_norm_(s.net:parameters(), 0.5)
    s.opt:step()
    return loss
  end
  s.step = opts and flare.compile(step, opts) or step
  return s
end

for _, device in ipairs {"cpu", "sim:0"} do
  local function randn(...) return flare.randn(...):to(device) end

  describe("a pure function on " .. device, function()
    for _, class in ipairs {"SGD", "Adam", "AdamW", "RMSprop", "Lion", "Adagrad"} do
      it("trains as its code does with " .. class, function()
        local data = {}
        for k = 1, 24 do data[k] = {randn(32, 8), randn(32, 4)} end
        local function run(opts)
          local s, losses = training(device, class, opts), {}
          flare.manual_seed(11)
          for k, xy in ipairs(data) do
            if k == 15 then s.opt.groups[1].lr = 0.01 end
            losses[k] = s.step(xy[1], xy[2])
          end
          return s, losses, flare.rand(1):item()
        end
        local plain, losses, draw = run()
        local pure, pure_losses, pure_draw = run {pure = true, exact = true}
        assert.equal(3, pure.runs)
        assert.equal(21, flare.compile_stats(pure.step).traced)
        assert.equal(draw, pure_draw)
        for k in ipairs(data) do
          assert.near(losses[k]:item(), pure_losses[k]:item(), 1e-5)
        end
        local p = plain.net:parameters()
        for i, q in ipairs(pure.net:parameters()) do
          assert.is_true((p[i] - q):abs():max():item() < 1e-5)
          assert.is_true((p[i].grad - q.grad):abs():max():item() < 1e-5)
        end
        local a, b = plain.opt:state_dict(), pure.opt:state_dict()
        assert.equal(24, b.groups[1].state[1].step)
        for i, state in ipairs(a.groups[1].state) do
          for k, m in ipairs(state.moments) do
            assert.is_true((m - b.groups[1].state[i].moments[k]):abs():max():item() < 1e-5)
          end
        end
      end)
    end

    it("takes other tensors of the same shapes, and runs its code for others", function()
      local runs, w = 0, randn(6, 6)
      local f = flare.compile(function(a, b)
        runs = runs + 1
        return (a:matmul(w) + b):tanh(), a
      end, {pure = true, exact = true})
      local function check(a, b, expected)
        local y, same = f(a, b)
        equal((a:matmul(w) + b):tanh(), y)
        assert.is_true(same == a)
        assert.equal(expected, runs)
      end
      for k = 1, 6 do check(randn(4, 6), randn(6), math.min(k, 2)) end
      local rows = randn(40, 6)
      local before = runs
      for k = 0, 6 do f(rows:narrow(1, 1 + 8 * (k % 5), 4), randn(6)) end -- 192 bytes apart
      assert.equal(before, runs)
      check(randn(5, 6), randn(6), before + 1)   -- another shape
      check(randn(6, 4):t(), randn(6), before + 2) -- other strides
      check(randn(4, 6), randn(6), before + 2)
      check(randn(4, 6):to "f64":to "f32", randn(6), before + 2)
      local a = randn(6, 6)
      check(a:narrow(1, 1, 4), a[6], before + 3) -- one memory
    end)

    it("returns new memory in each call", function()
      local x = flare.ones(4):to(device)
      local f = flare.compile(function()
        x:add_(1)
        return {twice = x * 2, list = {x + 1, 7}}, "s"
      end, {pure = true})
      local all = {}
      for k = 1, 8 do
        local t, s = f()
        assert.equal("s", s)
        assert.equal(7, t.list[2])
        all[k] = t
      end
      assert.equal(6, flare.compile_stats(f).traced)
      for k, t in ipairs(all) do
        assert.equal(2 * (k + 1), t.twice[1]:item())
        assert.equal(k + 2, t.list[1][4]:item())
      end
    end)

    it("runs its code when modes, other arguments or `training` differ", function()
      local net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)):to(device)
      local runs = 0
      local forward = net.forward
      function net:forward(...)
        runs = runs + 1
        return forward(self, ...)
      end
      local f = flare.compile(net, {pure = true})
      local x = randn(3, 4)
      local _ <close> = flare.no_grad()
      for _ = 1, 6 do f(x) end
      assert.equal(2, runs)
      net:eval()
      for _ = 1, 6 do equal(forward(net, x), f(x)) end
      assert.equal(4, runs)
      net:train()
      f(x)
      assert.equal(4, runs)
      flare.autocast("bf16", function() f(x) end)
      assert.equal(5, runs)
      local g = flare.compile(function(a, k) runs = runs + 1 return a * k end, {pure = true})
      runs = 0
      for k = 1, 12 do equal(x * (k % 2), g(x, k % 2)) end
      assert.is_true(runs >= 6)
    end)

    it("sees parameters that were replaced, and gradients that were cleared", function()
      local w = randn(4, 4):requires_grad_()
      local x = randn(3, 4)
      local f = flare.compile(function()
        local loss = x:matmul(w):square():sum()
        loss:backward()
        return loss
      end, {pure = true, exact = true})
      local seen
      for _ = 1, 6 do
        w.grad = nil
        f()
        seen = seen or w.grad
        equal(seen, w.grad)
      end
      assert.equal(4, flare.compile_stats(f).traced)
      flare.no_grad(function() w:mul_(2) end)
      w.grad = nil
      f()
      equal(seen * 2, w.grad)
      assert.equal(5, flare.compile_stats(f).traced)
    end)

    it("counts as writes what it writes", function()
      local w = randn(4):requires_grad_()
      local f = flare.compile(function()
        flare.no_grad(function() w:mul_(0.5) end)
      end, {pure = true})
      for _ = 1, 6 do f() end
      local y = (w * w):sum()
      f()
      assert.error_matches(function() y:backward() end, "changed in place since")
    end)

    it("can be part of another, and be profiled", function()
      local x = randn(4, 4)
      local function body(a) return (a * 2 + 1):tanh() end
      local f = flare.compile(body, {pure = true, exact = true})
      local outer = flare.compile(function(a) return f(a) + f(a * 2) end, {exact = true})
      local want = (x * 2 + 1):tanh() + (x * 4 + 1):tanh()
      for _ = 1, 6 do equal(want, outer(x)) end
      for _ = 1, 6 do f(x) end
      flare.profile(function() equal((x * 2 + 1):tanh(), f(x)) end)
      equal((x * 2 + 1):tanh(), f(x))
    end)

    it("computes what random functions compute", function()
      assert.equal(220, programs.check(device, 1, 40))
    end)

    it("draws from the generator as it is set", function()
      local x = flare.ones(4, 6):to(device):requires_grad_()
      local function draws()
        x.grad = nil
        local y = nn.functional.dropout(x, 0.5) + flare.rand_like(x)
        y:square():sum():backward()
        return y:detach()
      end
      local f = flare.compile(draws, {pure = true, exact = true})
      for seed = 1, 8 do
        flare.manual_seed(seed)
        if seed > 5 then flare.rand(7) end
        local y = f()
        local grad, after = x.grad:clone(), flare.rand(1):item()
        flare.manual_seed(seed)
        if seed > 5 then flare.rand(7) end
        equal(draws(), y)
        equal(x.grad, grad)
        assert.equal(after, flare.rand(1):item())
      end
      assert.is_true(flare.compile_stats(f).traced >= 5)
    end)

    it("keeps memory flat", function()
      local s = training(device, "Adam", {pure = true, graphs = false})
      local x, y = randn(32, 8), randn(32, 4)
      for _ = 1, 20 do s.step(x, y) end
      flare.synchronize()
      collectgarbage()
      collectgarbage()
      local before = flare.memory.stats(device).live
      for _ = 1, 200 do s.step(x, y) end
      flare.synchronize()
      collectgarbage()
      collectgarbage()
      assert.is_true(flare.memory.stats(device).live <= before)
    end)

    it("says what cannot be", function()
      local x, w = randn(4, 4), randn(4, 4):requires_grad_()
      local function refuses(text, f, ...)
        local g, args = flare.compile(f, {pure = true}), table.pack(...)
        assert.error_matches(function()
          for _ = 1, 6 do g(table.unpack(args, 1, args.n)) end
        end, text, 1, true)
        w.grad = nil
      end
      refuses("{pure = true} has to end before", function() return (x * 2):sum():item() end)
      refuses("{pure = true} has to end before", function()
        if (x * 2):sum():item() > 0 then return x end
      end)
      local n, h = 0, flare.zeros(4, 4):to(device)
      refuses("a number that mul gets changes", function() n = n + 1 return x * n end)
      refuses("the call before has made", function() h = h * 0.5 + x return h:sum() end)
      refuses("the call before has made", function() (x * w):square():sum():backward() end)
      refuses("need the function for its gradient", function() return (x * w):square() end)
      refuses("result 1 is an object", function() return nn.ReLU() end)
      refuses("share memory", function(a, b) return a + b end, x, x:narrow(1, 1, 4))
      refuses("result 1 is a view of an argument", function(a) return a:t(), a + 1 end, x)
    end)

    it("has a message for an optimizer that does something else than before", function()
      local s = training(device, "SGD", {pure = true})
      local x, y = randn(32, 8), randn(32, 4)
      for _ = 1, 6 do s.step(x, y) end
      s.opt.groups[1].weight_decay = 0.1
      assert.error_matches(function() s.step(x, y) end, "launched other kernels than when")
      s.step(x, y)
    end)
  end)
end

it("a pure function runs as a launch graph", function()
  local device = "sim:0"
  local w = flare.randn(8, 8):to(device)
  local token = flare.randn(4, 8):to(device)
  local f = flare.compile(function()
    token:copy_(((token:matmul(w) * 0.3):tanh() + token):matmul(w):tanh())
    return token
  end, {pure = true, exact = true})
  for _ = 1, 30 do f() end
  local s = flare.compile_stats(f)
  assert.equal(28, s.traced)
  assert.is_true(s.replayed > 5)
end)
