--- Continuous distributions derived from simpler ones: of logarithms, magnitudes, quotients and
-- extreme values.
local base = require "flare.distributions.base"
local class = require "flare.class"
local core = require "flare.core"
local continuous = require "flare.distributions.continuous"

local D = {}
local EULER = 0.57721566490153286
local Normal, Gamma = continuous.Normal, continuous.Gamma

-- x where it is in the support, elsewhere a substitute value.
local function where(inside, x, other) return core.where(inside, x, other) end

D.LogNormal = base.define("LogNormal", {"loc", "scale"}, {
  draw = function(self, shape) return Normal.draw(self, shape):exp() end,
  log_prob = function(self, x)
    local y = x:log()
    return Normal.log_prob(self, y) - y
  end,
  cdf = function(self, x) return Normal.cdf(self, x:log()) end,
  icdf = function(self, p) return Normal.icdf(self, p):exp() end,
  entropy = function(self) return Normal.entropy(self) + self.loc end,
  mean = function(self) return (self.loc + self.scale ^ 2 / 2):exp() end,
  variance = function(self)
    return (self.scale ^ 2):expm1() * (2 * self.loc + self.scale ^ 2):exp()
  end,
}, "exp of a normal variable.")

D.Cauchy = base.define("Cauchy", {"loc", "scale"}, {
  draw = function(self, shape)
    return self.loc + self.scale * core.cauchy(base.full(shape, self.batch), base.like(self.loc))
  end,
  log_prob = function(self, x)
    return -(((x - self.loc) / self.scale) ^ 2):log1p() - (math.pi * self.scale):log()
  end,
  cdf = function(self, x) return ((x - self.loc) / self.scale):atan() / math.pi + 0.5 end,
  icdf = function(self, p) return self.loc + self.scale * (math.pi * (p - 0.5)):tan() end,
  entropy = function(self) return (4 * math.pi * self.scale):log() end,
  mean = function(self) return core.full_like(self.loc, 0 / 0) end,
  variance = function(self) return core.full_like(self.loc, math.huge) end,
})

-- The magnitude of a variable that is symmetric around 0.
local function half(name, whole, mean, variance)
  local function at(self) return whole(core.zeros_like(self.scale), self.scale) end
  D[name] = base.define(name, {"scale"}, {
    draw = function(self, shape) return at(self):draw(shape):abs() end,
    log_prob = function(self, x)
      return where(x:ge(0), at(self):log_prob(x) + math.log(2), -math.huge)
    end,
    cdf = function(self, x) return 2 * at(self):cdf(x) - 1 end,
    icdf = function(self, p) return at(self):icdf((p + 1) / 2) end,
    entropy = function(self) return at(self):entropy() - math.log(2) end,
    mean = mean, variance = variance,
  }, ("The magnitude of a %s variable around 0."):format(whole.__name))
end

half("HalfNormal", Normal, function(self) return self.scale * math.sqrt(2 / math.pi) end,
     function(self) return self.scale ^ 2 * (1 - 2 / math.pi) end)
half("HalfCauchy", D.Cauchy, function(self) return core.full_like(self.scale, math.huge) end,
     function(self) return core.full_like(self.scale, math.huge) end)

D.StudentT = base.define("StudentT", {"df", "loc", "scale"}, {
  draw = function(self, shape)
    local z = core.randn(base.full(shape, self.batch), base.like(self.loc))
    return self.loc + self.scale * z * (base.gamma(self.df / 2, shape) * 2 / self.df):rsqrt()
  end,
  log_prob = function(self, x)
    local df, y = self.df, (x - self.loc) / self.scale
    return ((df + 1) / 2):lgamma() - (df / 2):lgamma() - 0.5 * (math.pi * df):log()
      - self.scale:log() - 0.5 * (df + 1) * (y ^ 2 / df):log1p()
  end,
  entropy = function(self)
    local df = self.df
    local beta = (df / 2):lgamma() + math.log(math.pi) / 2 - ((df + 1) / 2):lgamma()
    return self.scale:log() + 0.5 * (df + 1) * (((df + 1) / 2):digamma() - (df / 2):digamma())
      + 0.5 * df:log() + beta
  end,
  mean = function(self) return where(self.df:gt(1), self.loc, 0 / 0) end,
  variance = function(self)
    local df = self.df
    return where(df:gt(2), self.scale ^ 2 * df / (df - 2), where(df:gt(1), math.huge, 0 / 0))
  end,
}, nil, {false, 0, 1})

