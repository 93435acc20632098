-- Sets, places, histograms of several variables, what passes over NaN, distances and curves:
-- values are NumPy's and PyTorch's.
local expect = require "spec.support.expect"
local flare = require "flare"
local rows = require "spec.support.rows"

local nan = 0 / 0

local close, f64, i64, refused = expect.close, expect.f64, expect.i64, expect.refused

describe("sets", function()
  local a, b = i64{{3, 1}, {2, 3}}, i64{5, 3, 1, 1}

  it("are the distinct elements in order", function()
    assert.same({1, 2, 3, 5}, flare.union1d(a, b):totable())
    assert.same({1, 3}, flare.intersect1d(a, b):totable())
    assert.same({2}, flare.setdiff1d(a, b):totable())
    assert.same({}, flare.setdiff1d(b, b):totable())
    refused("union1d: b must be a tensor, got number", flare.union1d, a, 3)
  end)
end)

describe("places", function()
  it("count as if the tensor were flat, and back", function()
    local flat = i64{1, 6, 7, 24}
    local i, j, k = flare.unravel_index(flat, {2, 3, 4})
    assert.same({{1, 1, 1, 2}, {1, 2, 2, 3}, {1, 2, 3, 4}},
      {i:totable(), j:totable(), k:totable()})
    assert.is_true(flare.ravel_multi_index({i, j, k}, {2, 3, 4}):equal(flat))
    refused("1 tensors of positions for 2 dims", flare.ravel_multi_index, {i}, {2, 3})
  end)

  it("take other elements, with gradients", function()
    local x = flare.zeros(3, 3)
    assert.same({{0, 0, 0}, {1, 2, 3}, {0, 0, 0}},
      x:select_scatter(flare.tensor{1, 2, 3}, 1, 2):totable())
    assert.same({{0, 4, 7}, {0, 5, 8}, {0, 6, 9}},
      x:slice_scatter(flare.tensor{{4, 7}, {5, 8}, {6, 9}}, 2, {2, -1}):totable())
    assert.same({{0, 1, 0}, {0, 0, 2}, {0, 0, 0}},
      x:diagonal_scatter(flare.tensor{1, 2}, {offset = 1}):totable())
    assert.same({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, x:totable())
    local src = flare.randn({3}, {dtype = "f64"})
    assert.is_true(flare.gradcheck(function(y, s)
      return y:select_scatter(s, 2, 1):diagonal_scatter(s * s):slice_scatter(s, 1, {3, 3})
    end, {flare.randn({3, 3}, {dtype = "f64"}), src}))
    refused("there is no dim 3", flare.slice_scatter, x, src, 3, {1, 1})
  end)
end)

describe("histogramdd", function()
  local x = f64{{0, 0}, {1, 2}, {0.5, 1}, {1, 1}, {0.25, 2}}

  it("counts points in cells, and includes the last edges", function()
    local counts, edges = flare.histogramdd(x, {bins = {2, 3}})
    close(counts, {{1, 0, 1}, {0, 2, 1}})
    close(edges[1], {0, 0.5, 1})
    close(edges[2], {0, 2 / 3, 4 / 3, 2})
    close(flare.histogramdd(x, {bins = 1, range = {{0, 0.5}, {0, 1}}}), {{2}})
    close(flare.histogramdd(x, {bins = {f64{0, 1}, f64{0, 1.5, 2}}, weight = f64{1, 2, 3, 4, 5}}),
      {{8, 7}})
    local density = flare.histogramdd(x, {bins = {2, 2}, density = true})
    close(density:sum() * 0.5, f64(1))
    close(flare.histogramdd(f64{{nan}, {1}}, {bins = 1, range = {{0, 2}}}), {1})
  end)

  it("refuses what has no bins", function()
    refused("a matrix of floats", flare.histogramdd, f64{1, 2})
    refused("variable 2: a number of bins or a tensor of edges, got 0", flare.histogramdd, x,
      {bins = {2, 0}})
    refused("variable 1: 2 to 1 is no range", flare.histogramdd, x, {range = {{2, 1}, {0, 1}}})
  end)
end)

describe("NaN", function()
  local x = f64{{1, nan, 4}, {nan, nan, nan}, {-2, 3, nan}}

  it("is passed over", function()
    close(x:nanmax(2), {4, nan, 3})
    close(x:nanmin{dims = {1}, keepdim = true}, {{-2, 3, 4}})
    close(x:nanmax(), f64(4))
    close(x:nanvar{dims = {2}}, {4.5, nan, 12.5})
    close(x:nanvar{dims = {2}, correction = 0, keepdim = true}, {{2.25}, {nan}, {6.25}})
    close(flare.nanstd(x), f64(2.6457513110645907))
    assert.equal(3, i64{1, 3}:nanmax():item())
  end)
end)

describe("distances", function()
  it("are norms of differences", function()
    local x = f64{{0, 0}, {3, 4}, {6, 8}}
    close(flare.pdist(x), {5, 10, 5})
    close(flare.pdist(x, 1), {7, 14, 7})
    close(flare.pdist(x[{{1, 1}}]), flare.zeros({0}, {dtype = "f64"}))
    close(flare.pairwise_distance(x, x + 1, {eps = 0, p = 1, keepdim = true}), {{2}, {2}, {2}})
    close(flare.pairwise_distance(f64{1, 1}, f64{1, 1}), f64(1.4142135623730951e-06))
    close(flare.vecdot(x, x), {0, 25, 100})
    close(flare.vecdot(x, x, 1), {45, 80})
    local z = flare.complex(flare.tensor{1}, flare.tensor{2})
    assert.same({5.0, 0.0}, {flare.vecdot(z, z):item()})
    refused("a row for each point", flare.pdist, f64{1})
  end)

  it("of a matrix to a singular one are its condition", function()
    local x = f64{{1, 2}, {3, 4}}
    close(x:cond(), f64(14.933034373659268))
    close(x:cond(1), f64(21))
    close(x:cond "fro", f64(15))
    close(x:cond(-2), f64(1 / 14.933034373659268))
  end)
end)

describe("curves", function()
  it("of least squares go through their points", function()
    local x = flare.linspace(-1, 2, 7, {dtype = "f64"})
    close(flare.polyfit(x, x * x * 3 - x + 0.5, 2), {3, -1, 0.5})
    close(flare.polyfit(f64{0, 1, 2}, f64{0, 1, 1}, 1), {0.5, 1 / 6})
    close(flare.polyfit(x, flare.stack({x, x * 2}, 2), 1), {{1, 2}, {0, 0}})
    refused("the degree is at least 0", flare.polyfit, x, x, -1)
  end)

  it("of angles have no jumps", function()
    close(flare.unwrap(f64{0, 3, 6, 9 - 2 * math.pi, 12 - 2 * math.pi}), {0, 3, 6, 9, 12})
    close(flare.unwrap(f64{{0, 1}, {3, 2}}, {dim = 1, period = 4}), {{0, 1}, {-1, 2}})
    close(flare.unwrap(f64{5}), {5})
  end)
end)

describe("cdist", function()
  -- short rows are summed in another order of dims than long ones
  for _, sizes in ipairs{{5, 7, 3}, {5, 2, 3}, {40, 50, 32}, {40, 50, 33}, {3, 4, 0}, {0, 3, 2}} do
    local m, n, size = table.unpack(sizes)
    it(("is the norm of differences: %d and %d rows of %d"):format(m, n, size), function()
      local a = flare.randn(2, m, size, {dtype = "f64"})
      local b = flare.randn(n, size, {dtype = "f64"})
      for _, p in ipairs{1, 2, math.huge} do
        if size > 0 or p < math.huge then
          local want = (a:unsqueeze(3) - b):norm{p = p, dims = {-1}}
          close(flare.cdist(a, b, p), want)
        end
      end
    end)
  end

  it("is on each device what it is on the CPU", function()
    local generator = flare.generator(5)
    local function randn(...) return flare.randn({...}, {generator = generator}) end
    local few, many = randn(70, 24), randn(1500, 20)
    local cases = {
      {many, randn(20, 1400):t()}, {randn(20, 1500):t(), many}, -- large tiles
      {randn(2, 70000), randn(3, 70000)}, {randn(3, 1, 9, 700), randn(2, 5, 700)}, -- sums in pieces
      {randn(257, 3), randn(300, 3)}, {randn(300, 1), randn(33, 1)},
      {few, few}, {few, few:clone()}, {few + 1000, few * (1 + 1e-6) + 1000}, -- equal and near rows
      {randn(2, 40):expand(3, 2, 40), randn(9, 80):narrow(2, 5, 40)},
      {few * 1e-30, few * 1e-30}, {few * 1e30, few * -1e30}, {few * 1e-30, few * 1e30},
    }
    for k, case in ipairs(cases) do
      local a, b = case[1], case[2]
      local want = flare.cdist(a, b)
      for _, device in ipairs(rows.devices) do
        local got = flare.cdist(a:to(device), b:to(device)):to "cpu"
        local most = 1e-6 * math.sqrt(a.shape[-1])
        local off = flare.where(want:ne(0), got / want - 1, got):abs():max():item()
        assert(off <= most, ("case %d on %s: off by %g"):format(k, device, off))
        for _, low in ipairs{"f16", "bf16"} do
          if k <= 6 then
            local x, y = a:to(low), b:to(low)
            local exact = flare.cdist(x:to "f64", y:to "f64")
            got = flare.cdist(x:to(device), y:to(device)):to "cpu":to "f64"
            off = ((got - exact):abs() - exact * (low == "f16" and 5e-4 or 4e-3)):max():item()
            assert(off <= 0.0001, ("case %d in %s on %s: off by %g"):format(k, low, device, off))
          end
        end
      end
    end
  end)

  it("is 0 between equal rows, without a slope", function()
    local x = flare.randn(3, 2, {requires_grad = true})
    local d = flare.cdist(x, x:detach())
    assert.equal(0, d:diagonal():abs():sum():item())
    d:diagonal():sum():backward()
    assert.equal(0, x.grad:abs():sum():item())
  end)
end)
