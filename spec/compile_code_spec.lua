-- Machine code in plans of the CPU: functions that it has instead of the rows' loops, over all
-- magnitudes of f32, against the same functions in f64. Where there is no machine code, the loops
-- are held to the same bounds.
local flare = require "flare"

-- {name, arguments from, to, by exp2, units in the last place}
local functions = {
  {"exp", -104.5, 88.7, false, 1},
  {"log", -149, 127.9, true, 1},
  {"tanh", -149, 4, true, 2},
  {"sigmoid", -105, 105, false, 2},
}

local N = 200001

local function arguments(from, to, powers)
  local x = flare.linspace(from, to, N, {dtype = "f64"})
  if powers then x = x:exp2() end
  return x:to "f32"
end

-- |got - want| in units of the last place of an f32 that is next to `want`.
local function units(got, want)
  local size = want:abs():log2():floor():clamp(-126, 127) - 23
  return ((got:to "f64" - want):abs() / size:exp2()):max():item()
end

local function planned(f)
  return flare.core.compiled(f, false, true)
end

describe("machine code of plans", function()
  for _, case in ipairs(functions) do
    local name, bound = case[1], case[5]
    it(("is within %d units of %s"):format(bound, name), function()
      local x = arguments(case[2], case[3], case[4])
      local f = planned(function(v) return (v * 1)[name](v * 1) * 1 end)
      local y
      for _ = 1, 4 do y = f(x) end
      local off = units(y, x:to "f64"[name](x:to "f64"))
      assert(off <= bound, ("%s is off by %.3f"):format(name, off))
    end)

    it(("has the ends of %s"):format(name), function()
      local ends = flare.tensor {0, -0.0, 1 / 0, -1 / 0, 0 / 0, -1, 3e38, -3e38, 1e-45, 120, -120}
      local f = planned(function(v) return (v * 1)[name](v * 1) * 1 end)
      local got
      for _ = 1, 4 do got = f(ends):tolist() end
      local want = ends:to "f64"[name](ends:to "f64"):to "f32":tolist()
      for k, v in ipairs(want) do
        local same = got[k] == v or (got[k] ~= got[k] and v ~= v)
          or math.abs(got[k] - v) <= 3e-7 * math.abs(v)
        assert(same, ("%s of %s is %s, not %s"):format(name, ends[k]:item(), got[k], v))
      end
    end)
  end

  it("has the bits of the calls where `exact` asks for them", function()
    local function f(x)
      local y = (x:exp() + 1):log():tanh() / (x:sigmoid() * x + 2)
      return -y * x:square() + (x:abs() + 0.5):rsqrt()
    end
    local x = flare.linspace(-20, 20, 5003)
    local g, got = flare.core.compiled(f, true, true), nil
    for _ = 1, 4 do got = g(x) end
    assert.truthy(got:equal(f(x)))
  end)

  it("spills values that no register is free for", function()
    -- 40 values that are all read at the end, in the order that keeps them longest
    local function f(x)
      local values, sum = {}, nil
      for k = 1, 40 do values[k] = x * k + 1 / k end
      for k = 1, 40 do sum = sum and sum / 2 + values[k] or values[k] end
      return sum
    end
    local x = flare.linspace(-3, 3, 1003)
    local g, want = planned(f), f(x)
    local got
    for _ = 1, 4 do got = g(x) end
    assert.truthy((got - want):abs():max():item() <= 1e-4)
  end)

  it("writes over what it reads, after all reads", function()
    local function f(x, y)
      x:mul_(2):add_(y)
      y:sub_(x):mul_(x)
    end
    local x, y = flare.linspace(-3, 3, 1003), flare.linspace(1, 2, 1003)
    local a, b = x:clone(), y:clone()
    local g = planned(f)
    for _ = 1, 4 do
      f(a, b)
      g(x, y)
      assert.truthy(a:equal(x) and b:equal(y))
      a:mul_(1e-3)
      b:mul_(1e-3)
      x:mul_(1e-3)
      y:mul_(1e-3)
    end
  end)
end)
