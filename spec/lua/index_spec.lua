local core = require "flare.core"

local function grid() return core.arange(1, 13):to("f32"):view(3, 4) end
local function values(x) return x:totable() end
local function index(list) return core.tensor(list, {dtype = "i64"}) end

describe("x[...]", function()
  it("picks by position, from the end too", function()
    local x = grid()
    assert.same({1, 2, 3, 4}, values(x[1]))
    assert.same({9, 10, 11, 12}, values(x[-1]))
    assert.equal(7, x[{2, 3}]:item())
    assert.equal(7, x[{-2, -2}]:item())
    assert.equal(7, x[2][3]:item())
    assert.equal(0, x[{2, 3}].ndim)
    assert.same({2, 6, 10}, values(x[{{}, 2}]))
    assert.same(values(x[2]), values(x[2.0]))
  end)

  it("picks ranges, inclusive, with steps", function()
    local x = grid()
    assert.same({{5, 6, 7, 8}, {9, 10, 11, 12}}, values(x[{{2, 3}}]))
    assert.same({{1, 3}, {5, 7}, {9, 11}}, values(x[{{}, {1, 4, 2}}]))
    assert.same({{2, 3}}, values(x[{{1}, {2, 3}}]))
    assert.same({2, 3}, values(x[{1, {2, -2}}]))
    assert.same({{4}, {8}, {12}}, values(x[{{}, {-1}}]))
    assert.same({4, 3, 2, 1}, values(x[{1, {-1, 1, -1}}]))
    assert.same({4, 2}, values(x[{1, {nil, nil, -2}}]))
    assert.same({3, 4}, values(x[{1, {3, nil, 1}}]))
    assert.equal("(0, 4)", tostring(x[{{3, 2}}].shape))
    assert.equal("(0)", tostring(x[{1, {1, 0}}].shape))
    assert.same(values(x), values(x[{}]))
    assert.same(values(x), values(x[{{}}]))
  end)

  it("takes ... for the dims between", function()
    local x = core.arange(24):view(2, 3, 4)
    assert.same({{0, 4, 8}, {12, 16, 20}}, values(x[{"...", 1}]))
    assert.same(values(x[{1, {}, 2}]), values(x[{1, "...", 2}]))
    assert.same(values(x[{1, 2, 3}]), values(x[{1, 2, "...", 3}]))
    -- no dims at all
    assert.same(values(x[{2, 3, 4}]), values(x[{"...", 2, 3, 4}]))
    assert.same(values(x[{{}, {2, 3}, 4}]), values(x[{"...", {}, {2, 3}, 4}]))
    assert.same(values(x[{1, "new", {}, 2}]), values(x[{1, "...", "new", {}, 2}]))
    assert.error_matches(function() return x[{"...", 1, "..."}] end, "once only")
  end)

  it("picks by masks", function()
    local x = grid()
    assert.same({10, 11, 12}, values(x[x:gt(9)]))
    assert.same({{1, 2, 3, 4}, {9, 10, 11, 12}}, values(x[core.tensor{true, false, true}]))
    assert.same({{1, 4}, {5, 8}, {9, 12}}, values(x[{{}, core.tensor{true, false, false, true}}]))
    local y = core.arange(24):view(2, 3, 4)
    local m = core.tensor{{true, false, false}, {false, false, true}}
    assert.same({{0, 1, 2, 3}, {20, 21, 22, 23}}, values(y[m]))
    assert.equal("(0)", tostring(x[x:gt(99)].shape))
    assert.error_matches(function() return x[core.tensor{true, false}] end,
                         "mask's shape %(2%) does not match %(3, 4%)")
  end)

  it("picks by index tensors", function()
    local x = grid()
    assert.same({{9, 10, 11, 12}, {1, 2, 3, 4}, {9, 10, 11, 12}}, values(x[index{3, 1, 3}]))
    assert.same({{4, 1}, {8, 5}, {12, 9}}, values(x[{{}, index{4, 1}}]))
    assert.same({7, 5}, values(x[{2, index{3, 1}}]))
    assert.equal("(2, 2, 4)", tostring(x[index{{1, 2}, {3, 1}}].shape))
    assert.same({5, 6, 7, 8}, values(x[index(2)]))
    -- pairs of positions
    assert.same({4, 9}, values(x[{index{1, 3}, index{4, 1}}]))
    assert.same({{1, 2}, {9, 10}}, values(x[{index{{1}, {3}}, index{1, 2}}]))
    -- index tensors apart from each other come first in the result
    local y = core.arange(24):view(2, 3, 4)
    assert.equal("(2, 3)", tostring(y[{index{1, 2}, {}, index{1, 4}}].shape))
    assert.same({{0, 4, 8}, {15, 19, 23}}, values(y[{index{1, 2}, {}, index{1, 4}}]))
    assert.equal("(2, 2)", tostring(y[{{}, index{1, 2}, index{1, 4}}].shape))
    assert.error_matches(function() return x[index{4}] end, "4 is out of range 1%.%.3")
    assert.error_matches(function() return x[index{0}] end, "0 is out of range 1%.%.3")
    assert.error_matches(function() return x[{index{1}, index{5}}] end, "5 is out of range 1%.%.4")
    assert.error_matches(function() return x[{index{1, 2}, index{1, 2, 3}}] end, "do not broadcast")
  end)

  it("makes new dims where it says new", function()
    local x = core.arange(24):view(2, 3, 4)
    assert.equal("(1, 2, 3, 4)", tostring(x[{"new"}].shape))
    assert.equal("(2, 1, 4)", tostring(x[{{}, "new", 2}].shape))
    assert.equal("(2, 3, 1)", tostring(x[{"...", 1, "new"}].shape))
    assert.equal("(2, 1, 3, 4)", tostring(x[{index{1, 2}, "new"}].shape))
    assert.equal("(1, 1, 1, 1, 1)", tostring(x[{"new", "new", "new", "new", "new", 1, "...", 1,
      1}].shape))
    assert.error_matches(function()
      return x[{"new", "new", "new", "new", "new", "new"}]
    end, "at most 8 dims")
    assert.same({{{4, 6}}, {{16, 18}}}, values(x[{{}, "new", 2, index{1, 3}}]))
  end)

  it("counts positions in index tensors from the end, too", function()
    local x = grid()
    assert.same({{9, 10, 11, 12}, {1, 2, 3, 4}, {1, 2, 3, 4}}, values(x[index{-1, 1, -3}]))
    assert.same({12, 2}, values(x[{index{-1, 1}, index{-1, 2}}]))
    assert.same({12, 2}, values(x:to "sim:0"[{index{-1, 1}:to "sim:0", index{-1, 2}:to "sim:0"}]))
    assert.error_matches(function() return x[index{-4}] end, "out of range 1%.%.3")
  end)

  it("takes masks of several dims beside index tensors", function()
    local x = core.arange(24):view(2, 3, 4)
    local m = core.tensor{{true, false, false}, {false, true, true}}
    assert.same({0, 17, 22}, values(x[{m, index{1, 2, 3}}]))
    assert.same({1, 17, 21}, values(x[{m, 2}]))
    assert.same({2, 14}, values(x[{{}, core.tensor{true, false, false}, index{3}}]:view(-1)))
  end)

  it("gives views for positions and ranges, backward ones too", function()
    local x = grid()
    x[{{2, 3}, {1, -1, 2}}]:add_(100)
    assert.same({{1, 2, 3, 4}, {105, 6, 107, 8}, {109, 10, 111, 12}}, values(x))
    x[{1, {-1, 1, -1}}]:mul_(core.tensor{1, 10, 100, 1000})
    assert.same({1000, 200, 30, 4}, values(x[1]))
    assert.is_true(x[{{-1, 1, -2}}]:shares(x))
    x[{"new", {}, 2}]:zero_()
    assert.equal(0, x[{{}, 2}]:sum():item())
  end)

  it("names the error", function()
    local x = grid()
    local cases = {
      {0, "positions count from 1: x%[1%] is the first"},
      {4, "position 4 is out of range 1%.%.3 %(dim 1 of %(3, 4%)%)"},
      {-4, "position %-4 is out of range 1%.%.3"},
      {{1, 5}, "position 5 is out of range 1%.%.4 %(dim 2"},
      {{1, 0}, "positions count from 1"},
      {{1, 1, 1}, "3 positions for a tensor of 2 dims %(3, 4%)"},
      {{{1, 9}}, "position 9 is out of range 1%.%.3"},
      {{{0, 2}}, "positions count from 1"},
      {{{1, 2, 0}}, "step of a range cannot be 0"},
      {{{1.5, 2}}, "a range is {first, last, step} of integers"},
      {1.5, "positions are integers, got 1.5"},
      {0/0, "positions are integers"},
      {2^53 + 2, "out of range"},
      {true, "expected a position, a range"},
      {{1, "a"}, "expected a position, a range"},
      {core.zeros(3), "an index tensor is i64, i32 or bool %(a mask%), this one is f32"},
    }
    for _, case in ipairs(cases) do
      assert.error_matches(function() return x[case[1]] end, case[2])
    end
    assert.error_matches(function() return core.tensor(1)[1] end, "its value is x:item%(%)")
    assert.error_matches(function() return x:sum()[{1}] end, "1 positions for a tensor of 0 dims")
  end)
end)

