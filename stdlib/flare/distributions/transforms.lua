--- Invertible functions for TransformedDistribution: forward(x), inverse(y), the log of the
-- absolute derivative at x, and the sign of the derivative (1 or -1).
local base = require "flare.distributions.base"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local D = {}
local Transform = class("Transform")
Transform.__keeps = true
D.Transform = Transform
Transform.about = {"distributions.Transform()", "What all transforms are."}

function Transform:direction(x) return core.ones_like(x:detach()) end

-- A parameter as a tensor with the dtype and device of x.
local function like(v, x) return core.is_tensor(v) and v or core.tensor(v, base.like(x)) end

local function define(name, names, what, methods)
  local cls = class(name, Transform)
  cls.about = {("distributions.%s(%s)"):format(name, table.concat(names, ", ")), what}
  if #names > 0 then
    function cls:init(...)
      for i, key in ipairs(names) do
        self[key] = select(i, ...)
        if type(self[key]) ~= "number" and not core.is_tensor(self[key]) then
          fail("%s: %s must be a tensor or a number, got %s", name, key, options.kind(self[key]))
        end
      end
    end
  end
  for key, f in pairs(methods) do cls[key] = f end
  D[name] = cls
end

define("AffineTransform", {"loc", "scale"}, "loc + scale x", {
  forward = function(self, x) return self.loc + self.scale * x end,
  inverse = function(self, y) return (y - self.loc) / self.scale end,
  log_slope = function(self, x)
    return like(self.scale, x):abs():log() + core.zeros_like(x:detach())
  end,
  direction = function(self, x) return like(self.scale, x):sign() end,
})

define("ExpTransform", {}, "e^x", {
  forward = function(_, x) return x:exp() end,
  inverse = function(_, y) return y:log() end,
  log_slope = function(_, x) return x end,
})

define("PowerTransform", {"exponent"}, "x^exponent, of x above 0", {
  forward = function(self, x) return x ^ self.exponent end,
  inverse = function(self, y) return y ^ (1 / self.exponent) end,
  log_slope = function(self, x, y) return (self.exponent * y / x):abs():log() end,
  direction = function(self, x) return like(self.exponent, x):sign() end,
})

define("SigmoidTransform", {}, "1 / (1 + e^-x)", {
  forward = function(_, x) return x:sigmoid() end,
  inverse = function(_, y) return core.logit(y, base.tiny(y)) end,
  log_slope = function(_, x) return -core.softplus(-x) - core.softplus(x) end,
})

define("TanhTransform", {}, "tanh x", {
  forward = function(_, x) return x:tanh() end,
  inverse = function(_, y) return y:atanh() end,
  log_slope = function(_, x) return 2 * (math.log(2) - x - core.softplus(-2 * x)) end,
})

define("SoftplusTransform", {}, "log(1 + e^x)", {
  forward = function(_, x) return core.softplus(x) end,
  inverse = function(_, y) return (-(-y):expm1()):log() + y end,
  log_slope = function(_, x) return -core.softplus(-x) end,
})

return D
