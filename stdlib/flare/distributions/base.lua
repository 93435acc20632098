--- The base class of distributions: parameters broadcast to one shape, samples with and without
-- gradients.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local stacks = require "flare.stacks"

local M = {}
local Distribution = class("Distribution")
Distribution.__keeps = true
M.Distribution = Distribution
Distribution.about = {"distributions.Distribution()", "What all distributions are."}

-- The number of event dims, at the end.
Distribution.events = 0

--- Options for a tensor with the dtype and device of x.
function M.like(x) return {dtype = x.dtype, device = x.device} end

--- Stores the parameters as fields, broadcast to one shape. Numbers become tensors with the dtype
-- and device of the others; integers become floats.
function M.take(self, names, ...)
  local list, first = {...}, nil
  for i = #names, 1, -1 do
    if core.is_tensor(list[i]) then
      if not list[i].dtype:find "^b?f%d" then list[i] = list[i]:float() end
      first = list[i]
    end
  end
  for i, name in ipairs(names) do
    if type(list[i]) == "number" then
      list[i] = core.tensor(list[i], first and M.like(first))
    end
    if not core.is_tensor(list[i]) then
      fail("%s: %s must be a tensor or a number, got %s", getmetatable(self).__name, name,
           type(list[i]))
    end
  end
  list = {stacks.broadcast_tensors(list)}
  for i, name in ipairs(names) do self[name] = list[i] end
  self.batch = list[1].shape
end

--- Stores either logits or probs, whichever was given.
function M.take_either(self, o)
  local name = getmetatable(self).__name
  o = options.check(name, o, {logits = options.none, probs = options.none})
  if (o.logits == nil) == (o.probs == nil) then
    fail("%s: either logits = or probs = is needed", name)
  end
  return o.logits, o.probs
end

--- The same for one number per event: fields logits, probs and batch.
function M.take_bits(self, o)
  local logits, probs = M.take_either(self, o)
  local given = options.tensor(getmetatable(self).__name, logits and "logits" or "probs",
                               logits or probs)
  self.logits = logits or core.logit(probs, M.tiny(probs))
  self.probs = probs or logits:sigmoid()
  self.batch = given.shape
end

--- The precision of x's dtype, at most that of f32.
function M.tiny(x) return x.dtype == "f64" and 0x1p-52 or 0x1p-23 end

-- The shape of a sample: the given sizes, then the shape of one draw.
local function sizes(first, ...)
  local list = type(first) == "table" and {table.unpack(first)} or {first, ...}
  for k, size in ipairs(list) do list[k] = options.count("sample", "a size", size, 0) end
  return list
end

--- The given sizes followed by a shape.
function M.full(shape, of)
  return table.move(of, 1, #of, #shape + 1, {table.unpack(shape)})
end

--- Draws from the exponential distribution with mean 1: the given sizes, then the shape of a
-- tensor.
function M.exponential(shape, of)
  return -(-core.rand(M.full(shape, of.shape), M.like(of))):log1p()
end

--- Draws from the gamma distribution: the given sizes, then the shape of the alphas.
function M.gamma(alpha, shape)
  return core.gamma(alpha:expand(M.full(shape, alpha.shape)):contiguous())
end

--- The log of the beta function of alphas along the last dim.
function M.log_beta(alpha)
  return alpha:lgamma():sum(-1) - alpha:sum(-1):lgamma()
end

--- Draws a sample, without gradients.
-- @param ... sizes in front of the shape of one draw
function Distribution:sample(...)
  local shape = sizes(...)
  return core.no_grad(function() return self:draw(shape) end)
end

--- Draws a sample with gradients with respect to the parameters (reparametrization).
-- @param ... sizes in front of the shape of one draw
function Distribution:rsample(...)
  if self.discrete then
    fail("%s: a sample that counts has no gradient; see nn.functional.gumbel_softmax",
         getmetatable(self).__name)
  end
  return self:draw(sizes(...))
end

local function without(self, what)
  fail("%s has no %s here", getmetatable(self).__name, what)
end

--- The log-probability of x, or the log of its probability density.
function Distribution:log_prob(x) without(self, "log_prob", x) end

--- The cumulative distribution function at x.
function Distribution:cdf(x) without(self, "cdf", x) end

--- The inverse of the cumulative distribution function at p (the quantile function).
function Distribution:icdf(p) without(self, "icdf", p) end

--- The entropy, in nats.
function Distribution:entropy() without(self, "entropy") end

--- The mean.
function Distribution:mean() without(self, "mean") end

--- The variance.
function Distribution:variance() without(self, "variance") end

--- The standard deviation.
function Distribution:std() return self:variance():sqrt() end

-- A value of the random variable as a tensor like the parameter `as`.
local function point(where, x, as)
  return type(x) == "number" and core.tensor(x, M.like(as)) or options.tensor(where, "x", x)
end

local takes_point = {log_prob = true, cdf = true, icdf = true}

--- Defines a distribution: the names of its parameters, its methods, a description for help. The
-- defaults are for parameters after the first.
function M.define(name, names, methods, what, defaults)
  local cls, call = class(name, Distribution), {table.unpack(names)}
  for i, value in ipairs(defaults or {}) do
    if value then call[i] = ("%s = %g"):format(names[i], value) end
  end
  cls.about = {("distributions.%s(%s)"):format(name, table.concat(call, ", ")), what}
  function cls:init(...)
    local given = {...}
    for i, value in ipairs(defaults or {}) do
      if given[i] == nil then given[i] = value or nil end
    end
    M.take(self, names, table.unpack(given, 1, #names))
  end
  for key, f in pairs(methods) do
    local where = name .. ":" .. key
    cls[key] = takes_point[key] and function(self, x)
      return f(self, point(where, x, self[names[1]] or self.logits))
    end or f
  end
  return cls
end

return M
