-- Dims by name: x:rearrange and x:reduce; hstack and its like.
local flare = require "flare"
local fails = require "spec.support.expect".refused
local gradcheck = require "flare.gradcheck"

local x = flare.arange(0, 240):to "f64":view(2, 6, 4, 5)

local function same(want, got)
  assert.equal(tostring(want.shape), tostring(got.shape))
  assert.same(want:totable(), got:totable())
end

describe("rearrange", function()
  it("moves, splits and joins dims", function()
    same(x:permute(1, 3, 4, 2), x:rearrange "b c h w -> b h w c")
    same(x:reshape(2, 3, 2, 4, 5), x:rearrange("b (g d) h w -> b g d h w", {g = 3}))
    same(x:reshape(6, 2, 20), x:rearrange("b (g d) h w -> (b g) d (h w)", {d = 2}))
    same(x:permute(3, 1, 4, 2):reshape(8, 30), x:rearrange "b c h w -> (h b) (w c)")
    same(x:reshape(2, 6, 2, 2, 5):permute(1, 2, 4, 3, 5):reshape(2, 12, 2, 5),
      x:rearrange("b c (h p) w -> b (c p) h w", {p = 2}))
    same(x, flare.rearrange(x, "b c h w -> b c h w"))
  end)

  it("gives a view where it can", function()
    assert.is_true(x:rearrange "b c h w -> w h c b":shares(x))
    assert.is_true(x:rearrange("b (g d) h w -> b h g d w", {g = 3}):shares(x))
  end)

  it("takes an ellipsis", function()
    same(x:permute(4, 2, 3, 1), x:rearrange "b ... w -> w ... b")
    same(x:reshape(2, 120), x:rearrange "b ... -> b (...)")
    same(x:reshape(2, 6, 20), x:rearrange "... h w -> ... (h w)")
    same(x, x:rearrange "b c h w ... -> b c h w ...")
  end)

  it("makes dims of 1, drops them, and repeats", function()
    same(x:unsqueeze(2), x:rearrange "b c h w -> b 1 c h w")
    same(x:unsqueeze(2), x:rearrange "b c h w -> b () c h w")
    same(x, x:unsqueeze(2):rearrange "b 1 c h w -> b c h w")
    same(x:unsqueeze(5):expand(2, 6, 4, 5, 3), x:rearrange("b c h w -> b c h w r", {r = 3}))
    same(x:repeat_interleave(2, 2), x:rearrange("b c h w -> b (c r) h w", {r = 2}))
    same(x["repeat"](x, 1, 2, 1, 1), x:rearrange("b c h w -> b (r c) h w", {r = 2}))
  end)

  it("is differentiable", function()
    local v = flare.randn(4, 3):to "f64"
    local function f(t) return t:rearrange("(a b) c -> (c a) r b", {a = 2, r = 2}):square() end
    assert(gradcheck.gradcheck(f, {v}, {1}))
    assert(gradcheck.gradgradcheck(f, {v}, {1}))
  end)

  it("reports errors", function()
    local function r(why, ...) fails(why, x.rearrange, x, ...) end
    r('rearrange "b c -> c b": (2, 6, 4, 5) has 4 dims, the left side 2', "b c -> c b")
    r("h is on the left only", "b c h w -> b c w")
    r("z is on the right only: give its size", "b c h w -> b c h w z")
    r("b occurs twice on the right", "b c h w -> b b c h w")
    r("dim 2 is 6: give the size of c or of d", "b (c d) h w -> b c d h w")
    r("dim 2 is 6, which does not fit c = 4, d", "b (c d) h w -> b c d h w", {c = 4})
    r("dim 1 is 2, which should be 1", "1 c h w -> c h w")
    r("'(' without ')'", "b (c h w -> b c h w")
    r("')' without '('", "b c) h w -> b c h w")
    r("'c+' is no name, 1 or ...", "b c+ h w -> b h w")
    r("one -> is between the sides", "b c h w")
    r("... is on the right only", "b c h w -> b c h w ...")
    r("... is on the left only", "b c h w ... -> b c h w") -- though there are no dims for it
    r("there is no q in it", "b c h w -> b c h w", {q = 4})
    r("the size of b should be an integer, got 2.5", "b c h w -> b c h w", {b = 2.5})
    r("sizes: expected a table like {h = 4}, got number", "b c h w -> b c h w", 3)
    r("expected a pattern like", 3)
  end)
end)

