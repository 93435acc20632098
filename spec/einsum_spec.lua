-- flare.einsum and flare.tensordot against sums written out.
local flare = require "flare"
local A = require "spec.support.array"
local gradcheck = require "flare.gradcheck"

local function tensor(shape, seed)
  local a = A.fill(shape, {seed = seed})
  return flare.tensor({table.unpack(a, 1, #a)}, {dtype = "f64"}):reshape(shape), a
end

-- The sum over all labels that are not in the result, straight from the definition; no ellipsis.
local function defined(text, arrays)
  local left, right = text:match "^(.-)%->(.*)$"
  local words, sizes, order = {}, {}, {}
  for word in (left .. ","):gmatch "([^,]*)," do words[#words + 1] = word end
  for k, word in ipairs(words) do
    for d = 1, #word do
      local label = word:sub(d, d)
      if not sizes[label] then order[#order + 1] = label end
      sizes[label] = math.max(sizes[label] or 0, arrays[k].shape[d])
    end
  end
  local shape, all = {}, {}
  for d = 1, #right do shape[d] = sizes[right:sub(d, d)] end
  for d, label in ipairs(order) do all[d] = sizes[label] end
  local y = A.zeros(shape)
  A.each(all, function(index)
    local at = {}
    for d, label in ipairs(order) do at[label] = index[d] end
    local function place(array, word)
      local i = {}
      for d = 1, #word do i[d] = at[word:sub(d, d)] end
      return A.place(array, i)
    end
    local v = 1.0
    for k, word in ipairs(words) do v = v * arrays[k][place(arrays[k], word)] end
    local k = place(y, right)
    y[k] = y[k] + v
  end)
  return y
end

local function same(y, want)
  assert.equal("(" .. table.concat(want.shape, ", ") .. ")", tostring(y.shape))
  local got = y:reshape(-1):totable()
  for k = 1, #want do assert.near(want[k], got[k], 1e-10 * (1 + math.abs(want[k]))) end
end

local equations = {
  {"ij,jk->ik", {3, 4}, {4, 5}}, {"bij,bjk->bik", {2, 3, 4}, {2, 4, 5}}, {"ij->ji", {3, 4}},
  {"ij->", {3, 4}}, {"ii->i", {4, 4}}, {"ii->", {4, 4}}, {"iij->j", {3, 3, 2}},
  {"iji->ij", {3, 2, 3}}, {"iijj->ij", {3, 3, 2, 2}}, {"i,j->ji", {3}, {4}}, {"i,i->", {3}, {3}},
  {"i,i->i", {3}, {3}}, {"ij,ij->ij", {3, 1}, {3, 4}}, {"ij,jk->ik", {3, 1}, {4, 5}},
  {"abc,cba->b", {2, 3, 4}, {4, 3, 2}}, {"bhqd,bhkd->bhqk", {2, 2, 3, 4}, {2, 2, 5, 4}},
  {"i,ij,j->", {3}, {3, 4}, {4}}, {"ab,bc,cd,de->ae", {2, 3}, {3, 4}, {4, 2}, {2, 5}},
  {"ab,ac,ad,ae,af,ag->bcg", {2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}},
  {"ij,jk->ik", {0, 4}, {4, 5}}, {"ij,jk->ik", {3, 0}, {0, 5}}, {",->", {}, {}}, {"ba,b->a", {3, 4},
    {3}},
}

describe("einsum", function()
  it("is the sum that its equation says", function()
    for _, e in ipairs(equations) do
      local tensors, arrays = {}, {}
      for k = 2, #e do tensors[k - 1], arrays[k - 1] = tensor(e[k], k) end
      same(flare.einsum(e[1], table.unpack(tensors)), defined(e[1], arrays))
      same(flare.einsum(e[1], tensors), defined(e[1], arrays))
    end
  end)

  it("takes an ellipsis, which broadcasts", function()
    local a, x = tensor({2, 3, 4}, 2)
    local b, y = tensor({5, 1, 4, 6}, 3)
    x = A.reshape(x, {1, 2, 3, 4})
    same(flare.einsum("...ij,...jk->...ik", a, b), defined("abij,abjk->abik", {x, y}))
    same(flare.einsum("...ij,...jk", a, b), defined("abij,abjk->abik", {x, y}))
    same(flare.einsum("i...->...", a), defined("iab->ab", {A.reshape(x, {2, 3, 4})}))
    same(flare.einsum("...i -> i...", a), defined("abi->iab", {A.reshape(x, {2, 3, 4})}))
  end)

  it("knows the result of an equation without one", function()
    local a, x = tensor({2, 3}, 2)
    local b, y = tensor({3, 4}, 3)
    same(flare.einsum("cb,ba", a, b), defined("cb,ba->ac", {x, y}))
    same(flare.einsum("ba", a), defined("ba->ab", {x}))
  end)

  it("orders products by what they cost", function()
    local function chain(sizes)
      local list, text = {}, {}
      for k = 1, #sizes - 1 do
        list[k] = flare.zeros(sizes[k], sizes[k + 1])
        text[k] = string.char(96 + k, 97 + k)
      end
      local equation = table.concat(text, ",") .. "->a" .. string.char(96 + #sizes)
      local report = flare.profile(function() flare.einsum(equation, list) end)
      for _, sum in ipairs(report:sums "op") do
        if sum.name == "matmul" then return sum.flops end
      end
    end
    -- the least, by hand: (a b) (c d) of 1 x 100 x 1 x 100 x 1 takes 100 + 100 + 1 products
    assert.equal(2 * 201, chain{1, 100, 1, 100, 1})
    assert.equal(2 * (2 * 50 * 3 + 2 * 3 * 40), chain{2, 50, 3, 40})
  end)

  it("is differentiable, twice", function()
    for _, e in ipairs {equations[2], equations[7], equations[13], equations[17]} do
      local inputs, which = {}, {}
      for k = 2, #e do inputs[k - 1], which[k - 1] = tensor(e[k], k), k - 1 end
      local function f(...) return flare.einsum(e[1], ...) end
      assert(gradcheck.gradcheck(f, inputs, which))
      assert(gradcheck.gradgradcheck(f, inputs, which))
    end
  end)

  it("reports errors", function()
    local x = flare.zeros(3, 4)
    local function fails(why, ...)
      local ok, message = pcall(flare.einsum, ...)
      assert(not ok and message:find(why, 1, true), message)
    end
    fails('einsum "ij,jk->ik": j is 4 in input 1 (3, 4), but 3 in input 2 (3, 4)', "ij,jk->ik",
      x, x)
    fails("it is for 2 tensors, got 1", "ij,jk->ik", x)
    fails("input 1 has 2 dims (3, 4), its letters are 3", "ijk->i", x)
    fails("k is in the result, but in no input", "ij->ik", x)
    fails("i occurs twice in the result", "ij->ii", x)
    fails("got '1'", "1j->j", x)
    fails('"..." occurs twice', "...i...->i", x)
    fails("input 2 is number, not a tensor", "ij,->ij", x, 3)
    fails("expected an equation", x, x)
  end)
end)

describe("tensordot", function()
  it("sums over dims that go together", function()
    local a, x = tensor({2, 3, 4}, 2)
    local b, y = tensor({3, 4, 5}, 3)
    same(flare.tensordot(a, b), defined("abc,bcd->ad", {x, y}))
    same(a:tensordot(b, {{2, -1}, {1, 2}}), defined("abc,bcd->ad", {x, y}))
    same(a:tensordot(b, {{3}, {2}}), defined("abc,dce->abde", {x, y}))
    same(a:tensordot(b, 0), defined("abc,def->abcdef", {x, y}))
  end)

  it("reports errors", function()
    local a, b = flare.zeros(2, 3), flare.zeros(4, 5)
    assert.error_matches(function() a:tensordot(b, 1) end, "dim 2 of %(2, 3%) is 3 and dim 1")
    assert.error_matches(function() a:tensordot(b, 3) end, "dims must be a number of dims")
    assert.error_matches(function() a:tensordot(b, {{3}, {1}}) end, "3 is repeated or not a dim of")
    assert.error_matches(function() a:tensordot(b, {{1, 1}, {1, 2}}) end,
                         "1 is repeated or not a dim of")
  end)
end)
