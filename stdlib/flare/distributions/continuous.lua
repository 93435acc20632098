--- Continuous distributions of numbers, of probabilities and of vectors.
local base = require "flare.distributions.base"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local stacks = require "flare.stacks"

local D = {}
local HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

D.Normal = base.define("Normal", {"loc", "scale"}, {
  draw = function(self, shape)
    return self.loc + self.scale * core.randn(base.full(shape, self.batch), base.like(self.loc))
  end,
  log_prob = function(self, x)
    return -0.5 * ((x - self.loc) / self.scale) ^ 2 - self.scale:log() - HALF_LOG_2PI
  end,
  cdf = function(self, x) return core.ndtr((x - self.loc) / self.scale) end,
  icdf = function(self, p) return self.loc + self.scale * core.ndtri(p) end,
  entropy = function(self) return self.scale:log() + (0.5 + HALF_LOG_2PI) end,
  mean = function(self) return self.loc end,
  variance = function(self) return self.scale ^ 2 end,
})

D.Uniform = base.define("Uniform", {"low", "high"}, {
  draw = function(self, shape)
    return self.low
      + (self.high - self.low) * core.rand(base.full(shape, self.batch), base.like(self.low))
  end,
  log_prob = function(self, x)
    return core.where(x:ge(self.low) & x:lt(self.high), -(self.high - self.low):log(), -math.huge)
  end,
  cdf = function(self, x) return ((x - self.low) / (self.high - self.low)):clamp(0, 1) end,
  icdf = function(self, p) return self.low + (self.high - self.low) * p end,
  entropy = function(self) return (self.high - self.low):log() end,
  mean = function(self) return (self.high + self.low) / 2 end,
  variance = function(self) return (self.high - self.low) ^ 2 / 12 end,
})

D.Exponential = base.define("Exponential", {"rate"}, {
  draw = function(self, shape) return base.exponential(shape, self.rate) / self.rate end,
  log_prob = function(self, x)
    return core.where(x:ge(0), self.rate:log() - self.rate * x, -math.huge)
  end,
  cdf = function(self, x) return -(-self.rate * x:clamp(0)):expm1() end,
  icdf = function(self, p) return -(-p):log1p() / self.rate end,
  entropy = function(self) return 1 - self.rate:log() end,
  mean = function(self) return 1 / self.rate end,
  variance = function(self) return self.rate ^ -2 end,
})

D.Laplace = base.define("Laplace", {"loc", "scale"}, {
  draw = function(self, shape)
    return self.loc
      + self.scale * (base.exponential(shape, self.loc) - base.exponential(shape, self.loc))
  end,
  log_prob = function(self, x)
    return -(x - self.loc):abs() / self.scale - (2 * self.scale):log()
  end,
  cdf = function(self, x)
    local d = x - self.loc
    return 0.5 - 0.5 * d:sign() * (-d:abs() / self.scale):expm1()
  end,
  icdf = function(self, p)
    local d = p - 0.5
    return self.loc - self.scale * d:sign() * (-2 * d:abs()):log1p()
  end,
  entropy = function(self) return 1 + (2 * self.scale):log() end,
  mean = function(self) return self.loc end,
  variance = function(self) return 2 * self.scale ^ 2 end,
})

D.Gamma = base.define("Gamma", {"shape", "rate"}, {
  draw = function(self, shape) return base.gamma(self.shape, shape) / self.rate end,
  log_prob = function(self, x)
    return self.shape * self.rate:log() + (self.shape - 1) * x:log() - self.rate * x
      - self.shape:lgamma()
  end,
  cdf = function(self, x) return core.igamma(self.shape, self.rate * x:clamp(0)) end,
  entropy = function(self)
    return self.shape - self.rate:log() + self.shape:lgamma()
      + (1 - self.shape) * self.shape:digamma()
  end,
  mean = function(self) return self.shape / self.rate end,
  variance = function(self) return self.shape / self.rate ^ 2 end,
})

D.Dirichlet = base.define("Dirichlet", {"alpha"}, {
  events = 1,
  draw = function(self, shape)
    local g = base.gamma(self.alpha, shape)
    return g / g:sum{dim = -1, keepdim = true}
  end,
  log_prob = function(self, x)
    return ((self.alpha - 1) * x:log()):sum(-1) - base.log_beta(self.alpha)
  end,
  entropy = function(self)
    local a, k = self.alpha, self.alpha:size(-1)
    local total = a:sum(-1)
    return base.log_beta(a) + (total - k) * total:digamma() - ((a - 1) * a:digamma()):sum(-1)
  end,
  mean = function(self) return self.alpha / self.alpha:sum{dim = -1, keepdim = true} end,
  variance = function(self)
    local m = self:mean()
    return m * (1 - m) / (self.alpha:sum{dim = -1, keepdim = true} + 1)
  end,
})

-- As that of two shares.
D.Beta = base.define("Beta", {"a", "b"}, {
  both = function(self) return D.Dirichlet(core.stack({self.a, self.b}, -1)) end,
  draw = function(self, shape) return self:both():draw(shape):select(-1, 1) end,
  log_prob = function(self, x) return self:both():log_prob(core.stack({x, 1 - x}, -1)) end,
  entropy = function(self) return self:both():entropy() end,
  mean = function(self) return self.a / (self.a + self.b) end,
  variance = function(self) return self:both():variance():select(-1, 1) end,
})

D.MultivariateNormal = base.define("MultivariateNormal",
                                   {"loc", "{covariance =} or {scale_tril =}"}, {
  events = 1,
  draw = function(self, shape)
    local noise = core.randn(base.full(shape, self.loc.shape), base.like(self.loc))
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

function D.MultivariateNormal:init(loc, o)
  o = options.check("MultivariateNormal", o, {covariance = options.none,
                                              scale_tril = options.none})
  if (o.covariance == nil) == (o.scale_tril == nil) then
    fail "MultivariateNormal: either covariance = or scale_tril = is needed"
  end
  local l = o.scale_tril or o.covariance:cholesky()
  self.loc = stacks.broadcast_tensors(loc, l:select(-1, 1))
  self.batch = {table.unpack(self.loc.shape, 1, self.loc:dim() - 1)}
  self.scale_tril = l:expand(base.full(self.batch, {l:size(-2), l:size(-1)}))
end

return D
