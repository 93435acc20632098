-- Operators of a shared library (spec/c/op_module.c): like any other from then on, with init hook,
-- gradient and fingerprint; wrong ones are refused.
local flare = require "flare"
local message = require "spec.support.expect".message

local library = (os.getenv "FLARE_BUILD" or "build") .. "/spec/op_module.so"

local function register(more)
  local o = {name = "outside_scale", signature = "x:float, by:real=2 -> y:x", library = library,
             symbol = "scale", init = "scale_init", backward = "outside_plain_backward"}
  for key, value in pairs(more or {}) do o[key] = value end
  return flare.op.register(o)
end

describe("an operator from a shared library", function()
  local scale, fingerprint
  setup(function()
    flare.op.register {name = "outside_plain_backward", library = library,
      symbol = "scale_backward", signature = "x:float, y:float, dy:float, by:real=2 -> dx:x"}
    scale, fingerprint = register()
  end)

  it("runs, with attributes, strides and shapes as its row says", function()
    assert.same({3, 5, 7}, scale(flare.tensor {1, 2, 3}):totable())
    assert.same({11, 21}, scale(flare.tensor {1, 2}, {by = 10}):totable())
    assert.same({{3, 7}, {5, 9}}, scale(flare.tensor {{1, 2}, {3, 4}}:t()):totable())
    assert.truthy(message(scale, flare.ones(2):to "f16")
      :find("outside_scale: x is f16, but must be f32", 1, true))
    assert.truthy(message(scale, flare.tensor {1}, {of = 3}):find "of")
  end)

  it("has the gradient that it names", function()
    local x = flare.tensor({1, 2, 3}, {requires_grad = true})
    scale(x, {by = 5}):sum():backward()
    assert.same({5, 5, 5}, x.grad:totable())
  end)

  it("is known by its fingerprint", function()
    local again, same = register {fingerprint = fingerprint}
    assert.equal(fingerprint, same)
    assert.same({3}, again(flare.tensor {1}):totable())
    assert.truthy(message(register, {fingerprint = fingerprint + 1})
      :find("another signature was meant", 1, true))
    assert.truthy(message(register, {signature = "x:float, y:float, by:real=2 -> z:x"})
      :find("there is a outside_scale already, with the signature x:float, by:real=2", 1, true))
  end)

  it("is refused where something is missing or wrong", function()
    local function refused(more, why)
      more.name = more.name or "outside_other"
      local got = message(register, more)
      assert.truthy(got:find(why, 1, true), got)
    end
    refused({library = "/nowhere.so"}, "/nowhere.so")
    refused({symbol = "nothing"}, "has no function nothing")
    refused({init = "nothing"}, "has no function nothing")
    refused({init = "scale_refuse"}, "outside_other: not on this machine")
    refused({name = "inside"}, "made for others than inside")
    refused({name = "matmul"}, "matmul is an operator of flare's")
    refused({signature = "x:what -> y:x"}, 'bad signature near "what -> y:x": x:what -> y:x')
    refused({signature = "x:any -> y:z"}, 'bad signature near "z": x:any -> y:z')
    refused({signature = "x:any" .. (", b:real=1"):rep(13) .. " -> y:x"}, "bad signature near")
    refused({name = "two words"}, '"two words" is no name')
    refused({name = "3d"}, '"3d" is no name')
    refused({like = 4}, "has no input 4")
    refused({backend = "tpu"}, "there is no backend \"tpu\"")
    refused({backward = "nothing"}, "there is no operator \"nothing\"")
    refused({backward = "exp"}, "exp cannot be the gradient of outside_other")
    refused({sumbol = "scale"}, "sumbol")
  end)
end)