local Chi2 = class("Chi2", Gamma)
Chi2.about = {"distributions.Chi2(df)", "The sum of the squares of df normal variables."}
D.Chi2 = Chi2
function Chi2:init(df)
  base.take(self, {"df"}, df)
  Gamma.init(self, self.df / 2, 0.5)
end

D.InverseGamma = base.define("InverseGamma", {"shape", "rate"}, {
  draw = function(self, shape) return Gamma.draw(self, shape):reciprocal() end,
  log_prob = function(self, x) return Gamma.log_prob(self, 1 / x) - 2 * x:log() end,
  cdf = function(self, x) return 1 - Gamma.cdf(self, 1 / x) end,
  entropy = function(self)
    local a = self.shape
    return a + self.rate:log() + a:lgamma() - (1 + a) * a:digamma()
  end,
  mean = function(self)
    return where(self.shape:gt(1), self.rate / (self.shape - 1), math.huge)
  end,
  variance = function(self)
    local a = self.shape
    return where(a:gt(2), self.rate ^ 2 / ((a - 1) ^ 2 * (a - 2)), math.huge)
  end,
}, "One over a gamma variable.")

D.Gumbel = base.define("Gumbel", {"loc", "scale"}, {
  draw = function(self, shape)
    local e = base.exponential(shape, self.loc):clamp(1e-30)
    return self.loc - self.scale * e:log()
  end,
  log_prob = function(self, x)
    local y = (self.loc - x) / self.scale
    return y - y:exp() - self.scale:log()
  end,
  cdf = function(self, x) return (-((self.loc - x) / self.scale):exp()):exp() end,
  icdf = function(self, p) return self.loc - self.scale * (-p:log()):log() end,
  entropy = function(self) return self.scale:log() + (1 + EULER) end,
  mean = function(self) return self.loc + EULER * self.scale end,
  variance = function(self) return self.scale ^ 2 * (math.pi ^ 2 / 6) end,
}, "The largest of many.")

D.Weibull = base.define("Weibull", {"scale", "shape"}, {
  draw = function(self, shape)
    return self.scale * base.exponential(shape, self.scale) ^ (1 / self.shape)
  end,
  log_prob = function(self, x)
    local y = x / self.scale
    return (self.shape / self.scale):log() + (self.shape - 1) * y:log() - y ^ self.shape
  end,
  cdf = function(self, x) return -(-(x / self.scale) ^ self.shape):expm1() end,
  icdf = function(self, p) return self.scale * (-(-p):log1p()) ^ (1 / self.shape) end,
  entropy = function(self)
    return EULER * (1 - 1 / self.shape) + (self.scale / self.shape):log() + 1
  end,
  mean = function(self) return self.scale * (1 + 1 / self.shape):lgamma():exp() end,
  variance = function(self)
    return self.scale ^ 2 * ((1 + 2 / self.shape):lgamma():exp()
                             - (2 * (1 + 1 / self.shape):lgamma()):exp())
  end,
})

D.Pareto = base.define("Pareto", {"scale", "alpha"}, {
  draw = function(self, shape)
    return self.scale * (base.exponential(shape, self.scale) / self.alpha):exp()
  end,
  log_prob = function(self, x)
    return where(x:ge(self.scale), self.alpha:log() + self.alpha * self.scale:log()
                                     - (self.alpha + 1) * x:log(), -math.huge)
  end,
  cdf = function(self, x)
    return where(x:ge(self.scale), 1 - (self.scale / x) ^ self.alpha, 0)
  end,
  icdf = function(self, p) return self.scale * (1 - p) ^ (-1 / self.alpha) end,
  entropy = function(self) return (self.scale / self.alpha):log() + 1 + 1 / self.alpha end,
  mean = function(self)
    return where(self.alpha:gt(1), self.alpha * self.scale / (self.alpha - 1), math.huge)
  end,
  variance = function(self)
    local a = self.alpha
    return where(a:gt(2), self.scale ^ 2 * a / ((a - 1) ^ 2 * (a - 2)), math.huge)
  end,
})

return D
