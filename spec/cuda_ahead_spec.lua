-- Kernels of a plan are compiled by threads beside the program, once each, while calls run without
-- the plan, on a driver whose kernels do nothing. The compiler waits until a file exists.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"

local script = [[
  local flare = require "flare"
  local function randn(...) return flare.randn({...}, {device = "cuda"}) end
  local x, w = randn(64, 96), randn(96, 96)
  local step = flare.compile(function()
    local y = x
    for k = 1, 4 do -- four kernels of rows, each with numbers of its own
      y = (y * (y * y):mean(-1, {keepdim = true}) + k):matmul(w)
      y = y:narrow(2, 1, 96 - 8 * k):contiguous()
      y = flare.cat({y, y:narrow(2, 1, 8 * k)}, 2)
    end
    return y
  end)
  for _ = 1, CALLS do step() end
  print(flare.compile_stats(step).kernels - 4) -- but the products
]]

-- How often a kernel "tile" was compiled, and how many the plan has.
local function compile(calls, settings)
  local names = place .. "/compiled"
  os.remove(names)
  local said, status = fakes.run(place, settings .. " FAKE_COMPILED=" .. names,
    (script:gsub("CALLS", calls)))
  assert.equal(0, status, said)
  local file = io.open(names)
  local _, n = ("\n" .. (file and file:read "a" or "")):gsub("\ntile%f[\n]", "")
  if file then file:close() end
  return n, tonumber(said)
end

describe("kernels of a plan on a GPU that computes nothing", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  for _, cache in ipairs {"off", place .. "/cache"} do
    it("are compiled once each with the cache " .. (cache == "off" and cache or "on"), function()
      local n, kernels = compile(6, "FLARE_CACHE=" .. cache)
      assert(kernels >= 4)
      assert.equal(kernels, n)
      assert.equal(n, (compile(2, "FLARE_CACHE=off"))) -- a program that ends soon after
      if cache ~= "off" then assert.equal(0, (compile(6, "FLARE_CACHE=" .. cache))) end
    end)
  end

  local go = place .. "/go"

  -- Calls of the step: `blocked` of them before the compiler goes on, then until it is `done`.
  local function beside(word, done, last)
    os.remove(go)
    local settings = ("FLARE_COMPILE=on FLARE_CACHE=off FAKE_TILES='%s'"):format(go)
    local said, status = fakes.run(place, settings, ([[
      local flare = require "flare"
      local function randn(...) return flare.randn({...}, {device = "cuda"}) end
      local x, w = randn(64, 96), randn(96, 96)
      local step = flare.compile(function()
        return ((x * (x * x):mean(-1, {keepdim = true}) + 1):matmul(w)):softmax(-1)
      end)
      local function stats() return flare.compile_stats(step) end
      local function go()
        local name = %q
        local file = assert(io.open(name .. ".new", "w"))
        file:write(%q)
        file:close()
        os.rename(name .. ".new", name) -- the compiler may look at any time
      end
      for _ = 1, 5 do step() end
      assert(stats().planned == 0 and stats().unready == 4, stats().unready)
      %s
    ]]):format(go, word, last or ([[
      go()
      for turn = 1, 5000 do
        step()
        if %s then break end
        assert(turn < 5000)
        os.execute "sleep 0.01"
      end
      local before = stats()
      for _ = 1, 3 do step() end
      print(stats().planned - before.planned, stats().unready - before.unready, stats().failure)
    ]]):format(done)))
    assert.equal(0, status, said)
    return said
  end

  it("are swapped in when all are there", function()
    assert.equal("3\t0\tnil\n", beside("", "stats().planned > 0"))
  end)

  it("are all there when the plan first runs, those of lists too", function()
    local said, status = fakes.run(place, ("FLARE_COMPILE=on FLARE_CACHE=off FAKE_COMPILED='%s'")
      :format(place .. "/names"), [[
      local flare = require "flare"
      local net = flare.nn.Sequential()
      for _ = 1, 4 do net:append(flare.nn.Linear(32, 32)):append(flare.nn.Tanh()) end
      net:to "cuda"
      local x = flare.randn({8, 32}, {device = "cuda"})
      local step = flare.compile(function()
        for _, p in ipairs(net:parameters()) do p.grad = nil end
        flare.autocast("bf16", function()
          (net(x):to "f32"):square():mean():backward()
        end)
      end)
      local function names()
        local n = 0
        for _ in io.lines(os.getenv "FAKE_COMPILED") do n = n + 1 end
        return n
      end
      for turn = 1, 5000 do
        local before = names()
        step()
        if flare.compile_stats(step).planned > 0 then return print(names() - before) end
        os.execute "sleep 0.01"
      end
    ]])
    assert.equal(0, status, said)
    assert.equal("0\n", said)
  end)

  it("are all there when the plan first runs, those of chunks too", function()
    local said, status = fakes.run(place, ("FLARE_COMPILE=on FLARE_CACHE=off FAKE_COMPILED='%s'")
      :format(place .. "/names"), [[
      local flare = require "flare"
      local F = flare.nn.functional
      local x = flare.randn({512, 64}, {device = "cuda", dtype = "bf16"})
      local w = flare.randn({1000, 64}, {device = "cuda", dtype = "bf16"}):requires_grad_()
      local target = flare.range(1, 512, {dtype = "i64"}):to "cuda"
      local step = flare.compile(function()
        w.grad = nil
        F.cross_entropy(F.linear(x, w), target):backward()
      end, {chunk = 128 * 1000 * 2})
      local function names()
        local n = 0
        for _ in io.lines(os.getenv "FAKE_COMPILED") do n = n + 1 end
        return n
      end
      for turn = 1, 5000 do
        local before = names()
        step()
        local stats = flare.compile_stats(step)
        if stats.planned > 0 then return print(names() - before, stats.chunks) end
        os.execute "sleep 0.01"
      end
    ]])
    assert.equal(0, status, said)
    assert.equal("0\t4\n", said)
  end)

  it("of operators are compiled beside each other in the first call", function()
    local said, status = fakes.run(place, ("FLARE_COMPILE=on FLARE_CACHE=off FAKE_BESIDE='%s'")
      :format(place .. "/beside"), [[
      local flare = require "flare"
      local x = flare.randn({8, 32}, {device = "cuda"})
      local step = flare.compile(function()
        return x:exp(), x:sum(1), x:cumsum(1), x:softmax(2), x:sort(2), x:log(), x:tanh(),
          x:transpose(1, 2):contiguous(), x:amax(2), x:prod(1), x:sin(), x:median(2)
      end)
      local function names()
        local n, f = 0, io.open(os.getenv "FAKE_BESIDE")
        for _ in (f and f:lines() or load "return nil") do n = n + 1 end
        return n
      end
      local before = names()
      step()
      print(names() - before >= 4)
    ]])
    assert.equal(0, status, said)
    assert.equal("true\n", said)
  end)

  it("that cannot be compiled leave the function without a plan", function()
    local said = beside("fail", "stats().failure")
    assert.matches("^0\t0\tcompiling tile: ", said)
  end)

  it("are not waited for by a program, a runtime or a child that ends", function()
    assert.equal("", beside("", nil, "go()"))
    assert.equal("", beside("", nil, "go() os.exit(true, true)"))
    assert.equal("", beside("", nil, "os.execute 'true' step() go()"))
  end)

  it("are waited for where they must be", function()
    assert.equal("1\n", beside("", nil, [[
      go()
      local g = flare.compile(function() return (x * 2 + 1):softmax(-1) end, {wait = true})
      g() g()
      print(flare.compile_stats(g).planned)
    ]]))
  end)
end)
