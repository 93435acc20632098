-- What a program may do around and inside a compiled function, one thing a test: each gives what
-- it gives without compilation. Random mixtures are in compile_spec.
local flare = require "flare"
local rows = require "spec.support.rows"
local nn, optim = flare.nn, flare.optim

local function same(want, got, what)
  assert(want.shape == got.shape and want.dtype == got.dtype, what)
  local bits = want:eq(got):logical_or(want:ne(want):logical_and(got:ne(got)))
  assert(bits:all():item(), (what or "values") .. " differ")
end

local function near(want, got, what)
  local off = (want - got):abs():max():item()
  assert(off <= 1e-5 * (1 + want:abs():max():item()), ("%s: %g off"):format(what or "values", off))
end

-- Results of `runs` runs of what make(compile) returns, a function of the number of the run, made
-- with compile(f) = f and again with flare.compile.
local function both(runs, make, opts)
  local results, compiled = {}, nil
  for k = 1, 2 do
    flare.manual_seed(3)
    local f = make(function(body)
      if k == 1 then return body end
      compiled = flare.compile(body, opts or {exact = true})
      return compiled
    end)
    results[k] = {}
    for run = 1, runs do results[k][run] = table.pack(f(run)) end
  end
  for run = 1, runs do
    local want, got = results[1][run], results[2][run]
    assert.equal(want.n, got.n)
    for k = 1, want.n do
      if flare.is_tensor(want[k]) then
        (opts and near or same)(want[k], got[k], ("run %d, result %d"):format(run, k))
      else
        assert.same(want[k], got[k])
      end
    end
  end
  return compiled and flare.compile_stats(compiled)
end

