-- floor_div, remainder and fmod of whole floats beside the arithmetic of integers, which is exact.
local flare = require "flare"

-- Whole numbers that the dtype has: near powers of 2 and 10, small ones, and random ones.
local function numbers(bits, random)
  local list = {1, 2, 3, 5, 7, 10, 48, 99, 1000, 1e6 // 1 | 0}
  for power = bits - 3, 61, bits == 53 and 3 or 9 do
    local low = 1 << math.max(power - bits + 1, 0)
    for _, k in ipairs {-3, -1, 0, 1, 2} do list[#list + 1] = (1 << power) + k * low end
  end
  for _ = 1, 10 do
    local n = random(1 << (bits - 1), (1 << bits) - 1)
    list[#list + 1] = n << random(0, 62 - bits)
    list[#list + 1] = n >> random(1, bits - 1)
  end
  return list
end

local function gap(x, bits) -- between neighbours at x
  local _, e = x, 0
  while math.abs(x) >= 2.0 ^ (e + 1) do e = e + 1 end
  return 2.0 ^ math.max(e - bits + 1, 0)
end

local kinds = {{"f64", 53}, {"f32", 24}}
for _, device in ipairs {"cpu", "sim:0"} do
  for _, kind in ipairs(kinds) do
    local dtype, bits = kind[1], kind[2]
    describe(("quotients of %s on %s"):format(dtype, device), function()
      local state = 12345
      local function random(low, high)
        state = (state * 6364136223846793005 + 1442695040888963407)
        return low + ((state >> 11) % (high - low + 1))
      end
      local list = numbers(bits, random)
      local a, b = {}, {}
      for _, x in ipairs(list) do
        for _, y in ipairs(list) do
          local sign = #a % 4
          a[#a + 1] = sign < 2 and x or -x
          b[#b + 1] = sign % 2 == 0 and y or -y
        end
      end
      local o = {dtype = dtype, device = device}
      local ta, tb = flare.tensor(a, o), flare.tensor(b, o)

      it("floor_div is exact below 2^" .. bits .. ", and rounded once above", function()
        local got = ta:floor_div(tb):totable()
        for k = 1, #a do
          local want = a[k] // b[k]
          local off = (got[k] // 1 | 0) - want
          local allowed = math.abs(want) < 1 << bits and 0 or gap(want, bits) / 2
          assert(math.abs(off) <= allowed and (got[k] < 0) == (want < 0),
            ("%d // %d: %.17g, not %d"):format(a[k], b[k], got[k], want))
        end
      end)

      it("remainder has the sign of the divisor", function()
        local got = ta:remainder(tb):totable()
        for k = 1, #a do
          local want = a[k] % b[k]
          assert(math.abs((got[k] // 1 | 0) - want) <= gap(want, bits) / 2,
            ("%d %% %d: %.17g, not %d"):format(a[k], b[k], got[k], want))
        end
      end)

      it("fmod is exact", function()
        local got = ta:fmod(tb):totable()
        for k = 1, #a do
          local want = math.fmod(a[k], b[k])
          assert(got[k] == want, ("fmod(%d, %d): %.17g, not %d"):format(a[k], b[k], got[k], want))
        end
      end)
    end)
  end
end

describe("floor_div", function()
  it("gives the digits of 1e16 // 3", function()
    local x = flare.tensor({1e16, -1e16}, {dtype = "f64"})
    assert.same({3333333333333333.0, -3333333333333334.0}, x:floor_div(3):totable())
  end)

  it("keeps what infinities and zeros give", function()
    local inf, o = math.huge, {dtype = "f64"}
    local a, b = flare.tensor({inf, 1, -1, 1e308, 0}, o), flare.tensor({2, inf, inf, 1e-308, 0}, o)
    local y = a:floor_div(b):totable()
    assert(y[1] ~= y[1] and y[5] ~= y[5])
    assert.same({0.0, -1.0, inf}, {y[2], y[3], y[4]})
  end)
end)
