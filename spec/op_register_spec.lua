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
  end)

  it("may be registered again, as a script that is run twice does", function()
    local first = {name = "outside_again", signature = "x:float -> y:x", expression = "y = x * x"}
    local f = flare.op.register(first)
    local g = flare.op.register(first)
    assert.same({9}, f(flare.tensor {3}):totable())
    assert.same({9}, g(flare.tensor {3}):totable())
    assert.same({{7}}, {register {name = "outside_third"}(flare.tensor {3}):totable()})
    assert.same({{7}}, {register {name = "outside_third"}(flare.tensor {3}):totable()})
  end)

  it("is replaced by another definition, for new calls", function()
    local function define(expression, more)
      local o = {name = "outside_new", signature = "x:float -> y:x", expression = expression}
      for key, value in pairs(more or {}) do o[key] = value end
      return flare.op.register(o)
    end
    local x = flare.tensor({3}, {requires_grad = true})
    local before = define "y = x * x"
    local y = before(x)
    local after = define "y = x * x * x"
    assert.same({27}, after(x):totable())
    assert.same({27}, flare.op.find "outside_new"(x):totable())
    assert.same({9}, before(x):totable()) -- a function keeps what it was made for
    y:backward()
    assert.same({6}, x.grad:totable()) -- so does a graph
    local two = define("y = x + by", {signature = "x:float, by:real=2 -> y:x"})
    assert.same({5}, two(x):totable())
    assert.same({4}, two(x, {by = 1}):totable())
    assert.equal("x:float, by:real=2 -> y:x", flare.op.info "outside_new".signature)
    x.grad = nil
    define("y = 3 * x", {gradient = "gx = gy * 5"})(x):backward()
    assert.same({5}, x.grad:totable())
    x.grad = nil
    define("y = 3 * x", {gradient = "gx = gy * 7"})(x):backward()
    assert.same({7}, x.grad:totable())
  end)

  it("is known to help, by name and as a function", function()
    local f = flare.op.register {name = "outside_told", signature = "x:float, by:real=2 -> y:x",
      expression = "y = x * by"}
    local text = flare.help "outside_told"
    assert.truthy(text:find("outside_told(x, by = 2)", 1, true), text)
    assert.equal(text, flare.help(f))
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
