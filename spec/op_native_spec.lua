-- Operators from outside pass what rows pass: values, dtypes, strides, shapes, gradients
-- (spec/support/native_ops.lua); and those that are wrong are refused with a reason.
local checks = require "spec.support.checks"
local flare = require "flare"
local gradients = require "spec.support.gradients"
local native = require "spec.support.native_ops"

native.register()

for name, samples in pairs(native.samples) do
  local row = flare.op.info(name)
  describe(name, function()
    it("gives the values", function() checks.values(row, samples, native.reference) end)
    it("takes its dtypes", function() checks.dtypes(row, samples, native.reference) end)
    it("takes any strides", function() checks.strides(row, samples, native.reference) end)
    it("knows shapes without values", function() checks.meta(row, samples) end)
    it("has its gradient", function() gradients.first(row, samples) end)
    it("has it by every way", function() gradients.others(row, samples) end)
    if name ~= "outside_axpb" then -- whose gradient is a kernel without one
      it("has its second gradient", function() gradients.second(row, samples) end)
    end
  end)
end

-- Here, not in spec/support: errors quote the file that f is called from.
local function message(f, ...)
  local ok, why = pcall(f, ...)
  assert.is_false(ok, "it did not fail")
  return tostring(why)
end

local function refused(o, why)
  o.name = o.name or "outside_wrong"
  o.signature = o.signature or "x:float, by:real=2 -> y:x"
  local got = message(flare.op.register, o)
  assert.truthy(got:find(why, 1, true), got)
end

describe("an operator with an expression", function()
  it("is one of the runtime's operators", function()
    assert.equal("outside_blend", flare.op.info("outside_blend").name)
    assert.same({9}, flare.core.ops.outside_blend(flare.tensor {3}, flare.tensor {1.5}):tolist())
    assert.truthy(message(native.blend, flare.ones(2), flare.ones(2), {buy = 3}):find "buy")
  end)

  it("derives its gradient", function()
    local f = flare.op.register {name = "outside_derived", signature = "x:float, by:real=2 -> y:x",
                                 expression = "y = exp(x * by)"}
    assert.is_true(flare.gradcheck(f, {flare.rand(4)}, {second = true}))
    local x = flare.tensor({0, 1}, {requires_grad = true})
    f(x, {by = 3}):sum():backward()
    assert.near(3, x.grad[1]:item(), 1e-6)
    assert.near(3 * math.exp(3), x.grad[2]:item(), 1e-4)
  end)

  it("reports errors in its texts when it is registered", function()
    refused({expression = "y = x * buy"}, "buy is not declared")
    refused({expression = "y = x", gradient = "gx = gz"}, "gz is not declared")
    refused({library = native.library, symbol = "scale", gradient = "gx = "}, "outside_wrong")
  end)
end)

describe("a kernel for an operator", function()
  local source = [[__global__ void f(const float *x, float *y, double by, long long n) {
    y[0] = nothing;
  }]]
  local compiled = native.compiles and it or function(name)
    it(name, function() pending "needs NVRTC" end)
  end

  compiled("is announced to its init hook with the fingerprint", function()
    assert.same({"outside_blend", native.fingerprint}, native.initialized)
    refused({source = source:gsub("nothing", "1"), symbol = "f", fingerprint = 5},
      "another signature was meant")
  end)

  it("must have the parameters of the signature", function()
    refused({source = source, symbol = "f", signature = "x:float -> y:x"},
      "f has 4 parameters, but its signature makes 3 of them: x, y, the number of elements")
    refused({source = source, symbol = "f", signature = "x:float, by:int -> y:x"},
      "parameter 3 of f (by) is double: it must be long long")
    refused({source = source, symbol = "f", signature = "x:float, w:float -> y:x"},
      "parameter 3 of f (y) is double: it must be a pointer")
  end)

  compiled("shows the line of what does not compile", function()
    local why = message(flare.op.register, {name = "outside_wrong", source = source, symbol = "f",
      signature = "x:float, by:real=2 -> y:x"})
    assert.truthy(why:find("op_native_spec.lua:%d+ %(kernel line 2%): error"), why)
  end)

  it("is refused where it is wrong", function()
    refused({image = "MZ", symbol = "f"}, "the image is no cubin")
    refused({source = source}, "symbol must name the kernel")
    refused({source = source, image = "x", symbol = "f"}, "give source or image, not both")
    refused({source = source, symbol = "f", dtypes = {"f32", "f64"}}, "a * for the type")
    refused({source = source, symbol = "f*", dtypes = {"f33"}}, "there is no dtype 'f33'")
    refused({expression = "y = x", launch = print}, "launch is for kernels")
    refused({expression = "y = x", init = "f"}, "init must be a function")
    refused({expression = "y = x", init = function() error("not today", 0) end}, "not today")
    refused({library = native.library, symbol = "scale", source = source},
      "give a kernel or a library, not both")
    if native.image then
      refused({image = native.image, symbol = "squares_f32", backend = "cpu"}, "takes no kernels")
      refused({image = native.image, symbol = "squares_f32", signature = "x:float, d:dims -> y:x"},
        "d cannot be passed to a kernel")
    end
  end)

  it("is not there on a device that it is not for", function()
    if not native.image then return pending "needs NVRTC" end
    local f = flare.op.register {name = "outside_gpu", signature = "x:float, size:int -> y:x",
      image = native.image, symbol = "squares_f32"}
    assert.truthy(message(f, flare.ones(2), 2):find(
      "outside_gpu: the cpu backend has no kernel for it", 1, true))
  end)
end)
