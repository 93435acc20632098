-- Bits of elementwise results: those of an element do not depend on where it lies, so `exact`
-- plans can have them, whatever loops they make.
local flare = require "flare"
local rows = require "spec.support.rows"
local typed = require "spec.support.typed_programs"
local words = require "spec.support.typed_words"

local function same(a, b)
  return a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item()
end

local integers = {bitwise_not = true, bitwise_and = true, bitwise_or = true, bitwise_xor = true,
  shift_left = true}

local function each(list, f)
  local wrong = {}
  for _, name in ipairs(list) do
    if not integers[name] and not f(flare[name]) then wrong[#wrong + 1] = name end
  end
  assert.same({}, wrong)
end

for _, dtype in ipairs {"f32", "f64"} do
  describe("an element of " .. dtype, function()
    flare.manual_seed(1)
    local a, b = flare.randn(7, 13):to(dtype) * 2, flare.randn(7, 13):to(dtype) * 2
    local spread = flare.zeros({7, 26}, {dtype = dtype}):narrow(2, 1, 13, 2)
    spread:copy_(a)

    it("has the same bits in the middle of a vector and alone", function()
      each(words.unary, function(f)
        local all = f(a):reshape(-1)
        for k = 1, 91, 9 do
          if not same(all:narrow(1, k, 1), f(a:reshape(-1):narrow(1, k, 1))) then return false end
        end
        return same(f(a), f(spread)) and same(f(a):narrow(1, 2, 3), f(a:narrow(1, 2, 3)))
      end)
      each(words.binary, function(f)
        local one, row = b:select(1, 3):select(1, 5), b:select(1, 3)
        return same(f(a, b), f(spread, b)) and same(f(a, one):select(1, 3), f(a:select(1, 3), one))
          and same(f(a, row):select(1, 7), f(a:select(1, 7), row))
          and same(f(a, one)[1]:narrow(1, 1, 1), f(a[1]:narrow(1, 1, 1), one))
          and same(f(one, one):reshape(1), f(b, b):select(1, 3):narrow(1, 5, 1))
      end)
    end)

    it("has them in an exact plan, too", function()
      each(words.unary, function(f)
        local function g(x, y) return f(x) + 0, f(y) + 0, f(x:narrow(2, 2, 5)) + 0 end
        local c = flare.core.compiled(g, true, true)
        local p, q, r = c(a, spread)
        return same(f(a) + 0, p) and same(f(a) + 0, q) and same((f(a) + 0):narrow(2, 2, 5), r)
      end)
    end)
  end)
end

for _, device in ipairs(rows.devices) do
  describe("on " .. device, function()
    it("a 0-d tensor takes the width of tensors with dims, at once and in a plan", function()
      local a = flare.tensor({0.3, 0.1, 0.7}, {device = device})
      local wide = flare.full({}, 0.3, {dtype = "f64", device = device})
      local function f(x, s) return x:eq(s), x * s, flare.addcmul(x, x, x:to "f64").dtype end
      for _, g in ipairs {f, (flare.core.compiled(f, true, true))} do
        local equal, product, dtype = g(a, wide)
        assert.same({true, false, false}, equal:totable())
        assert.is_true(same(product, a * 0.3))
        assert.equal("f64", dtype)
      end
    end)

    it("programs of any dtypes, shapes and layouts give the same bits compiled", function()
      for seed = 1, 20 do typed.check(seed, device) end
      for seed = 21, 30 do typed.check(seed, device, "first") end
      for seed = 31, 40 do typed.check(seed, device, "again") end
    end)
  end)
end
