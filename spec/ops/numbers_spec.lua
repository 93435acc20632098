-- Numbers beside integer tensors: exact over all of i64, and refused where they do not fit.
local flare = require "flare"

local big = (1 << 53) + 1 -- no double
local devices = {"cpu", "sim:0"}

local function list(x)
  return x:to("cpu"):totable()
end

describe("numbers of i64", function()
  for _, device in ipairs(devices) do
    local o = {dtype = "i64", device = device}
    local function full(v) return flare.full({2}, v, o) end

    it("are exact in what makes tensors, on " .. device, function()
      local top, least = math.maxinteger, math.mininteger
      assert.same({top - 2, top - 1}, list(flare.arange(top - 2, top, 1, o)))
      assert.same({top - 1, top}, list(flare.range(top - 1, top, 1, o)))
      assert.same({least, least + 1}, list(flare.range(least, least + 1, 1, o)))
      assert.same({least, -1, top - 1}, list(flare.range(least, top, top, o)))
      assert.same({big, big - 2}, list(flare.arange(big, big - 4, -2, o)))
      assert.same({big, big + 2, big + 4}, list(flare.linspace(big, big + 4, 3, o)))
      assert.same({top, top - 1, top - 2}, list(flare.linspace(top, top - 2, 3, o)))
      assert.same({-1, 0, 0, 1}, list(flare.linspace(-1, 1, 4, o)))
      assert.same({1, 0, 0, -1}, list(flare.linspace(1, -1, 4, o)))
      for _, v in ipairs {big, -big, top, least} do
        assert.same({v, v}, list(full(v)))
        assert.same({v, v}, list(flare.full_like(full(0), v)))
        assert.same({v, v}, list(full(0):fill_(v)))
        assert.same({v, 0, 0, v}, list(full(0):pad({1, 1}, {value = v})))
      end
    end)

    it("are exact beside tensors, on " .. device, function()
      local one = flare.tensor({1}, {dtype = "i64"}):to(device)
      local mask = full(1):gt(0)
      for _, v in ipairs {big, -big, math.maxinteger, math.mininteger} do
        assert.same({v, v}, list(full(v > 0 and math.mininteger or math.maxinteger):clamp(
          v > 0 and v or math.mininteger, v > 0 and math.maxinteger or v)))
        assert.same({v, v}, list(full(v):clamp(math.mininteger, math.maxinteger)))
        assert.same({v, v}, list(full(v):maximum(math.mininteger)))
        assert.same({v, v}, list(full(v):minimum(math.maxinteger)))
        assert.same({v, v}, list(flare.where(mask, full(0), 0) + v))
        assert.same({v, v}, list(flare.where(mask, v, full(0))))
        assert.same({v, v}, list(full(0):masked_fill(mask, v)))
        assert.same({v, 0}, list(full(0):index_fill(1, one, v)))
        assert.same({v, 0}, list(full(0):scatter(1, one, v)))
        assert.same({v, v}, list(full(v) ^ 1))
        local x = full(0)
        x[2] = v
        x[mask:to("i64"):eq(2)] = 5
        assert.same({0, v}, list(x))
        assert.same({v, v}, list(full(v):clamp_(v, v)))
      end
    end)

    it("compare exactly, with reals too, on " .. device, function()
      local x = full(big)
      assert.same({true, true}, list(x:eq(big)))
      assert.same({false, false}, list(x:eq(big - 1)))
      assert.same({true, true}, list(x:gt(2.0 ^ 53)))
      assert.same({false, false}, list(x:eq(2.0 ^ 53)))
      assert.same({true, true}, list(x:ne(big + 0.0)))
      assert.same({false, true}, list(flare.tensor({16777217, 16777218}, o):gt(16777217.5)))
      assert.same({true, true}, list(flare.lt(2.0 ^ 53, x)))
      for _, f in ipairs {1e30, 1 / 0, 2.0 ^ 63} do
        local top = full(math.maxinteger)
        assert.same({true, true}, list(top:lt(f)))
        assert.same({true, true}, list(top:le(f)))
        assert.same({false, false}, list(top:ge(f)))
        assert.same({false, false}, list(top:gt(f)))
        assert.same({false, false}, list(top:eq(f)))
        assert.same({true, true}, list(flare.gt(f, top)))
        assert.same({true, true}, list(full(math.mininteger):gt(-f - 2.0 ^ 62)))
      end
      for _, name in ipairs {"eq", "lt", "le", "gt", "ge"} do
        assert.same({false, false}, list(x[name](x, 0 / 0)))
      end
      assert.same({true, true}, list(x:ne(0 / 0)))
    end)
  end

  it("are exact in kernels written as functions", function()
    local f = flare.kernel(function(x) return x:clamp(big, math.maxinteger), x:gt(2.0 ^ 53) end)
    local a, b = f(flare.full({2}, big, {dtype = "i64"}))
    assert.same({big, big}, a:totable())
    assert.same({true, true}, b:totable())
  end)
end)

-- dtype, a number below its range and one above
local ranges = {u8 = {-1, 256}, i8 = {-129, 128}, i16 = {-32769, 32768},
  i32 = {-(1 << 31) - 1, 1 << 31}}