describe("reduce", function()
  it("takes dims away", function()
    same(x:sum{3, 4}, x:reduce("b c h w -> b c", "sum"))
    same(x:mean{3, 4}:t(), x:reduce("b c h w -> c b", "mean"))
    same(x:amax{1}, x:reduce("b ... -> ...", "max"))
    same(x:amin(), x:reduce("... ->", "min"))
    same(x:mean{1, 3, 4}:view(1, 6, 1, 1), x:reduce("b c h w -> 1 c 1 1", "mean"))
    same(x:max_pool{kernel = {2, 1}}, x:reduce("b c (h p) w -> b c h w", "max", {p = 2}))
    same(x:std{dims = {4}}, x:reduce("b c h w -> b c h", function(t, dims) return t:std(dims) end))
  end)

  it("reports errors", function()
    fails("how is sum, mean", x.reduce, x, "b c h w -> b", "median")
    fails('reduce "b c -> b": (2, 6, 4, 5) has 4 dims', x.reduce, x, "b c -> b", "sum")
  end)
end)

describe("stacks and grids", function()
  local v, m = flare.tensor{1, 2, 3}, flare.tensor{{1, 2, 3}, {4, 5, 6}}

  it("join as NumPy does", function()
    assert.same({1, 2, 3, 1, 2, 3}, flare.hstack(v, v):totable())
    assert.same({{1, 2, 3, 1, 2, 3}, {4, 5, 6, 4, 5, 6}}, flare.hstack{m, m}:totable())
    assert.same({{1, 2, 3}, {4, 5, 6}, {1, 2, 3}}, flare.vstack(m, v):totable())
    assert.same({{1, 1}, {2, 2}, {3, 3}}, flare.column_stack(v, v):totable())
    assert.equal("(1, 3, 2)", tostring(flare.dstack(v, v).shape))
    assert.equal("(2, 3, 2)", tostring(flare.dstack(m, m).shape))
    fails("hstack: input 2 must be a tensor, got number", flare.hstack, v, 3)
    fails("needs at least one", flare.vstack)
  end)

  it("have at least so many dims", function()
    local s = flare.tensor(1)
    for k, want in ipairs {"(1)", "(1, 1)", "(1, 1, 1)"} do
      assert.equal(want, tostring(flare["atleast_" .. k .. "d"](s).shape))
    end
    assert.equal("(1, 3, 1)", tostring(flare.atleast_3d(v).shape))
    assert.equal("(2, 3, 1)", tostring(flare.atleast_3d(m).shape))
  end)

  it("make grids", function()
    local a, b = flare.meshgrid(v, flare.tensor{7, 8})
    assert.same({{1, 1}, {2, 2}, {3, 3}}, a:totable())
    assert.same({{7, 8}, {7, 8}, {7, 8}}, b:totable())
    a, b = flare.meshgrid(v, flare.tensor{7, 8}, "xy")
    assert.same({{1, 2, 3}, {1, 2, 3}}, a:totable())
    assert.same({{7, 7, 7}, {8, 8, 8}}, b:totable())
    fails("it takes vectors", flare.meshgrid, m)
    fails("indexing is 'ij' or 'xy', got 'yx'", flare.meshgrid, v, "yx")
  end)

  it("broadcast", function()
    local a, b = flare.broadcast_tensors(v, flare.tensor{{1}, {2}})
    assert.same({{1, 2, 3}, {1, 2, 3}}, a:totable())
    assert.same({{1, 1, 1}, {2, 2, 2}}, b:totable())
    fails("input 2 has shape (2), which does not broadcast with (3)", flare.broadcast_tensors, v,
      flare.tensor{1, 2})
  end)

  it("turn, mirror, and take along a dim", function()
    assert.same({{3, 6}, {2, 5}, {1, 4}}, flare.rot90(m):totable())
    assert.same({{6, 5, 4}, {3, 2, 1}}, m:rot90(2):totable())
    assert.same({{4, 1}, {5, 2}, {6, 3}}, m:rot90(-1):totable())
    assert.same({{4, 5, 6}, {1, 2, 3}}, m:flipud():totable())
    assert.same({{3, 2, 1}, {6, 5, 4}}, m:fliplr():totable())
    local i = flare.tensor({{1}, {3}}, {dtype = "i64"})
    assert.same({{1}, {6}}, m:take_along_dim(i, 2):totable())
    assert.same({{1, 2, 3}}, m:take_along_dim(i[{{1}}], 1):totable())
    assert.same({1, 3}, m:take_along_dim(i):totable())
    fails("they need the same number of dims", m.take_along_dim, m, i[1], 1)
    assert.same({{1, 2, 3, 0, 0}, {4, 5, 6, 0, 0}, {0, 0, 0, 7, 0}, {0, 0, 0, 0, 9}},
      flare.block_diag(m, flare.tensor{7}, flare.tensor(9)):totable())
  end)
end)
