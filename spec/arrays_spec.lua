-- What NumPy and PyTorch have besides operators.
local expect = require "spec.support.expect"
local flare = require "flare"

local close, f64, i64, refused = expect.close, expect.f64, expect.i64, expect.refused

local function shapes(list)
  local words = {}
  for k, x in ipairs(list) do words[k] = tostring(x.shape) end
  return table.concat(words, " ")
end

describe("pieces", function()
  local x = flare.arange(0, 14):view(7, 2)

  it("are views of sizes as equal as can be, or begin where told", function()
    local list = x:tensor_split(3)
    assert.equal("(3, 2) (2, 2) (2, 2)", shapes(list))
    assert.is_true(list[2]:shares(x))
    assert.same({{6, 7}, {8, 9}}, list[2]:totable())
    assert.equal("(1, 2) (3, 2) (3, 2)", shapes(flare.tensor_split(x, {2, 5})))
    assert.equal("(2, 2) (0, 2) (5, 2)", shapes(x:tensor_split({3, 3})))
    assert.equal("(5, 2) (2, 2) (0, 2)", shapes(x:tensor_split({6, 99})))
    assert.equal("(6, 2) (1, 2)", shapes(x:tensor_split({-1})))
    assert.equal("(7, 1) (7, 1)", shapes(x:hsplit(2)))
    assert.equal("(4, 2) (3, 2)", shapes(x:vsplit(2)))
    assert.equal("(3) (2)", shapes(flare.zeros(5):hsplit(2)))
    assert.equal("(1, 2, 2) (1, 2, 1)", shapes(flare.zeros(1, 2, 3):dsplit(2)))
    assert.equal("(1) (0) (0)", shapes(flare.zeros(1):tensor_split(3)))
  end)

  it("are refused where there are none", function()
    assert.equal("(4, 2) (3, 2)", shapes(flare.chunk(x, 2)))
    assert.equal("(7, 1) (7, 1)", shapes(flare.split(x, 1, 2)))
    assert.equal(14, flare.numel(x))
    refused("chunk: a tensor is expected, got table", flare.chunk, {x}, 2)
    refused("tensor_split: there is no dim 3", flare.tensor_split, x, 2, 3)
    refused("vsplit: there is no dim 2 in a tensor of 1 dims", flare.vsplit, flare.zeros(3), 2)
    refused("at least 1 piece, got 0", flare.tensor_split, x, 0)
    refused("expected a number of pieces or a list of positions", flare.hsplit, x, "2")
  end)
end)

describe("pad_sequence", function()
  it("fills sequences up, and counts them", function()
    local list = {flare.ones(2, 3, {dtype = "i32"}), flare.ones(4, 3, {dtype = "i32"})}
    local x, lengths = flare.pad_sequence(list, {batch_first = true, value = -1})
    assert.equal("(2, 4, 3)", tostring(x.shape))
    assert.equal("i32", x.dtype)
    assert.same({{1, 1, -1, -1}, {1, 1, 1, 1}}, x:select(3, 2):totable())
    assert.same({2, 4}, lengths:totable())
    assert.same({{1, 1}, {0, 1}}, flare.pad_sequence{flare.ones(1), flare.ones(2)}:totable())
    refused("pad_sequence: input 2 must be a tensor, got number", flare.pad_sequence,
            {flare.ones(1), 3})
  end)
end)

describe("positions", function()
  it("of triangles count from 1", function()
    assert.same({{1, 2, 2, 3, 3, 3}, {1, 1, 2, 1, 2, 3}}, flare.tril_indices(3, 3):totable())
    assert.same({{1, 1, 2}, {2, 3, 3}}, flare.triu_indices(3, 3, 1):totable())
    local x = flare.arange(0, 9):view(3, 3)
    local at = flare.triu_indices(3, 3, 1)
    assert.same({1, 2, 5}, x[{at[1], at[2]}]:totable())
  end)

  it("are chosen in all ways", function()
    assert.same({{1, 4}, {1, 5}, {2, 4}, {2, 5}},
      flare.cartesian_prod(i64 {1, 2}, i64 {4, 5}):totable())
    assert.same({{7, 8}, {7, 9}, {8, 9}}, flare.combinations(i64 {7, 8, 9}):totable())
    assert.same({{7, 7}, {7, 8}, {8, 8}},
      flare.combinations(i64 {7, 8}, 2, {replacement = true}):totable())
    assert.equal("(0, 3)", tostring(flare.combinations(i64 {7, 8}, 3).shape))
    assert.equal("(10, 3)", tostring(flare.combinations(flare.zeros(5), 3).shape))
    refused("combinations: expected a vector", flare.combinations, flare.zeros(2, 2))
  end)
end)