describe("a number that does not fit the dtype", function()
  local doors = {
    add = function(x, v) return x + v end,
    sub = function(x, v) return v - x end,
    mul = function(x, v) return x * v end,
    floor_div = function(x, v) return x // v end,
    remainder = function(x, v) return x % v end,
    fmod = function(x, v) return x:fmod(v) end,
    pow = function(x, v) return x ^ v end,
    maximum = function(x, v) return x:maximum(v) end,
    minimum = function(x, v) return x:minimum(v) end,
    fmax = function(x, v) return x:fmax(v) end,
    clamp = function(x, v) return x:clamp(v) end,
    clamp_max = function(x, v) return x:clamp{max = v} end,
    bitwise_and = function(x, v) return x & v end,
    gcd = function(x, v) return x:gcd(v) end,
    where = function(x, v) return flare.where(x:gt(0), x, v) end,
    heaviside = function(x, v) return x:heaviside(v) end,
    fill_ = function(x, v) return x:fill_(v) end,
    real_fill_ = function(x, v) return x:fill_(v + 0.0) end,
    add_ = function(x, v) return x:add_(v) end,
    full = function(x, v) return flare.full({2}, v, {dtype = x.dtype, device = x.device}) end,
    full_like = function(x, v) return flare.full_like(x, v) end,
    arange = function(x, v)
      return flare.range(v, v, 1, {dtype = x.dtype, device = x.device})
    end,
    linspace = function(x, v) return flare.linspace(0, v, 2, {dtype = x.dtype}) end,
    masked_fill = function(x, v) return x:masked_fill(x:gt(0), v) end,
    pad = function(x, v) return x:pad({1, 1}, {value = v}) end,
    index = function(x, v) x[1] = v end,
    slice = function(x, v) x[{{1, 2}}] = v end,
    mask = function(x, v) x[x:gt(0)] = v end,
    scatter = function(x, v)
      return x:scatter(1, flare.tensor({1}, {dtype = "i64"}):to(x.device), v)
    end,
    index_fill = function(x, v)
      return x:index_fill(1, flare.tensor({1}, {dtype = "i64"}):to(x.device), v)
    end,
    kernel = function(x, v) return flare.kernel(function(a) return a + v end)(x) end,
  }
  for dtype, bounds in pairs(ranges) do
    for name, f in pairs(doors) do
      it(("is refused by %s of %s"):format(name, dtype), function()
        for _, device in ipairs(devices) do
          for _, v in ipairs(bounds) do
            local x = flare.full({2}, 7, {dtype = dtype, device = device})
            local ok, message = pcall(f, x, v)
            assert.is_false(ok, ("%s takes %d"):format(name, v))
            assert.truthy(tostring(message):find("does not fit " .. dtype, 1, true), message)
            assert.same({7, 7}, list(x))
          end
        end
      end)
    end

    it("compares as it is with " .. dtype, function()
      for _, device in ipairs(devices) do
        local x = flare.full({2}, 7, {dtype = dtype, device = device})
        assert.same({true, true}, list(x:gt(bounds[1])))
        assert.same({true, true}, list(x:lt(bounds[2])))
        assert.same({false, false}, list(x:eq(bounds[2] + 7)))
        assert.same({true, true}, list(x:lt(bounds[2] + 0.5)))
      end
    end)
  end

  it("is refused if it is NaN or infinite", function()
    for _, v in ipairs {0 / 0, 1 / 0, -1 / 0} do
      for _, dtype in ipairs {"i64", "i32", "u8"} do
        local x = flare.zeros({2}, {dtype = dtype})
        assert.error_matches(function() x:fill_(v) end, "does not fit " .. dtype)
        assert.error_matches(function() x[1] = v end, "does not fit " .. dtype)
        assert.error_matches(function() flare.full({2}, v, {dtype = dtype}) end,
          "does not fit " .. dtype)
      end
    end
  end)

  it("does not hold for the greatest and the least", function()
    for dtype, bounds in pairs(ranges) do
      for _, v in ipairs {bounds[1] + 1, bounds[2] - 1} do
        local x = flare.zeros({2}, {dtype = dtype})
        x[1] = v
        assert.same({v, 0}, x:totable())
        assert.same({v, v}, x:fill_(v):totable())
        assert.same({v, v}, flare.full({2}, v, {dtype = dtype}):totable())
        assert.same({v, v}, (flare.zeros({2}, {dtype = dtype}) + v):totable())
      end
    end
  end)
end)

describe("the least integer as an option", function()
  it("is not taken for one that is left out", function()
    local x = flare.zeros(4)
    assert.error_matches(function() x:as_strided({2}, {1}, math.mininteger) end,
      "as_strided: offset: %-9223372036854775808 is out of range")
    assert.error_matches(function() flare.eye(2, math.mininteger) end, "eye: m: .* out of range")
    assert.error_matches(function() x:vander{n = math.mininteger} end, "out of range")
    assert.error_matches(function() flare.fft(x, {n = math.mininteger}) end, "out of range")
    local index = flare.tensor({1}, {dtype = "i64"})
    assert.error_matches(function()
      flare.embedding(flare.ones(2, 2), index, {padding = math.mininteger})
    end, "out of range")
  end)

  it("is a power of a matrix", function()
    local turned = flare.tensor({{0, 1}, {1, 0}}, {dtype = "f64"})
    assert.same({{1, 0}, {0, 1}}, turned:matrix_power(math.mininteger):totable())
    assert.same({{0, 1}, {1, 0}}, turned:matrix_power(math.mininteger + 1):totable())
  end)
end)

describe("bounds of clamp", function()
  it("that are reals are rounded inwards for integers", function()
    local x = flare.arange(-3, 4)
    assert.same({-1, -1, -1, 0, 1, 2, 2}, x:clamp(-1.5, 2.5):totable())
    assert.same({-3, -2, -1, 0, 1, 2, 3}, x:clamp(-1 / 0, 1 / 0):totable())
    assert.same({1, 1, 1, 1, 1, 2, 3}, x:clamp(0.5):totable())
  end)
end)
