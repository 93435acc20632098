--- flare.distributions: probabilities and samples, with gradients towards their parameters.
--
--     local d = flare.distributions.Normal(mean, std)
--     local loss = -(d:log_prob(action) * advantage):mean() - 0.01 * d:entropy():mean()
--
-- Parameters are tensors or numbers and broadcast. A sample has the given sizes in front of their
-- shape: d:sample(), d:sample(5), d:sample{5, 2}.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local stacks = require "flare.stacks"

local Distribution = class("Distribution")
local D = {Distribution = Distribution}
local HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

local function like(x) return {dtype = x.dtype, device = x.device} end

-- Puts the parameters of a list of names into fields, in one shape; numbers become tensors like the
-- others.
local function take(self, names, ...)
  local list, first = {...}, nil
  for i = #names, 1, -1 do first = core.is_tensor(list[i]) and list[i] or first end
  for i, name in ipairs(names) do
    if type(list[i]) == "number" then list[i] = core.tensor(list[i], first and like(first)) end
    if not core.is_tensor(list[i]) then
      fail("%s: %s must be a tensor or a number, got %s", getmetatable(self).__name, name,
           type(list[i]))
    end
  end
  list = {stacks.broadcast_tensors(list)}
  for i, name in ipairs(names) do self[name] = list[i] end
  self.batch = list[1].shape
end

-- One of logits and probs, for those that have either.
local function take_either(self, o)
  local name = getmetatable(self).__name
  o = options.check(name, o, {logits = options.none, probs = options.none})
  if (o.logits == nil) == (o.probs == nil) then
    fail("%s: either logits = or probs = is needed", name)
  end
  return o.logits, o.probs
end

local function tiny(x) return x.dtype == "f64" and 0x1p-52 or 0x1p-23 end

-- The sizes of a sample: those given, then those of one.
local function sizes(first, ...)
  if type(first) == "table" then return {table.unpack(first)} end
  return {first, ...}
end