for _, device in ipairs(rows.devices) do
  local function randn(...) return flare.randn({...}, {device = device}) end

  describe("a compiled function on " .. device, function()
    it("changes running statistics once a call, and backward sees the write", function()
      both(6, function(compile)
        local bn, w = nn.BatchNorm1d(5):to(device), randn(5):requires_grad_()
        local f = compile(function(x) return bn(x):square():sum() end)
        local stale = compile(function(x)
          local loss = (bn.running_mean * w):sum()
          bn(x)
          return select(2, pcall(loss.backward, loss))
        end)
        return function(run)
          local x = randn(8, 5)
          local y = f(x)
          return y, bn.running_mean:clone(), bn.running_var:clone(), run > 3 and stale(x) or nil
        end
      end)
    end)

    it("has one plan whatever garbage is about", function()
      local f = flare.compile(function(x, w)
        w.grad = nil
        (x * w):sum():backward();
        (x * w * 2):sum():backward()
        return w.grad
      end, {exact = true})
      local x, w, garbage = randn(40), randn(40):requires_grad_(), {}
      for run = 1, 12 do
        local g = f(x, w)
        same(x + x * 2, g)
        garbage[run % 3] = run % 2 == 0 and {g, w.grad, w.grad:detach()} or nil
      end
      assert.is_true(#garbage <= 3)
      assert.equal(1, flare.compile_stats(f).plans)
    end)

    it("checks versions and draws numbers at the time of the call", function()
      both(4, function(compile)
        local generator = flare.generator(5)
        local f = compile(function(x, w)
          local y = x * w * flare.rand(3, {generator = generator, device = device})
          x:add_(1)
          local ok, why = pcall(function() y:sum():backward() end)
          why = tostring(why):gsub(":%d+:", "")
          return ok, why, generator:state(), flare.rand_like(x), w.version
        end)
        return function() return f(randn(3), randn(3):requires_grad_()) end
      end)
    end)

    it("has run what reads memory before the host writes it", function()
      both(4, function(compile)
        local scale = flare.full({}, 2, {device = device})
        local f = compile(function(x)
          local y, z = x * 2, x * scale
          x[{1, 1}] = 100
          local a = x + 1
          x:copy_(flare.ones(2, 3) * 5)
          scale:fill_(3)
          local b = x + scale
          scale:fill_(2)
          return y, z, a, b
        end)
        return function() return f(randn(2, 3)) end
      end)
    end)

    it("keeps what earlier calls have returned, and their graphs", function()
      both(4, function(compile)
        local w = randn(6):requires_grad_()
        local f = compile(function(x) return (x * w + 1):tanh() end)
        return function()
          w.grad = nil
          local x1, x2 = randn(6), randn(6)
          local a = f(x1)
          local b = f(x2)
          local c = a:detach():clone();
          (a * b):sum():backward()
          return a, b, c, w.grad
        end
      end)
    end)

    it("gives what is assigned now and then, after its inputs are overwritten", function()
      both(9, function(compile)
        local last
        local w = randn(4, 4):requires_grad_()
        local opt = optim.SGD({w}, {lr = 0.1})
        local step = compile(function(x, n)
          opt:zero_grad()
          local h = x:matmul(w):tanh()
          local loss = (h * h):sum()
          if n % 3 == 0 then last = h end
          loss:backward()
          opt:step()
          return loss
        end)
        return function(n)
          local loss = step(randn(2, 4), n)
          return loss, n >= 3 and last:detach() or nil, w:detach():clone()
        end
      end)
    end)

    it("gives results the layout that they have otherwise", function()
      local x = randn(2, 3, 4, 5)
      local function body(t)
        local c = t:to {layout = "channels_last"}
        return t:transpose(2, 3) * 2 + 1, c:relu() + 1, (c * 2):contiguous(),
          t:permute(4, 3, 2, 1):exp()
      end
      local f = flare.compile(body, {exact = true})
      for _ = 1, 3 do
        local want, got = {body(x)}, {f(x)}
        for k in ipairs(want) do
          same(want[k], got[k])
          assert.same({want[k]:stride()}, {got[k]:stride()})
        end
      end
    end)

    it("takes positions of slices as they are in each call", function()
      both(8, function(compile)
        local data = flare.arange(64, {device = device}):to "f32"
        local f = compile(function(k) return data:narrow(1, k * 4 + 1, 4) * 2, data[k] + 1 end)
        return function(run) return f(run) end
      end)
    end)

    it("has one plan for numbers that begin as 1 or 0", function()
      local x = randn(20)
      local f = flare.compile(function(a, b) return x * a + b end, {exact = true})
      for _, p in ipairs {{1.0, 0.0}, {1.0, 0.0}, {0.5, 2.0}, {0.0, 1.0}, {1 / 0, 0.0}} do
        same(x * p[1] + p[2], f(p[1], p[2]))
      end
      assert.equal(1, flare.compile_stats(f).plans)
    end)

    it("knows which arguments share memory", function()
      both(9, function(compile)
        local f = compile(function(a, b)
          a:mul_(2)
          local y = a + b
          b:add_(1)
          return y * a, a - b
        end)
        return function(run)
          local a, b = randn(6), randn(6)
          if run % 3 == 0 then return f(a, a) end
          if run % 3 == 1 then return f(a:narrow(1, 1, 4), a:narrow(1, 2, 4)) end
          return f(a, b)
        end
      end)
    end)

    it("drops layers by chance, on more paths than it remembers", function()
      local stats = both(60, function(compile)
        local layers = {}
        for k = 1, 12 do layers[k] = randn(4, 4) end
        local f = compile(function(x, draws)
          for k, w in ipairs(layers) do
            if draws >> k & 1 == 1 then x = (x:matmul(w) * 0.3):tanh() + x end
          end
          return x
        end)
        return function(run) return f(randn(2, 4), run * 2654435761 >> 7) end
      end)
      assert.is_true(stats.plans <= 32)
    end)

    it("has one plan for whatever part of its values is kept", function()
      local x, kept = randn(30), {}
      local f = flare.compile(function(t, n)
        local a = t * 2
        local b = a + 1
        local c = b:tanh()
        if n == 3 then kept[1] = a end
        if n == 5 then kept[2] = b end
        return c
      end, {exact = true})
      for n = 1, 8 do same((x * 2 + 1):tanh(), f(x, n)) end
      same(x * 2, kept[1])
      same(x * 2 + 1, kept[2])
      assert.equal(1, flare.compile_stats(f).plans)
    end)

    it("runs hooks and backward functions that read values", function()
      both(4, function(compile)
        local w, seen = randn(5):requires_grad_(), {}
        local f = compile(function(x)
          w.grad = nil
          local h = x * w
          h:register_hook(function(g)
            seen[#seen + 1] = g:sum():item()
            return g:clamp(-1, 1)
          end)
          h:square():sum():backward()
          return w.grad:clone()
        end)
        return function()
          local g = f(randn(5))
          return g, seen[#seen]
        end
      end)
    end)

    it("leaves gradients that are there, and none where they were taken away", function()
      both(5, function(compile)
        local a, b = randn(5):requires_grad_(), randn(5):requires_grad_()
        local f = compile(function(x)
          a.grad, b.grad = nil, nil;
          (x * a + b):square():sum():backward()
          local norm = a.grad:norm()
          b.grad = nil
          return norm
        end)
        return function()
          local norm = f(randn(5))
          return norm, a.grad, b.grad == nil
        end
      end)
    end)

    it("trains with GradScaler, clipping and autocast, over steps that overflow", function()
      both(10, function(compile)
        local net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)):to(device)
        local opt = optim.AdamW(net:parameters(), {lr = 0.01})
        local scaler = optim.GradScaler {scale = 1024}
        local step = compile(function(x, boost)
          opt:zero_grad()
          local loss = flare.autocast("f16", function() return net(x):square():mean() end) * boost
          scaler:scale(loss):backward()
          scaler:unscale_(opt)
          optim.clip_grad_norm_(net:parameters(), 1)
          scaler:step(opt)
          scaler:update()
          return loss
        end)
        return function(run)
          step(randn(4, 6), run == 6 and 1e30 or 1)
          return scaler:state_dict().scale, net[1].weight:detach():clone()
        end
      end, {exact = true})
    end)

    it("draws the same numbers, in dropout and in checkpoints, too", function()
      both(5, function(compile)
        local w = randn(6, 6):requires_grad_()
        local f = compile(function(x)
          w.grad = nil
          local h = flare.checkpoint(function(t)
            return nn.functional.dropout(t:matmul(w), 0.5):tanh()
          end, x)
          local y = nn.functional.dropout(h * flare.rand_like(h), 0.3)
          y:sum():backward()
          return y:detach(), w.grad
        end)
        return function() return f(randn(3, 6)) end
      end)
    end)

    it("names the line of a failure in a plan", function()
      local line
      local f = flare.compile(function(x, at)
        local y = x * 2 + 1
        line = debug.getinfo(1, "l").currentline + 1
        local z = y:index_select(1, at)
        return (z * 3):exp()
      end)
      local x = randn(5, 3)
      local at = flare.tensor({1, 2}, {dtype = "i64", device = device})
      for _ = 1, 3 do f(x, at):totable() end
      at[2] = 9
      for _ = 1, 2 do
        local ok, why = pcall(function() return f(x, at):totable() end)
        assert(not ok and why:find "9 is out of range 1..5", why)
        assert(device == "cpu" or why:find("compile_scenarios_spec.lua:" .. line, 1, true), why)
      end
    end)
  end)
end

describe("a compiled training step", function()
  it("changes no parameter where a value was wrong", function()
    local net = nn.Embedding(5, 3)
    local opt = optim.AdamW(net:parameters(), {lr = 0.1})
    local count = flare.zeros(1)
    local step = flare.compile(function(at)
      opt:zero_grad()
      net(at):square():sum():backward()
      opt:step()
      count:add_(1)
    end)
    local good = flare.tensor({1, 2, 5}, {dtype = "i64"})
    for _ = 1, 4 do step(good) end
    local before = net.weight:detach():clone()
    for _ = 1, 3 do
      assert.error_matches(function() step(flare.tensor({1, 0, 2}, {dtype = "i64"})) end,
        "position 0 is out of range")
      same(before, net.weight:detach())
      assert.equal(4, count:item())
    end
    step(good)
    assert.equal(5, count:item())
  end)
end)
