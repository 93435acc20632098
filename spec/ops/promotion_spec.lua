-- Which dtype comes of two: tensors with dims decide, tensors without and numbers only lift
-- bool to whole and whole to float.
local A = require "spec.support.array"
local dtypes = require "spec.support.dtypes"
local flare = require "flare"

local all = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"}

-- The rules as a table, row by column, in the order above.
local table_of_two = {
  f64 = "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
  f32 = "f64 f32 f32 f32 f32 f32 f32 f32 f32 f32",
  f16 = "f64 f32 f16 f32 f16 f16 f16 f16 f16 f16",
  bf16 = "f64 f32 f32 bf16 bf16 bf16 bf16 bf16 bf16 bf16",
  i64 = "f64 f32 f16 bf16 i64 i64 i64 i64 i64 i64",
  i32 = "f64 f32 f16 bf16 i64 i32 i32 i32 i32 i32",
  i16 = "f64 f32 f16 bf16 i64 i32 i16 i16 i16 i16",
  i8 = "f64 f32 f16 bf16 i64 i32 i16 i8 i16 i8",
  u8 = "f64 f32 f16 bf16 i64 i32 i16 i16 u8 u8",
  bool = "f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool",
}

local function column(row, k)
  local n = 0
  for name in table_of_two[row]:gmatch "%S+" do
    n = n + 1
    if n == k then return name end
  end
end

local function level(d)
  return A.is_float(d) and 2 or d == "bool" and 0 or 1
end

local function of(dtype, ...)
  return flare.ones({...}, {dtype = dtype})
end

describe("promotion", function()
  it("of two tensors with dims follows the table, whichever comes first", function()
    for _, a in ipairs(all) do
      for k, b in ipairs(all) do
        local want = column(a, k)
        assert.equal(want, (of(a, 2) + of(b, 3, 1)).dtype, a .. " and " .. b)
        assert.equal(want, dtypes.promote(a, b))
        assert.equal(want, flare.cat({of(a, 2), of(b, 2)}).dtype)
        assert.equal(want, flare.where(of("bool", 2), of(a, 2), of(b, 2)).dtype)
        assert.equal(want, of(a, 2, 2):matmul(of(b, 2, 2)).dtype)
        assert.equal("bool", of(a, 2):lt(of(b, 2)).dtype)
      end
    end
  end)

  it("by a tensor without dims, or a number, lifts the kind only", function()
    for _, a in ipairs(all) do
      for k, b in ipairs(all) do
        local want = level(b) > level(a) and column(a, k) or a
        assert.equal(want, (of(a, 2) + of(b)).dtype, a .. " and a single " .. b)
        assert.equal(want, (of(b) * of(a, 1)).dtype)
      end
      assert.equal(level(a) == 2 and a or "f32", (of(a, 2) * 1.5).dtype)
      assert.equal(level(a) == 0 and "i64" or a, (of(a, 2) * 2).dtype)
      assert.equal(a, (of(a, 2) + true).dtype)
    end
  end)

  it("computes in what it promotes to", function()
    local u8, i8 = flare.tensor({200, 255}, {dtype = "u8"}), flare.tensor({-100, 100},
    {dtype = "i8"})
    assert.same({100, 355}, (u8 + i8):tolist())
    assert.same({300, 355}, (u8:to "i16" + 100):tolist())
    assert.same({44, 99}, (u8 + 100):tolist()) -- wraps
    local big = flare.tensor({(1 << 53) + 1}, {dtype = "i64"})
    assert.same({(1 << 53) + 2}, (big + 1):tolist()) -- exact
    assert.same({0.5, 1}, (flare.tensor({1, 2}, {dtype = "i32"}) / 2):tolist())
    assert.equal("f32", (of("i64", 2) / of("i64", 2)).dtype)
    assert.equal("f16", (of("f16", 2) / of("i64", 2)).dtype)
    local half = flare.tensor({2049}, {dtype = "f16"}) -- 2048: half of the next step, to even
    assert.same({2048}, half:tolist())
    assert.same({2049}, (half + flare.ones(1)):tolist())
  end)

  it("does not reach a tensor that is written", function()
    for _, a in ipairs(all) do
      for _, b in ipairs(all) do
        local x = of(a, 2)
        local ok = pcall(x.add_, x, of(b, 2))
        local fits = level(b) <= level(a)
        assert.equal(fits, ok, a .. " += " .. b)
        assert.equal(a, x.dtype)
      end
    end
  end)
end)
