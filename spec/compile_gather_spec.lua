-- Compiled functions: reads and sums at positions. What they have to give is computed with numbers
-- of Lua.
local flare = require "flare"
local core = require "flare.core"
local fakes = require "spec.support.fakes"
local rows = require "spec.support.rows"
local tree = require "spec.support.tree"

local function near(want, got)
  assert.equal(#want, #got)
  for i, row in ipairs(want) do
    for j, x in ipairs(row) do
      local off = math.abs(x - got[i][j])
      assert(off <= 1e-5 * (1 + math.abs(x)), ("%d, %d: %g for %g"):format(i, j, got[i][j], x))
    end
  end
end

-- A table of n rows, f(i, j) in column j.
local function matrix(n, columns, f)
  local t = {}
  for i = 1, n do
    t[i] = {}
    for j = 1, columns do t[i][j] = f(i, j) end
  end
  return t
end

-- Runs f three times, the last twice by a plan.
-- @return the last result, launches and kernels of the plan
local function plan(f, ...)
  local compiled, object = core.compiled(f, false, true)
  local y
  for _ = 1, 3 do y = compiled(...) end
  local stats = core.compiled_stats(object)
  return y, stats.launches, stats.kernels
end

it("positions into a cat read nothing outside of its pieces", function()
  local code = [[
    local flare = require "flare"
    local a = flare.randn(4, 10) -- the first tensor of a process: what lies before is not mapped
    local function both(dim, list)
      local at = flare.tensor(list, {dtype = "i64"})
      local function f(x)
        local y = flare.cat({x:narrow(2, 6, 5):neg(), x:narrow(2, 1, 5) * 2}, 2)
        return y:index_select(dim, at):softmax(-1)
      end
      return (f(a) - flare.core.compiled(f, false, true)(a)):abs():max():item() < 1e-6
    end
    print(both(1, {1, 4, 1, 3}), both(2, {1, 9, 1, 3, 10, 6, 5}))
  ]]
  assert.equal("true\ttrue\n", tree.output(("'%s/flare' -e '%s' 2>&1"):format(tree.build, code)))
end)

for _, device in ipairs(rows.devices) do
  describe("positions in compiled functions on " .. device, function()
    local x, a, at, list
    before_each(function()
      flare.manual_seed(3)
      x = flare.randn({7, 70}, {device = device})
      a = x:totable()
      list = {3, 7, 7, 1, -1, 4, 3, -7, 2}
      at = flare.tensor(list, {dtype = "i64", device = device})
    end)
    local function row(k) return list[k] < 0 and list[k] + 8 or list[k] end
    local function zeros(...) return flare.zeros({...}, {device = device}) end

    it("are read in the kernel of what comes before and after", function()
      local y, launches, kernels = plan(function()
        return ((x * 2 + 1):index_select(1, at) * 3):view(9, 2, 35) - 1
      end)
      assert.same({5, 1}, {launches, kernels})
      near(matrix(9, 70, function(i, j) return (a[row(i)][j] * 2 + 1) * 3 - 1 end),
        y:view(9, 70):totable())
    end)

    it("select columns, of which each element may have its own", function()
      local columns = flare.tensor({70, 1, 5, -2}, {dtype = "i32", device = device})
      local y = plan(function() return x:index_select(2, columns):tanh() + 1 end)
      local of = {70, 1, 5, 69}
      near(matrix(7, 4, function(i, j) return (math.exp(2 * a[i][of[j]]) - 1)
        / (math.exp(2 * a[i][of[j]]) + 1) + 1 end), y:totable())
      local each = matrix(7, 3, function(i, j) return (i * 11 + j * 17) % 70 + 1 end)
      local index = flare.tensor(each, {dtype = "i64", device = device})
      local z, _, kernels = plan(function() return x:gather(2, index) * 2 end)
      assert.equal(1, kernels)
      near(matrix(7, 3, function(i, j) return a[i][each[i][j]] * 2 end), z:totable())
    end)

    it("are followed by other positions", function()
      local second = flare.tensor({9, 2, 5}, {dtype = "i64", device = device})
      local y = plan(function() return (x:index_select(1, at) * 2):index_select(1, second) + 1 end)
      near(matrix(3, 70, function(i, j) return a[row(({9, 2, 5})[i])][j] * 2 + 1 end), y:totable())
    end)

    it("choose what a row has been reduced to", function()
      local label = flare.tensor({{1}, {70}, {3}, {44}, {9}, {2}, {70}},
        {dtype = "i64", device = device})
      local y = plan(function() return x:log_softmax(2):gather(2, label):neg() end)
      near(matrix(7, 1, function(i)
        local sum = 0
        for j = 1, 70 do sum = sum + math.exp(a[i][j]) end
        return math.log(sum) - a[i][label:totable()[i][1]]
      end), y:totable())
    end)

    it("are those of before a write to the source", function()
      local y = plan(function()
        local v = x:clone()
        local before = v:index_select(1, at) + 1
        v:mul_(10)
        return before + v:index_select(1, at)
      end)
      near(matrix(9, 70, function(i, j) return a[row(i)][j] * 11 + 1 end), y:totable())
    end)

    it("add what the kernel computes", function()
      local y, launches, kernels = plan(function()
        local e = x:index_select(1, at) * 2
        return zeros(7, 70):index_add(1, at, e + 1) + x
      end)
      assert.same({6, 3}, {launches, kernels}) -- zeros, the sum, what is added to it
      near(matrix(7, 70, function(i, j)
        local sum = a[i][j]
        for k = 1, 9 do sum = sum + (row(k) == i and a[i][j] * 2 + 1 or 0) end
        return sum
      end), y:totable())
    end)

    it("add elements with positions of their own, all of equal ones", function()
      local index = flare.tensor({{2, 2, 1}, {3, 2, 2}}, {dtype = "i64", device = device})
      local v = flare.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = "f32", device = device})
      local y = plan(function() return zeros(3, 3):scatter_add(1, index, v * 2) end)
      near({{0, 0, 6}, {2, 14, 12}, {8, 0, 0}}, y:totable())
      local same = flare.tensor({{1}, {1}}, {dtype = "i64", device = device}):expand(2, 3)
      local z = plan(function() return zeros(2, 2):scatter_add(2, same, v * 0 + 1) end)
      near({{3, 0}, {3, 0}}, z:totable())
    end)

    it("give gradients of tables, without the row of the padding", function()
      local w = x:clone():requires_grad_()
      local index = flare.tensor({1, 4, 4, 7, 2, 1}, {dtype = "i64", device = device})
      local step = function()
        w.grad = nil
        local y = flare.embedding(w, index, {padding = 7})
        local loss = (y * y * 0.5):sum()
        loss:backward()
        return w.grad
      end
      local y, launches, kernels = plan(step)
      assert(kernels < launches)
      local times = {2, 1, 0, 2, 0, 0, 0}
      near(matrix(7, 70, function(i, j) return a[i][j] * times[i] end), y:totable())
    end)

    it("give second derivatives", function()
      local v = x:clone():requires_grad_()
      local y = plan(function()
        local e = v:index_select(1, at)
        local g = flare.grad((e * e * e):sum(), v, {create_graph = true})
        return flare.grad((g * 0.5):sum(), v)
      end)
      near(matrix(7, 70, function(i, j)
        local n = 0
        for k = 1, 9 do n = n + (row(k) == i and 1 or 0) end
        return 3 * a[i][j] * n
      end), y:totable())
    end)

    it("that are bad are reported as without compile", function()
      local function f(i, j)
        local e = (x * 2):index_select(1, i)
        return zeros(7, 70):index_add(1, j, e * 2)
      end
      local compiled = core.compiled(f, false, true)
      for _ = 1, 3 do compiled(at, at) end
      for bad, said in pairs {[8] = "8 is out", [0] = "0 is out", [-8] = "-8 is out"} do
        local index = flare.tensor({1, 2, 3, 4, bad, 6, 7, 1, 2}, {dtype = "i64", device = device})
        for k = 1, 2 do
          local ok, why = pcall(function()
            return compiled(k == 1 and index or at, k == 2 and index or at):sum():item()
          end)
          assert.is_false(ok)
          assert.truthy(why:find(("%s: position %s of range 1..7"):format(
            k == 1 and "index_select" or "index_add", said), 1, true), why)
        end
      end
      near(f(at, at):totable(), compiled(at, at):totable())
    end)

    it("may be none, or of a single row", function()
      local none = flare.tensor({}, {dtype = "i64", device = device})
      assert.same({0, 70}, plan(function() return x:index_select(1, none) * 2 end).shape)
      local one = x:narrow(1, 3, 1)
      local first = flare.tensor({1, -1}, {dtype = "i64", device = device})
      local y = plan(function() return (one * 2):index_select(1, first) + 1 end)
      near(matrix(2, 70, function(_, j) return a[3][j] * 2 + 1 end), y:totable())
      local bad = flare.tensor({1, 2}, {dtype = "i64", device = device})
      local compiled = core.compiled(function(i) return (one * 2):index_select(1, i) + 1 end, false,
        true)
      for _ = 1, 3 do compiled(first) end
      assert.is_false((pcall(function() return compiled(bad):sum():item() end)))
    end)
  end)