describe("x[...] = value", function()
  it("writes positions and ranges", function()
    local x = core.zeros(3, 4)
    x[1] = 1
    x[{2, 3}] = 5
    x[{3, {1, 2}}] = core.tensor{7, 8}
    x[{{}, -1}] = core.tensor({9, 9, 9}, {dtype = "i64"})
    assert.same({{1, 1, 1, 9}, {0, 0, 5, 9}, {7, 8, 0, 9}}, values(x))
    x[{}] = 2
    assert.equal(24, x:sum():item())
    x[{{1, 3, 2}}] = core.tensor{1, 2, 3, 4}
    assert.same({{1, 2, 3, 4}, {2, 2, 2, 2}, {1, 2, 3, 4}}, values(x))
    x[{2, {-1, 1, -2}}] = core.tensor{7, 8}
    assert.same({2, 8, 2, 7}, values(x[2]))
    x[1] = x[3] * 2
    assert.same({2, 4, 6, 8}, values(x[1]))
  end)

  it("writes where a mask says", function()
    local x = grid()
    x[x:gt(9)] = 0
    assert.same({9, 0, 0, 0}, values(x[3]))
    x[x:eq(0)] = core.tensor{-1, -2, -3}
    assert.same({9, -1, -2, -3}, values(x[3]))
    x[core.tensor{true, false, true}] = 5
    assert.same({{5, 5, 5, 5}, {5, 6, 7, 8}, {5, 5, 5, 5}}, values(x))
    x[core.tensor{true, false, true}] = core.tensor{1, 2, 3, 4}
    assert.same({{1, 2, 3, 4}, {5, 6, 7, 8}, {1, 2, 3, 4}}, values(x))
  end)

  it("writes where index tensors say", function()
    local x = core.zeros(3, 4)
    x[index{3, 1}] = core.tensor{{1, 2, 3, 4}, {5, 6, 7, 8}}
    assert.same({{5, 6, 7, 8}, {0, 0, 0, 0}, {1, 2, 3, 4}}, values(x))
    x[{{}, index{2, 4}}] = -1
    assert.same({{5, -1, 7, -1}, {0, -1, 0, -1}, {1, -1, 3, -1}}, values(x))
    x[{2, index{1, 3}}] = core.tensor{8, 9}
    assert.same({8, -1, 9, -1}, values(x[2]))
    x[{index{1, 2, 3}, index{1, 2, 3}}] = 0
    assert.same({{0, -1, 7, -1}, {8, 0, 9, -1}, {1, -1, 0, -1}}, values(x))
    local y = core.zeros(2, 3, 4)
    y[{index{1, 2}, {}, index{1, 4}}] = core.tensor{1, 2, 3}
    assert.same({1, 2, 3}, values(y[{1, {}, 1}]))
    assert.same({1, 2, 3}, values(y[{2, {}, 4}]))
    assert.equal(12, y:sum():item())
    y:zero_()
    y[{{-1, 1, -1}, {}, index{1, 4}}] = core.tensor{{{1, 2}}, {{3, 4}}}
    assert.same({3, 3, 3}, values(y[{1, {}, 1}]))
    assert.same({2, 2, 2}, values(y[{2, {}, -1}]))
    y[{core.tensor{{true, false, false}, {false, true, true}}, index{-1, 1, 1}}] = 9
    assert.same({9, 9, 9}, {y[{1, 1, 4}]:item(), y[{2, 2, 1}]:item(), y[{2, 3, 1}]:item()})
    -- through a view that is not contiguous
    local z = core.zeros(3, 4)
    z:t()[{index{1, 2}, index{3, 3}}] = 6
    assert.same({{0, 0, 0, 0}, {0, 0, 0, 0}, {6, 6, 0, 0}}, values(z))
  end)

  it("refuses values of other types", function()
    local x = core.zeros(3)
    assert.error_matches(function() x[1] = nil end, "expected a tensor or a number, got nil")
    assert.error_matches(function() x[{}] = {1, 2, 3} end, "make a tensor of it")
    assert.error_matches(function() x[0] = 1 end, "positions count from 1")
    assert.error_matches(function() x[{{1, 2}}] = core.zeros(3) end,
      "= value: shape %(3%) does not broadcast")
    assert.error_matches(function() x.foo = 1 end, "'foo' of a tensor cannot be set")
  end)
end)

