--- Kullback-Leibler divergences between two distributions of one kind.
local base = require "flare.distributions.base"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local EULER = 0.57721566490153286
local Distribution = base.Distribution

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
  HalfNormal = function(p, q)
    local ratio = (p.scale / q.scale) ^ 2
    return 0.5 * (ratio - 1 - ratio:log())
  end,
  Laplace = function(p, q)
    local ratio, apart = p.scale / q.scale, (p.loc - q.loc):abs()
    return apart / q.scale + ratio * (-apart / p.scale):exp() - ratio:log() - 1
  end,
  Cauchy = function(p, q)
    return ((p.scale + q.scale) ^ 2 + (p.loc - q.loc) ^ 2):log() - (4 * p.scale * q.scale):log()
  end,
  Uniform = function(p, q)
    local inside = p.low:ge(q.low) & p.high:le(q.high)
    return core.where(inside, ((q.high - q.low) / (p.high - p.low)):log(), math.huge)
  end,
  Gumbel = function(p, q)
    local ratio, apart = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio:log() - apart + ratio * EULER + (apart + (1 + ratio):lgamma()):exp() - (1 + EULER)
  end,
  Poisson = function(p, q)
    return p.rate * (p.rate / q.rate):log() - (p.rate - q.rate)
  end,
  Geometric = function(p, q)
    return -p:entropy() - (-q.probs):log1p() / p.probs - q.logits
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
    return base.log_beta(q.alpha) - base.log_beta(a) + ((a - q.alpha) * means):sum(-1)
  end,
  MultivariateNormal = function(p, q)
    local m = core.triangular_solve(q.scale_tril, p.scale_tril):square():sum{dims = {-2, -1}}
    local z = core.triangular_solve(q.scale_tril, (q.loc - p.loc):unsqueeze(-1))
    return q:log_scale() - p:log_scale()
      + 0.5 * (m + z:square():sum{dims = {-2, -1}} - p.loc:size(-1))
  end,
}

for name, as in pairs{LogNormal = "Normal", OneHotCategorical = "Categorical", Chi2 = "Gamma",
                      InverseGamma = "Gamma"} do
  divergence[name] = divergence[as]
end

--- The Kullback-Leibler divergence KL(p || q) of two distributions of one kind.
local function kl(p, q)
  local name = class.is(p, Distribution) and getmetatable(p).__name or type(p)
  if not class.is(q, Distribution) or getmetatable(q).__name ~= name then
    fail("kl: two distributions of one kind are expected, got %s and %s", name,
         class.is(q, Distribution) and getmetatable(q).__name or type(q))
  end
  if name == "Independent" then return kl(p.inner, q.inner):sum{dims = p.dims} end
  if name == "Beta" then return divergence.Dirichlet(p:both(), q:both()) end
  local f = divergence[name]
  if not f then fail("kl: there is no formula for two of %s", name) end
  return f(p, q)
end

return kl