describe("curves", function()
  it("have slopes", function() -- numpy.gradient([1, 2, 4, 7, 11, 16])
    local y = f64 {1, 2, 4, 7, 11, 16}
    close(flare.gradient(y), {1, 1.5, 2.5, 3.5, 4.5, 5})
    close(flare.gradient(y, {spacing = 2}), {0.5, 0.75, 1.25, 1.75, 2.25, 2.5})
    close(flare.gradient(y, {spacing = f64 {0, 1, 1.5, 3.5, 4, 6}}), {1, 3, 3.5, 6.7, 6.9, 2.5})
    close(flare.gradient(f64 {{1, 2, 6}, {3, 4, 5}}, {dim = 2}), {{1, 2.5, 4}, {1, 1, 1}})
    assert(flare.gradcheck(flare.gradient, {y}))
    refused("at least 2 elements along dim 1, got 1", flare.gradient, f64 {1})
  end)

  it("go through points", function() -- numpy.interp
    local xp, fp = f64 {1, 2, 3}, f64 {3, 2, 0}
    close(flare.interp(f64 {0, 1, 1.5, 2.72, 3.14}, xp, fp), {3, 3, 2.5, 0.56, 0})
    assert(flare.gradcheck(function(x, y) return flare.interp(x, xp, y) end, {f64 {1.3, 2.6}, fp}))
    refused("vectors of as many points", flare.interp, xp, xp, f64 {1, 2})
  end)

  it("are polynomials, or slide over each other", function()
    close(flare.polyval(f64 {3, 0, 1}, f64 {5, -1}), {76, 4})
    close(flare.convolve(f64 {1, 2, 3}, f64 {0, 1, 0.5}), {0, 1, 2.5, 4, 1.5})
    close(flare.convolve(f64 {1, 2, 3}, f64 {0, 1, 0.5}, "same"), {1, 2.5, 4})
    close(flare.convolve(f64 {0, 1, 0.5}, f64 {1, 2, 3}, "valid"), {2.5})
    close(flare.convolve(f64 {1, 2}, f64 {1, 10, 100, 1000}), {1, 12, 120, 1200, 2000})
    refused("'full', 'same' or 'valid'", flare.convolve, f64 {1}, f64 {1}, "all")
  end)
end)

describe("products and equations", function()
  local function draw(seed, ...)
    return flare.randn({...}, {dtype = "f64", generator = flare.generator(seed)})
  end

  it("of many matrices are those of two after two", function()
    local a, b, c, d = draw(1, 3, 20), draw(2, 20, 2), draw(3, 2, 30), draw(4, 30)
    close(flare.multi_dot(a, b, c), a:matmul(b):matmul(c))
    close(flare.multi_dot {a, b, c, d}, a:matmul(b):matmul(c):matmul(d))
    close(flare.multi_dot(d, c:t(), b:t()), d:matmul(c:t()):matmul(b:t()))
    refused("multi_dot: input 2 must be a matrix", flare.multi_dot, a, d, b)
    refused("at least two", flare.multi_dot, a)
  end)

  it("are solved over several dims", function()
    local a = draw(5, 2, 3, 6)
    local b = draw(6, 2, 3)
    close(flare.tensordot(a, flare.tensorsolve(a, b), 1), b)
    local inverse = flare.tensorinv(a)
    assert.equal("(6, 2, 3)", tostring(inverse.shape))
    close(flare.tensordot(inverse, b, 2), flare.tensorsolve(a, b))
    refused("is not a square matrix", flare.tensorsolve, a, draw(1, 4))
    refused("is not a square matrix", flare.tensorinv, a, 1)
  end)

  it("are equal or not, as one boolean", function()
    assert.is_true(i64 {1, 2}:equal(i64 {1, 2}))
    assert.is_false(i64 {1, 2}:equal(i64 {1, 3}))
    assert.is_false(flare.equal(i64 {1, 2}, i64 {{1, 2}}))
    refused("equal: y must be a tensor, got number", flare.equal, i64 {1}, 1)
  end)
end)