local function full(shape, of)
  return table.move(of, 1, #of, #shape + 1, {table.unpack(shape)})
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

--- How much is open before a draw, in nats.
function Distribution:entropy() without(self, "entropy") end

--- The mean.
function Distribution:mean() without(self, "mean") end

--- The variance.
function Distribution:variance() without(self, "variance") end

--- The root of the variance.
function Distribution:std() return self:variance():sqrt() end

-- A distribution: the names of its parameters, and its methods.
local function define(name, names, methods)
  local cls = class(name, Distribution)
  cls.about = {("distributions.%s(%s)"):format(name, table.concat(names, ", "))}
  function cls:init(...) take(self, names, ...) end
  for key, f in pairs(methods) do cls[key] = f end
  D[name] = cls
  return cls
end

define("Normal", {"loc", "scale"}, {
  draw = function(self, shape)
    return self.loc + self.scale * core.randn(full(shape, self.batch), like(self.loc))
  end,
  log_prob = function(self, x)
    return -0.5 * ((x - self.loc) / self.scale) ^ 2 - self.scale:log() - HALF_LOG_2PI
  end,
  entropy = function(self) return self.scale:log() + (0.5 + HALF_LOG_2PI) end,
  mean = function(self) return self.loc end,
  variance = function(self) return self.scale ^ 2 end,
})

define("Uniform", {"low", "high"}, {
  draw = function(self, shape)
    return self.low
      + (self.high - self.low) * core.rand(full(shape, self.batch), like(self.low))
  end,
  log_prob = function(self, x)
    return core.where(x:ge(self.low) & x:lt(self.high), -(self.high - self.low):log(), -math.huge)
  end,
  entropy = function(self) return (self.high - self.low):log() end,
  mean = function(self) return (self.high + self.low) / 2 end,
  variance = function(self) return (self.high - self.low) ^ 2 / 12 end,
})

-- Numbers of the exponential distribution with mean 1.
local function exponential(shape, of)
  return -(-core.rand(full(shape, of.shape), like(of))):log1p()
end

define("Exponential", {"rate"}, {
  draw = function(self, shape) return exponential(shape, self.rate) / self.rate end,
  log_prob = function(self, x)
    return core.where(x:ge(0), self.rate:log() - self.rate * x, -math.huge)
  end,
  entropy = function(self) return 1 - self.rate:log() end,
  mean = function(self) return 1 / self.rate end,
  variance = function(self) return self.rate ^ -2 end,
})

define("Laplace", {"loc", "scale"}, {
  draw = function(self, shape)
    return self.loc
      + self.scale * (exponential(shape, self.loc) - exponential(shape, self.loc))
  end,
  log_prob = function(self, x)
    return -(x - self.loc):abs() / self.scale - (2 * self.scale):log()
  end,
  entropy = function(self) return 1 + (2 * self.scale):log() end,
  mean = function(self) return self.loc end,
  variance = function(self) return 2 * self.scale ^ 2 end,
})

local function gamma(alpha, shape)
  return core.gamma(alpha:expand(full(shape, alpha.shape)):contiguous())
end

define("Gamma", {"shape", "rate"}, {
  draw = function(self, shape) return gamma(self.shape, shape) / self.rate end,
  log_prob = function(self, x)
    return self.shape * self.rate:log() + (self.shape - 1) * x:log() - self.rate * x
      - self.shape:lgamma()
  end,
  entropy = function(self)
    return self.shape - self.rate:log() + self.shape:lgamma()
      + (1 - self.shape) * self.shape:digamma()
  end,
  mean = function(self) return self.shape / self.rate end,
  variance = function(self) return self.shape / self.rate ^ 2 end,
})

-- The log of the beta function of alphas along the last dim.
local function log_beta(alpha)
  return alpha:lgamma():sum(-1) - alpha:sum(-1):lgamma()
end

local Dirichlet = define("Dirichlet", {"alpha"}, {
  draw = function(self, shape)
    local g = gamma(self.alpha, shape)
    return g / g:sum{dim = -1, keepdim = true}
  end,
  log_prob = function(self, x)
    return ((self.alpha - 1) * x:log()):sum(-1) - log_beta(self.alpha)
  end,
  entropy = function(self)
    local a, k = self.alpha, self.alpha:size(-1)
    local total = a:sum(-1)
    return log_beta(a) + (total - k) * total:digamma() - ((a - 1) * a:digamma()):sum(-1)
  end,
  mean = function(self) return self.alpha / self.alpha:sum{dim = -1, keepdim = true} end,
  variance = function(self)
    local m = self:mean()
    return m * (1 - m) / (self.alpha:sum{dim = -1, keepdim = true} + 1)
  end,
})

-- As that of two shares.
define("Beta", {"a", "b"}, {
  both = function(self) return Dirichlet(core.stack({self.a, self.b}, -1)) end,
  draw = function(self, shape) return self:both():draw(shape):select(-1, 1) end,
  log_prob = function(self, x) return self:both():log_prob(core.stack({x, 1 - x}, -1)) end,
  entropy = function(self) return self:both():entropy() end,
  mean = function(self) return self.a / (self.a + self.b) end,
  variance = function(self) return self:both():variance():select(-1, 1) end,
})

define("Poisson", {"rate"}, {
  discrete = true,
  draw = function(self, shape)
    return core.poisson(self.rate:expand(full(shape, self.batch)):contiguous())
  end,
  log_prob = function(self, x)
    x = x:to(self.rate.dtype)
    return core.xlogy(x, self.rate) - self.rate - (x + 1):lgamma()
  end,
  mean = function(self) return self.rate end,
  variance = function(self) return self.rate end,
})

local Bernoulli = define("Bernoulli", {"{logits =} or {probs =}"}, {
  discrete = true,
  draw = function(self, shape)
    return core.bernoulli(self.probs:expand(full(shape, self.batch)):contiguous())
  end,
  log_prob = function(self, x)
    local logits, value = stacks.broadcast_tensors(self.logits, x:to(self.probs.dtype))
    return -core.bce_with_logits(logits, value, {reduction = "none"})
  end,
  entropy = function(self)
    return core.bce_with_logits(self.logits, self.probs, {reduction = "none"})
  end,
  mean = function(self) return self.probs end,
  variance = function(self) return self.probs * (1 - self.probs) end,
})

function Bernoulli:init(o)
  local logits, probs = take_either(self, o)
  self.logits = logits or core.logit(probs, tiny(probs))
  self.probs = probs or logits:sigmoid()
  self.batch = self.probs.shape
end

-- Classes from 1 along the last dim.
local Categorical = define("Categorical", {"{logits =} or {probs =}"}, {
  discrete = true,
  draw = function(self, shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    local rows = self.probs:reshape(-1, self.probs:size(-1))
    return core.multinomial(rows, n, {replacement = true}):t():reshape(full(shape, self.batch))
  end,
  log_prob = function(self, x)
    local logits = self.logits:expand(full(x.shape, {self.logits:size(-1)}))
    return logits:gather(-1, x:unsqueeze(-1)):squeeze(-1)
  end,
  -- what cannot be counts for nothing
  entropy = function(self) return -(self.probs * self.logits:clamp(-1e30)):sum(-1) end,
})

function Categorical:init(o)
  local logits, probs = take_either(self, o)
  if probs then logits = (probs / probs:sum{dim = -1, keepdim = true}):clamp(tiny(probs)):log() end
  self.logits = logits:log_softmax(-1)
  self.probs = self.logits:exp()
  self.batch = {table.unpack(logits.shape, 1, logits:dim() - 1)}
end

local MultivariateNormal = define("MultivariateNormal",
                                  {"loc", "{covariance =} or {scale_tril =}"}, {
  draw = function(self, shape)
    local noise = core.randn(full(shape, self.loc.shape), like(self.loc))
    return self.loc + self.scale_tril:matmul(noise:unsqueeze(-1)):squeeze(-1)
  end,
  log_prob = function(self, x)
    local z = core.triangular_solve(self.scale_tril, (x - self.loc):unsqueeze(-1))
    return -0.5 * z:square():sum{dims = {-2, -1}} - self:log_scale()
      - self.loc:size(-1) * HALF_LOG_2PI
  end,
  log_scale = function(self) return self.scale_tril:diagonal(0, -2, -1):log():sum(-1) end,
  entropy = function(self) return self:log_scale() + self.loc:size(-1) * (0.5 + HALF_LOG_2PI) end,
  mean = function(self) return self.loc end,
  variance = function(self) return self.scale_tril:square():sum(-1) end,
})

function MultivariateNormal:init(loc, o)
  o = options.check("MultivariateNormal", o, {covariance = options.none,
                                              scale_tril = options.none})
  if (o.covariance == nil) == (o.scale_tril == nil) then
    fail "MultivariateNormal: either covariance = or scale_tril = is needed"
  end
  local l = o.scale_tril or o.covariance:cholesky()
  self.loc = stacks.broadcast_tensors(loc, l:select(-1, 1))
  self.batch = {table.unpack(self.loc.shape, 1, self.loc:dim() - 1)}
  self.scale_tril = l:expand(full(self.batch, {l:size(-2), l:size(-1)}))
end

-- The last dims of a batch as one event.
local Independent = class("Independent", Distribution)
D.Independent = Independent

--- distributions.Independent(d, dims = 1): probabilities of the last dims together
function Independent:init(inner, dims)
  self.inner, self.dims, self.discrete = inner, {}, inner.discrete
  for k = 1, dims or 1 do self.dims[k] = -k end
end
function Independent:draw(shape) return self.inner:draw(shape) end
function Independent:mean() return self.inner:mean() end
function Independent:variance() return self.inner:variance() end
function Independent:entropy() return self.inner:entropy():sum{dims = self.dims} end
function Independent:log_prob(x) return self.inner:log_prob(x):sum{dims = self.dims} end

local divergence = {
  Normal = function(p, q)
    local ratio = (p.scale / q.scale) ^ 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ^ 2 - 1 - ratio:log())
  end,
  Bernoulli = function(p, q)
    local function cross(d) return core.bce_with_logits(d.logits, p.probs, {reduction = "none"}) end
    return cross(q) - cross(p)
  end,
  Categorical = function(p, q)
    local each = p.probs * (p.logits:clamp(-1e30) - q.logits)
    return core.where(p.probs:eq(0), 0, each):sum(-1)
  end,
  Exponential = function(p, q)
    local ratio = q.rate / p.rate
    return ratio - 1 - ratio:log()
  end,
  Gamma = function(p, q)
    return q.shape * (p.rate / q.rate):log() + q.shape:lgamma() - p.shape:lgamma()
      + (p.shape - q.shape) * p.shape:digamma() + p.shape * (q.rate / p.rate - 1)
  end,
  Dirichlet = function(p, q)
    local a = p.alpha
    local means = a:digamma() - a:sum{dim = -1, keepdim = true}:digamma()
    return log_beta(q.alpha) - log_beta(a) + ((a - q.alpha) * means):sum(-1)
  end,
  MultivariateNormal = function(p, q)
    local m = core.triangular_solve(q.scale_tril, p.scale_tril):square():sum{dims = {-2, -1}}
    local z = core.triangular_solve(q.scale_tril, (q.loc - p.loc):unsqueeze(-1))
    return q:log_scale() - p:log_scale()
      + 0.5 * (m + z:square():sum{dims = {-2, -1}} - p.loc:size(-1))
  end,
}

--- Kullback and Leibler's divergence of q from p, two distributions of one kind.
function D.kl(p, q)
  local name = class.is(p, Distribution) and getmetatable(p).__name or type(p)
  if not class.is(q, Distribution) or getmetatable(q).__name ~= name then
    fail("kl: two distributions of one kind are expected, got %s and %s", name,
         class.is(q, Distribution) and getmetatable(q).__name or type(q))
  end
  if name == "Independent" then return D.kl(p.inner, q.inner):sum{dims = p.dims} end
  if name == "Beta" then return divergence.Dirichlet(p:both(), q:both()) end
  local f = divergence[name]
  if not f then fail("kl: there is no formula for two of %s", name) end
  return f(p, q)
end

return D
