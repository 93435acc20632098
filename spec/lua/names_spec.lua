-- Names that scripts give (dtypes, devices, options, texts), and the names that messages give back.
local flare = require "flare"
local fails = require "spec.support.expect".refused

local i64 = {dtype = "i64"}

describe("a name with a zero byte", function()
  local x = flare.ones(2, 2)

  it("is refused where it is a dtype or a device", function()
    fails('dtype: "f32" is followed by a zero byte', flare.zeros, 2, {dtype = "f32\0x"})
    fails('dtype: "bf16" is followed by a zero byte', flare.autocast, "bf16\0")
    fails('device: "cpu" is followed by a zero byte', flare.zeros, 2, {device = "cpu\0x"})
    fails('"f64" is followed by a zero byte', x.to, x, "f64\0x")
    fails('"cpu" is followed by a zero byte', x.to, x, "cpu\0")
    fails('dtype: "f64" is followed by a zero byte', flare.tensor, {1}, {dtype = "f64\0x"})
    fails('dtype: "f64" is followed by a zero byte', flare.from_bytes, "12345678", "f64\0", {1})
  end)

  it("is refused where it is an option or a choice", function()
    fails('option: "dim" is followed by a zero byte', x.sum, x, {["dim\0x"] = 1})
    fails('reduction: "sum" is followed by a zero byte', x.mse_loss, x, x, {reduction = "sum\0x"})
  end)

  it("is refused where it is a text", function()
    fails("zero byte", flare.elementwise, "T x\0", "T y", "y = x")
    fails("zero byte", flare.elementwise, "T x", "T y\0", "y = x")
    fails("zero byte", flare.elementwise, "T x", "T y", "y = x\0 + 1")
    fails("zero byte", flare.elementwise, "T x", "T y", "y = x", {name = "a\0b"})
    fails("zero byte", flare.reduce, "T x", "T y", "y = x\0 + 1", "sum")
    fails("zero byte", x.is, x, "a b\0c")
    fails('expected a position', function() return x[{"...\0", 1}] end)
  end)
end)

describe("a message", function()
  local u8 = flare.zeros({3, 4}, {dtype = "u8"})
  local at = flare.tensor({1, 2}, i64)

  it("speaks of the index that was written", function()
    fails("x[...] = value: 300 does not fit u8 (0..255)", function() u8[1] = 300 end)
    fails("x[...] = value: 300 does not fit u8", function() u8[at] = 300 end)
    fails("x[...] = value: 300 does not fit u8", function() u8[u8:eq(0)] = 300 end)
    fails("x[...] = value: 300 does not fit u8", function() u8[{1, at}] = 300 end)
    fails("x[...] = value: shape (7) does not", function() u8[1] = flare.ones(7) end)
    fails("x[...] = value: shape (7) does not", function() u8[at] = flare.ones(7) end)
    fails("x[...] = value: the mask takes 12", function() u8[u8:eq(0)] = flare.ones(7) end)
    local w = flare.ones(2, {requires_grad = true})
    fails("x[...] = value: this is a view of a leaf", function() w[1] = 2 end)
  end)

  it("speaks of copy_", function()
    local w = flare.ones(2, {requires_grad = true})
    fails("copy_: a leaf that requires a gradient", w.copy_, w, flare.ones(2))
    fails("copy_: 300 does not fit u8", u8.copy_, u8, 300)
    fails("copy_: shape (7) does not broadcast to (3, 4)", u8.copy_, u8, flare.ones(7))
    fails("copy_: from: expected a tensor or a number, got string", u8.copy_, u8, "a")
    fails("assign_: 300 does not fit u8", u8.assign_, u8, 300)
  end)

  it("speaks of max and min", function()
    fails("max: there is no dim 3", u8.max, u8, 3)
    fails("min: ", u8.min, u8, flare.ones(7))
  end)

  it("suggests the plain form rather than the one in place", function()
    fails("did you mean 'relu6'?", function() return u8.relu6x end)
    fails("did you mean 'softmax'?", function() return u8.sofmax end)
    fails("did you mean 'sum_to'?", function() return u8.sum_to_size end)
    fails("did you mean 'relu_'?", function() return u8.rellu_ end)
  end)

  it("has the hint of the whole name only", function()
    local hint = flare.core.hint
    for _, name in ipairs {"inference_mode: flare.no_grad(f)", "pipe", "integer", "info"} do
      assert.equal("there is no flare." .. name, hint("there is no flare." .. name))
    end
    fails("there is no flare.inf: math.huge", function() return flare.inf end)
    fails("there is no flare.int: dtypes are strings", function() return flare.int end)
  end)
end)

describe("a number written by positions", function()
  it("keeps the dtype", function()
    for _, dtype in ipairs {"i64", "i32", "u8", "bool", "f32", "f64"} do
      local x = flare.zeros({3}, {dtype = dtype})
      x[flare.tensor({1, 3}, i64)] = 1
      assert.same({1, 0, 1}, x:to("f64"):totable())
      assert.equal(dtype, x.dtype)
    end
  end)
end)

describe("isin", function()
  it("takes a number", function()
    local x = flare.tensor({1, 2, 3}, i64)
    assert.same({false, true, false}, x:isin(2):totable())
    assert.same({true, false, true}, x:isin(2, {invert = true}):totable())
    assert.same({false, false, false}, x:isin(2.5):totable())
    fails("isin: x must be a tensor, got a number", flare.isin, 3, x)
  end)
end)