describe("gradients of indexing", function()
  local function grads(f, ...)
    local x = core.arange(1, 13):to("f64"):view(3, 4):requires_grad_()
    f(x, ...):sum():backward()
    return values(x.grad)
  end

  it("go to the elements that were read", function()
    assert.same({{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}}, grads(function(x) return x[2] end))
    assert.same({{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 0, 0, 0}},
                grads(function(x) return x[{2, {2, 4, 2}}] end))
    assert.same({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 1, 1}},
                grads(function(x) return x[x:gt(9)] end))
    assert.same({{2, 2, 2, 2}, {0, 0, 0, 0}, {1, 1, 1, 1}},
                grads(function(x) return x[index{1, 3, 1}] end))
    assert.same({{0, 0, 0, 2}, {0, 0, 0, 0}, {1, 0, 0, 0}},
                grads(function(x) return x[{index{1, 3, 1}, index{4, 1, 4}}] end))
  end)

  it("pass around written elements, and into the value", function()
    local w = core.tensor({10, 20}, {dtype = "f64", requires_grad = true})
    local g = grads(function(x)
      local y = x * 2
      y[{1, {2, 3}}] = w
      return y * core.arange(1, 13):to("f64"):view(3, 4)
    end)
    assert.same({{2, 0, 0, 8}, {10, 12, 14, 16}, {18, 20, 22, 24}}, g)
    assert.same({2, 3}, values(w.grad))
    w.grad = nil
    g = grads(function(x)
      local y = x * 1
      y[index{1, 2}] = w:sum()
      return y
    end)
    assert.same({{0, 0, 0, 0}, {0, 0, 0, 0}, {1, 1, 1, 1}}, g)
    assert.same({8, 8}, values(w.grad))
    g = grads(function(x)
      local y = x * 1
      y[y:gt(11)] = 0
      return y
    end)
    assert.same({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 0}}, g)
  end)

  it("are what differences say", function()
    local check = require "flare.gradcheck"
    local m = core.tensor{{true, false, true, true}, {false, true, false, true},
      {true, true, false, false}}
    local reads = {
      {{-1, 1, -1}}, {{}, {-1, 1, -2}}, {"new", {2, 3}, "new", 1}, {"...", index{-1, 2}},
      {{-1, 1, -2}, index{4, 2, 1}}, {index{1, 3}, index{-1, 2}}, {m}, {{}, m[1]}, {"...", -1},
    }
    for k, i in ipairs(reads) do
      local x = core.randn(3, 4):to "f64"
      assert(check.gradcheck(function(t) return t[i] end, {x}, {1}))
      assert(check.gradgradcheck(function(t) return t[i] end, {x}, {1}))
      local v = core.randn(x[i].shape):to "f64"
      assert(check.gradcheck(function(t, w)
        local y = t * 2
        y[i] = w * w
        return y * y
      end, {x, v}, {1, 2}), "write " .. k)
      if k ~= 4 and k ~= 5 and k ~= 6 and k ~= 7 and k ~= 8 then
        assert(check.gradgradcheck(function(t, w)
          local y = t * 2
          y[i]:mul_(w):add_(1)
          return y * y
        end, {x, v}, {1, 2}), "in place " .. k)
      end
    end
  end)

  it("refuse leaves outside no_grad", function()
    local x = core.zeros{2, requires_grad = true}
    assert.error_matches(function() x[1] = 1 end, "leaf")
    core.no_grad(function() x[1] = 1 end)
    assert.same({1, 0}, values(x))
  end)
end)
