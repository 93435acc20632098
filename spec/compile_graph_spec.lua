-- Plans of compiled functions as graphs of launches: whatever changes from call to call, the
-- results are those of the calls without one.
local flare = require "flare"
local rows = require "spec.support.rows"
local programs = require "spec.support.programs"
local fakes = require "spec.support.fakes"
local nn, F = flare.nn, flare.nn.functional

local RUNS = 30 -- of which the first have no graph

local function close(a, b, what)
  assert.same(b.shape, a.shape)
  local off = (a - b):abs():max():item()
  assert(off < 1e-4, ("%s: off by %g"):format(what or "values", off))
end

local function replayed(f) return flare.compile_stats(f).replayed end

for _, device in ipairs(rows.devices) do
  if device ~= "cpu" then
  describe("the graph of a plan on " .. device, function()
    local w, x
    local function randn(...) return flare.randn({...}, {device = device}) end
    before_each(function()
      flare.manual_seed(3)
      w, x = randn(8, 8), randn(4, 8)
    end)
    local function layer(a, s) return ((a:matmul(w) * (s or 2)):relu():sum(2) + 1):tanh() end

    it("runs after some calls, unless it is turned off", function()
      local f, plain = flare.compile(layer), flare.compile(layer, {graphs = false})
      for _ = 1, RUNS do close(f(x), layer(x)) plain(x) end
      local stats = flare.compile_stats(f)
      assert.equal(1, stats.graphs)
      assert.is_true(stats.replayed > RUNS / 2)
      assert.is_true(stats.graph_bytes > 0)
      stats = flare.compile_stats(plain)
      assert.same({0, 0, 0}, {stats.graphs, stats.replayed, stats.graph_bytes})
    end)

    it("takes numbers that change", function()
      local f = flare.compile(layer)
      for i = 1, RUNS do close(f(x, i / 7), layer(x, i / 7), i) end
      assert.is_true(replayed(f) > RUNS / 2)
      assert.equal(1, flare.compile_stats(f).graphs)
    end)

    it("takes inputs at other addresses, and leaves results alone", function()
      local f, kept = flare.compile(function(a) return layer(a), {a * 2 + 1} end), {}
      for i = 1, RUNS do
        local a = randn(4, 8)
        local y, more = f(a)
        kept[i] = {a, y, more[1]}
      end
      for i, k in ipairs(kept) do
        close(k[2], layer(k[1]), i)
        close(k[3], k[1] * 2 + 1, i)
      end
      assert.is_true(replayed(f) > 0)
    end)

    it("writes in place, also to what is a view", function()
      local f = flare.compile(function(a, s)
        local b = a * s
        w[2]:add_(b:sum(1))
        return b:matmul(w) + w[2]
      end)
      local want = w:clone()
      for i = 1, RUNS do
        local b = x * (i / 99)
        want[2]:add_(b:sum(1))
        close(f(x, i / 99), b:matmul(want) + want[2], i)
      end
      close(w, want)
      assert.is_true(replayed(f) > RUNS / 2)
    end)

    it("alternates with others, whose memory it shares", function()
      local f, g = flare.compile(layer), flare.compile(function(a)
        return ((a + 1):square():matmul(w) * 3):exp():sum(1)
      end)
      local function wanted(a) return ((a + 1):square():matmul(w) * 3):exp():sum(1) end
      for i = 1, RUNS do
        local a = randn(4, 8) * 0.01
        local y, z = f(a, i), g(a)
        close(y, layer(a, i), i)
        close(z / wanted(a), flare.ones({8}, {device = device}), i)
      end
      assert.is_true(replayed(f) > 0 and replayed(g) > 0)
    end)

    local function net()
      return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Dropout(0.3),
        nn.Linear(16, 4)):to(device)
    end

    -- The losses of a run of steps.
    local function train(wrap, make)
      flare.manual_seed(11)
      local model = net()
      local opt = make(model:parameters())
      local y = flare.ones({4}, {device = device, dtype = "i64"})
      local step = wrap(function(a)
        opt:zero_grad()
        local loss = F.cross_entropy(model(a), y)
        loss:backward()
        opt:step()
        return loss
      end)
      local losses = {}
      for i = 1, RUNS do
        for _, group in ipairs(opt.groups or {}) do group.lr = 0.01 / i end
        losses[i] = step(randn(4, 8))
      end
      for i = 1, RUNS do losses[i] = losses[i]:item() end
      return losses, step
    end

    for name, make in pairs {
      Adam = function(p) return flare.optim.AdamW(p, {lr = 0.01}) end,
      SGD = function(p) return flare.optim.SGD(p, {lr = 0.01, momentum = 0.9}) end,
    } do
      it("has a training step of " .. name .. ", with the same random numbers", function()
        local want = train(function(f) return f end, make)
        local got, step = train(flare.compile, make)
        for i = 1, RUNS do assert.near(want[i], got[i], 1e-4) end
        assert.is_true(replayed(step) > RUNS / 3)
      end)
    end

    it("adds to gradients that stay", function()
      local p = randn(8, 8):requires_grad_(true)
      local f = flare.compile(function(a) (a:matmul(p) * 2):square():sum():backward() end)
      local want
      for i = 1, RUNS do
        local q = p:detach():clone():requires_grad_(true)
        f(x);
        (x:matmul(q) * 2):square():sum():backward()
        want = want and want + q.grad or q.grad
        if i % 10 == 0 then
          assert.is_true((p.grad / want - 1):abs():max():item() < 1e-3)
          p.grad, want = nil, nil
        end
      end
      assert.is_true(replayed(f) > 0)
    end)

    it("is made of what runs between values that are read", function()
      local function body(a)
        local s = (a * 2 + 1):sum():item()
        local b = (a:matmul(w) * s):tanh()
        if b:sum():item() > 1e9 then return a end
        return b * 2 + 1
      end
      local f = flare.compile(body)
      for _ = 1, RUNS do
        local a = randn(4, 8)
        close(f(a), body(a))
      end
    end)

    it("reports positions that are out of range, and goes on", function()
      local table, m = randn(10, 4), randn(4, 4)
      local function read(at) return (table:index_select(1, at) * 2 + 1):exp():matmul(m) end
      local f = flare.compile(read)
      local good = flare.tensor({1, 5, 10}, {dtype = "i64", device = device})
      local bad = flare.tensor({1, 99, 10}, {dtype = "i64", device = device})
      for i = 1, RUNS do
        if i % 12 == 0 then
          assert.error_matches(function() f(bad):tolist() end,
            "99 is out of range.*compile_graph_spec.lua")
        end
        close(f(good), read(good), i)
      end
      assert.is_true(replayed(f) > RUNS / 3)
    end)

    it("leaves launches to the profiler one by one", function()
      local f = flare.compile(layer)
      for _ = 1, RUNS do f(x) end
      local before = replayed(f)
      flare.profile(function() for _ = 1, 5 do f(x) end end)
      assert.equal(before, replayed(f))
      close(f(x), layer(x))
      assert.equal(before + 1, replayed(f))
    end)

    it("is inside of a graph of the user's", function()
      local f = flare.compile(layer)
      for _ = 1, RUNS do f(x) end
      local g = flare.cuda.graph(f, x)
      for _ = 1, 3 do
        local a = randn(4, 8)
        close(g(a), layer(a))
        close(f(a), layer(a))
      end
      g:close()
      close(f(x), layer(x))
    end)

    it("goes away with its function while it runs", function()
      local kept = {}
      for _ = 1, 5 do
        local f = flare.compile(layer)
        for _ = 1, RUNS do kept[#kept + 1] = f(x) end
        assert.is_true(replayed(f) > 0)
        f = nil -- luacheck: ignore
        collectgarbage()
        collectgarbage()
      end
      for i, y in ipairs(kept) do close(y, layer(x), i) end
    end)

    it("returns its memory when the function goes", function()
      collectgarbage()
      flare.memory.flush(device)
      local before = flare.memory.stats(device)
      do
        local f = flare.compile(layer)
        for _ = 1, RUNS do f(x) end
        assert.is_true(flare.compile_stats(f).graph_bytes > 0)
        -- what its launches use counts, though no tensor has it: the results of three
        assert.is_true(flare.memory.stats(device).live >= before.live + 4 * 8 * 4)
      end
      collectgarbage()
      collectgarbage()
      flare.memory.flush(device)
      local after = flare.memory.stats(device)
      assert.is_true(after.live <= before.live)
      assert.is_true(after.reserved <= before.reserved)
    end)

    it("gives its memory back when there is no other", function()
      local f = flare.compile(layer)
      for _ = 1, RUNS do f(x) end
      assert.equal(1, flare.compile_stats(f).graphs)
      local limit = flare.memory.stats(device).reserved
      flare.memory.limit(limit, device)
      local ok, why = pcall(function()
        local big = {}
        for i = 1, 200 do big[i] = flare.zeros({1 << 16}, {device = device}) end
        return big
      end)
      flare.memory.limit(0, device)
      assert.is_false(ok)
      assert.truthy(tostring(why):find "out of memory")
      assert.equal(0, flare.compile_stats(f).graphs)
      for _ = 1, RUNS do close(f(x), layer(x)) end
      assert.equal(1, flare.compile_stats(f).graphs)
    end)

    it("computes any program", function()
      local count = tonumber(os.getenv "FLARE_PROGRAMS") or 40
      programs.check(device, count, true, {first = 1000, turns = 14})
      programs.check(device, count, true, {first = 2000, turns = 16, wild = true})
    end)

    it("is done without where memory for it fails", function()
      local fail = flare.core.memory.fail
      for skip = 0, 60 do
        local f = flare.compile(layer)
        for _ = 1, 9 do f(x) end
        for _ = 1, 4 do
          fail(skip, 1)
          local ok, y = pcall(f, x)
          fail(0, 0)
          if ok then close(y, layer(x), skip) end
        end
        close(f(x), layer(x), skip)
      end
    end)
  end)
  end