end

describe("sums at positions on a GPU", function()
  local folder = os.tmpname()
  setup(function()
    os.remove(folder)
    fakes.machine(folder)
  end)
  teardown(function() os.execute(("rm -r '%s'"):format(folder)) end)

  it("stay kernels of their own where results must not vary", function()
    local text, status = fakes.run(folder, "FLARE_CACHE=off", [[
      local flare = require "flare"
      local x = flare.ones({8, 64}, {device = "cuda"})
      local at = flare.ones({8}, {dtype = "i64", device = "cuda"})
      local f = flare.compile(function()
        return flare.zeros({8, 64}, {device = "cuda"}):index_add(1, at, x * 2 + 1)
      end)
      for _, on in ipairs {false, true} do
        flare.backends {deterministic = on}
        for _ = 1, 3 do f() end
        print(flare.compile_stats(f).kernels)
      end]])
    assert.equal("2\n3\n", text)
    assert.equal(0, status)
  end)

  it("read from memory what is too large for caches", function()
    local text, status = fakes.run(folder, "FLARE_CACHE=off", [[
      local flare = require "flare"
      local cuda = {device = "cuda"}
      local function kernels(rows, positions, f)
        local x, y = flare.ones({rows, 256}, cuda), flare.ones({rows, 256}, cuda)
        local at = flare.ones({positions}, {dtype = "i64", device = "cuda"})
        local g = flare.compile(function() return f(x, y):index_select(1, at):exp() end)
        for _ = 1, 3 do g() end
        print(flare.compile_stats(g).kernels)
      end
      local function one(x) return x * 2 + 1 end
      local function two(x, y) return x * y + 1 end
      kernels(65536, 16 * 65536, two) -- twice 64 MiB at positions, where once is enough
      kernels(65536, 16 * 65536, one)
      kernels(1024, 16 * 1024, two) -- 1 MiB each
      kernels(65536, 1024, two) -- few positions of a large table]])
    assert.equal("2\n1\n1\n1\n", text)
    assert.equal(0, status)
  end)
end)
