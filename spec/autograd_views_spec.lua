-- Writes through views give PyTorch's values, gradients or refusals; where they do not, the case
-- says why. The expectations are data, made by bench/peers/view_cases.py.
local flare = require "flare"
local expected = require "spec.support.view_cases_expected"
local view_cases = require "spec.support.view_cases"

local function same(case, name, t, want)
  if not want then
    assert(not t, name .. " should have no gradient")
    return
  end
  assert(t, name .. " has no gradient")
  local got = t:detach():reshape(-1):tolist()
  assert.equal(#want, #got)
  for k = 1, #want do
    local off = math.abs(got[k] - want[k])
    if off ~= off or off > 1e-12 * (1 + math.abs(want[k])) then
      error(("%s: %s[%d] is %.15g and should be %.15g"):format(case.name, name, k, got[k], want[k]))
    end
  end
end

local function check(case)
  local want = expected[case.like or case.name]
  assert(expected[case.name], "PyTorch has not run this case")
  if not case.differs and want.refused then
    assert(case.says, "this is refused in PyTorch")
    local ok, why = pcall(case.run)
    assert(not ok, "was not refused; PyTorch: " .. want.refused)
    assert(tostring(why):find(case.says), "refused with: " .. tostring(why))
    return
  end
  if case.differs then assert(expected[case.name].refused, "does not differ from PyTorch") end
  local got = case.run()
  for name, values in pairs(want) do same(case, name, got[name], values) end
end

for _, device in ipairs {"cpu", "sim:0"} do
  describe("a write through a view on " .. device, function()
    setup(function() view_cases.device = device end)
    for _, case in ipairs(view_cases.cases) do
      it("like PyTorch: " .. case.name:gsub("_", " "), function() check(case) end)
    end
  end)
end

describe("the cases of writes", function()
  it("are those that PyTorch has run, 40 at least", function()
    local names = {}
    for _, case in ipairs(view_cases.cases) do names[case.name] = true end
    for name in pairs(expected) do assert(names[name], name .. " is not tried here") end
    assert.is_true(#view_cases.cases >= 40)
  end)

  it("differ from PyTorch in few places", function()
    local names = {}
    for _, case in ipairs(view_cases.cases) do
      if case.differs then names[#names + 1] = case.name end
    end
    table.sort(names)
    assert.same({"split_views_written", "squared_in_place", "unbound_views_written"}, names)
  end)

  it("that overlap themselves are refused", function()
    local y = flare.tensor({1, 2, 3, 4}, {dtype = "f64"})
    assert.error_matches(function() y:unfold(1, 2, 1):mul_(2) end, "several elements share memory")
    assert.same({1, 2, 3, 4}, y:tolist())
  end)

  it("know a leaf that was made by a view", function()
    local x = view_cases.wave{2, 2}:t():requires_grad_(true)
    assert.is_true(x.is_leaf)
    assert.error_matches(function() x[1]:mul_(2) end, "view of a leaf");
    (x * x):sum():backward()
    assert.same((x * 2):tolist(), x.grad:tolist())
  end)
end)

describe("as_strided", function()
  it("of a view that is not contiguous knows where its elements are", function()
    view_cases.device = "cpu"
    local x = view_cases.wave{2, 3}:requires_grad_(true)
    local y = (x * 1):t():as_strided({3}, {1}, 0);
    (y * flare.tensor({1, 10, 100}, {dtype = "f64"})):sum():backward()
    assert.same({{1, 10, 100}, {0, 0, 0}}, x.grad:tolist())
    local leaf = view_cases.wave{2, 3}:t():requires_grad_(true)
    assert.error_matches(function() leaf:as_strided({3}, {1}) end, "use contiguous")
  end)
end)

describe("flare.grad", function()
  local views = {
    select = function(x) return x:select(1, 2) end, view = function(x) return x:view(-1) end,
    narrow = function(x) return x:narrow(2, 1, 2) end, transpose = function(x) return x:t() end,
    twice = function(x) return x:t()[{{1, 2}}] end,
  }
  local double = flare.func{
    name = "double", forward = function(_, x) return x * 2 end,
    backward = function(_, dy) return dy * 2 end,
  }
  local uses = {
    operator = function(v) return v * 2 end, custom = double,
    transfer = function(v) return v:to "sim:0" * 2 end,
    write = function(v) return v:mul_(2) end,
  }
  for name, view in pairs(views) do
    for use, f in pairs(uses) do
      it(("goes through a %s older than a write, first met by a %s"):format(name, use), function()
        for _, recorded in ipairs {false, true} do
          local x = view_cases.wave{3, 3}:requires_grad_(true)
          local y = x * 1
          local v = view(y)
          y:mul_(3)
          local g = flare.grad(f(v):sum(), {x}, {create_graph = recorded}):detach()
          local want = flare.zeros_like(x)
          view(want):add_(6)
          assert.same(want:tolist(), g:tolist())
        end
      end)
    end
  end
end)

describe("second derivatives", function()
  it("go through in-place writes", function()
    local gradcheck = require "flare.gradcheck"
    local x, w = view_cases.wave{3, 4}, view_cases.wave{3, 4} + 2
    local cases = {
      function(t, v) return (t * 2):mul_(v) end,
      function(t, v) return (t * v):square_() end,
      function(t, v) return (t * 2):div_(v):mul_(v:exp()) end,
      function(t, v)
        local y = t * 2
        y[1]:mul_(v[1])
        y[{{}, {4, 1, -1}}]:mul_(v)
        y[{{}, {1, 3}}]:mul_(y[{{}, {2, 4}}])
        return y
      end,
      function(t, v) return (t * v):softmax_(2):mul_(v) end,
      function(t, v)
        local y = t * v
        y[{{}, {4, 1, -2}}]:mul_(v[{{}, {1, 2}}])
        y[2]:sigmoid_()
        return y
      end,
      function(t, v)
        local y = t * v
        y:t()[{{1, -1, 2}, {3, 2, -1}}]:tanh_()
        return y
      end,
      function(t, v)
        local y = t * v
        y[{{}, {1, 2}}]:addmm_(y[{{}, {3, 4}}]:clone(), v[{{1, 2}, {3, 4}}])
        return y:scatter_prod_(1, flare.tensor({{1, 3, 3, 2}}, {dtype = "i64"}), v)
      end,
    }
    view_cases.device = "cpu"
    for _, f in ipairs(cases) do
      local function g(...) return f(...) * 1 end
      assert(gradcheck.gradcheck(g, {x, w}, {1, 2}))
      assert(gradcheck.gradgradcheck(g, {x, w}, {1, 2}))
    end
  end)
end)