end

describe("the graph of a plan on a GPU whose kernels do nothing", function()
  local place = os.tmpname() .. ".d"
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  -- f: a small layer, run until it has a graph; launched(): what the device got since.
  local head = [==[
local flare = require "flare"
local names = os.getenv "FAKE_LAUNCHED"
local function launched()
  local list = {}
  for line in io.lines(names) do list[#list + 1] = line:match "^[%w ]+" end
  io.open(names, "w"):close()
  return table.concat(list, ", ")
end
local device = {device = "cuda"}
local w, x = flare.zeros({8, 8}, device), flare.zeros({4, 8}, device)
local f = flare.compile(function(a, s) return (a:matmul(w) * (s or 2)):tanh():matmul(w) end)
for _ = 1, 20 do f(x) end
collectgarbage()
local y = f(x)
y = nil
collectgarbage()
]==]

  local function run(settings, script)
    return fakes.run(place, ("FLARE_CACHE=off FAKE_LAUNCHED='%s/launched' %s")
      :format(place, settings), head .. script)
  end

  it("is launched as a whole, with what has changed", function()
    local said, status = run("", [[
launched()
f(x)
print((launched():gsub("set simt, ", "")))
f(x, 3)
print((launched():gsub("set simt, ", "")))
print(flare.compile_stats(f).graphs)
]])
    assert.equal("graph, simt, map, simt\nset map, graph, simt, map, simt\n1\n", said)
    assert.equal(0, status)
  end)

  it("holds what cannot change for the addresses that come again", function()
    local said = run("", [[
local idx = flare.ones({4}, {device = "cuda", dtype = "i64"})
local h = flare.compile(function(a) return (w:index_add(1, idx, a) + 1):matmul(w) end)
local a, b = flare.zeros({4, 8}, device), flare.zeros({4, 8}, device)
for _ = 1, 20 do h(a) end
for _ = 1, 20 do h(b) end
print(flare.compile_stats(h).graphs, flare.compile_stats(h).replayed)
]])
    assert.equal("2\t29\n", said)
  end)

  it("is not made of what waits for the device", function()
    local said, status = run("", [[
local a = flare.zeros({3, 3}, device)
local h = flare.compile(function(s) return (flare.matrix_exp(a * s) + 1):matmul(a) end)
for i = 1, 40 do h(i) end
local stats = flare.compile_stats(h)
print(stats.graphs, stats.replayed, stats.planned > 30)
]])
    assert.equal("0\t0\ttrue\n", said)
    assert.equal(0, status)
  end)

  it("is not made of long launches, nor of one alone", function()
    local said = run("", [[
local big = flare.zeros({4096, 4096}, device)
local long = flare.compile(function() return (big:matmul(big) * 2 + 1):matmul(big) end)
local short = flare.compile(function() return (x * 2 + 1):tanh() end)
for _ = 1, 20 do long() short() end
print(flare.compile_stats(long).graphs, flare.compile_stats(short).graphs)
]])
    assert.equal("0\t0\n", said)
  end)

  it("goes on by launches where a library ends the capture", function()
    local said, status = run("FAKE_BREAKS='map<4, 1, 0, 0, 2>'", [[
print(flare.compile_stats(f).graphs, flare.compile_stats(f).replayed)
for _ = 1, 20 do f(x) end
launched()
f(x)
print(launched())
]])
    assert.equal("0\t0\nsimt, map, simt\n", said)
    assert.equal(0, status)
  end)

  it("has tiles that the host runs, too", function()
    local said, status = run("", [[
local function body(a) return (a * 2 + 1):softmax(2) * a end
local there, here, b = flare.compile(body), flare.compile(body), flare.randn(4, 8)
for _ = 1, 4 do
  there(x)
  there(flare.zeros({36}, device)[{{2, 33}}]:view(4, 8)) -- not aligned
  print((here(b) - body(b)):abs():max():item() < 1e-6)
end
]])
    assert.equal(("true\n"):rep(4), said)
    assert.equal(0, status)
  end)

  it("waits for each run with FLARE_SYNC=1", function()
    local said = run("FLARE_SYNC=1", "print(flare.compile_stats(f).replayed > 5)")
    assert.equal("true\n", said)
  end)
end)
