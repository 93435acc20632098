-- x:is "b t d": shapes said and held to.
local core = require "flare.core"
local fails = require "spec.support.expect".refused

describe("x:is", function()
  local x = core.zeros(4, 5, 6)

  it("gives the tensor back", function()
    assert.equal(x, x:is "b t d")
    assert.equal(x, x:is "4 _ d")
    assert.equal(x, x:is "  b  t d ")
    assert.equal(x, x:is "...")
    assert.equal(x, x:is "... 6")
    assert.equal(x, x:is "b ... t d")
    local scalar = core.tensor(1)
    assert.equal(scalar, scalar:is "")
    assert.equal(scalar, scalar:is "...")
  end)

  it("compares names within a pattern", function()
    core.zeros(3, 3):is "n n"
    core.zeros(3, 2, 7, 3):is "n ... n"
    fails('is "b b d": dim 2 of (4, 5, 6) is 5, but b is 4', x.is, x, "b b d")
    fails('dim 3 of (4, 5, 6) is 6, but t is 5', x.is, x, "... t t")
  end)

  it("puts names into a table, and compares them from then on", function()
    local s = {d = 6}
    x:is("b t d", s)
    assert.same({b = 4, t = 5, d = 6}, s)
    core.zeros(4, 5):is("b t", s)
    fails('is "t b": dim 1 of (4, 5) is 4, but t is 5', x.is, core.zeros(4, 5), "t b", s)
    fails("t should be a size, it is string", x.is, x, "b t d", {t = "five"})
    local other = {}
    core.zeros(9, 1):is("b t", other)
    assert.same({b = 9, t = 1}, other)
  end)

  it("says what is wrong with the shape", function()
    fails('is "b t": (4, 5, 6) has 3 dims, it should have 2', x.is, x, "b t")
    fails("it should have at least 4", x.is, x, "a b ... c d")
    fails('is "b 4 d": dim 2 of (4, 5, 6) is 5, not 4', x.is, x, "b 4 d")
  end)

  it("says what is wrong with the pattern", function()
    fails("'t-d' is no name or number", x.is, x, "b t-d")
    fails("'4x' is no name or number", x.is, x, "4x b c")
    fails("'99999999999999999999' is no name or number", x.is, x, "99999999999999999999 b c")
    fails("once only", x.is, x, "... b ...")
    fails("at most 16 words", x.is, x, ("a "):rep(17))
    fails('is: pattern: expected a string like "b t d", got an integer', x.is, x, 3)
    fails("is: names: expected a table, got an integer", x.is, x, "b t d", 3)
  end)

  it("compares the dtype", function()
    assert.equal(x, x:is("b t d", nil, "f32"))
    local s = {}
    assert.equal(x, x:is("b t d", s, "f32"))
    assert.same({b = 4, t = 5, d = 6}, s)
    fails('is "b t d": x is f32, not f64', x.is, x, "b t d", nil, "f64")
    fails('is "...": x is f32, not i64', x.is, x, "...", {}, "i64")
    fails('there is no dtype "float64"; did you mean "f64"?', x.is, x, "b t d", nil, "float64")
    fails("dtype: expected a name", x.is, x, "b t d", nil, 64)
    fails("too many arguments: it takes (pattern, names, dtype)", x.is, x, "b t d", nil, "f32", 1)
  end)

  it("knows shapes without values", function()
    local _ <close> = core.meta()
    local s = {}
    (core.zeros(2, 3) + 1):is("a b", s)
    assert.same({a = 2, b = 3}, s)
  end)
end)
