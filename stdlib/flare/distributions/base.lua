--- What all distributions are: parameters in one shape, samples with and without gradients.
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

-- How many dims at the end are one event.
Distribution.events = 0

--- Options for a tensor like x.
function M.like(x) return {dtype = x.dtype, device = x.device} end

--- Puts the parameters of a list of names into fields, in one shape; numbers become tensors like
-- the others, integers floats.
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

--- One of logits and probs, for those that have either.
function M.take_either(self, o)
  local name = getmetatable(self).__name
  o = options.check(name, o, {logits = options.none, probs = options.none})
  if (o.logits == nil) == (o.probs == nil) then
    fail("%s: either logits = or probs = is needed", name)
  end
  return o.logits, o.probs
end

--- The same for one number each: fields logits, probs and batch.
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

-- The sizes of a sample: those given, then those of one.
local function sizes(first, ...)
  if type(first) == "table" then return {table.unpack(first)} end
  return {first, ...}
end

--- Sizes in front of a shape.
function M.full(shape, of)
  return table.move(of, 1, #of, #shape + 1, {table.unpack(shape)})
end

--- Numbers of the exponential distribution with mean 1, in front of those of a tensor.
function M.exponential(shape, of)
  return -(-core.rand(M.full(shape, of.shape), M.like(of))):log1p()
end

--- Numbers of the gamma distribution, in front of the alphas.
function M.gamma(alpha, shape)
  return core.gamma(alpha:expand(M.full(shape, alpha.shape)):contiguous())
end

--- The log of the beta function of alphas along the last dim.
function M.log_beta(alpha)
  return alpha:lgamma():sum(-1) - alpha:sum(-1):lgamma()
end

--- Draws, without a gradient.
-- @param ... sizes in front
function Distribution:sample(...)
  local shape = sizes(...)
  return core.no_grad(function() return self:draw(shape) end)
end

--- Draws so that the sample has a gradient towards the parameters.
-- @param ... sizes in front
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

--- The log of the probability of x, or of its density.
function Distribution:log_prob(x) without(self, "log_prob", x) end

--- How likely a value up to x is.
function Distribution:cdf(x) without(self, "cdf", x) end

--- The value up to which one is with probability p.
function Distribution:icdf(p) without(self, "icdf", p) end

--- How much is open before a draw, in nats.
function Distribution:entropy() without(self, "entropy") end

--- The mean.
function Distribution:mean() without(self, "mean") end

--- The variance.
function Distribution:variance() without(self, "variance") end

--- The root of the variance.
function Distribution:std() return self:variance():sqrt() end

--- A distribution: the names of its parameters, its methods, and more of what it is for readers.
-- Parameters behind the first have the defaults, if there are any.
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
  for key, f in pairs(methods) do cls[key] = f end
  return cls
end

return M
