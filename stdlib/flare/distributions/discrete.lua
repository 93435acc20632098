--- Discrete distributions: of counts, and of classes, which count from 1.
local base = require "flare.distributions.base"
local core = require "flare.core"
local options = require "flare.options"
local stacks = require "flare.stacks"

local D = {}

D.Poisson = base.define("Poisson", {"rate"}, {
  discrete = true,
  draw = function(self, shape)
    return core.poisson(self.rate:expand(base.full(shape, self.batch)):contiguous())
  end,
  log_prob = function(self, x)
    x = x:to(self.rate.dtype)
    return core.xlogy(x, self.rate) - self.rate - (x + 1):lgamma()
  end,
  mean = function(self) return self.rate end,
  variance = function(self) return self.rate end,
})

D.Bernoulli = base.define("Bernoulli", {"{logits =} or {probs =}"}, {
  discrete = true,
  init = base.take_bits,
  draw = function(self, shape)
    return core.bernoulli(self.probs:expand(base.full(shape, self.batch)):contiguous())
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

-- Classes from 1 along the last dim.
D.Categorical = base.define("Categorical", {"{logits =} or {probs =}"}, {
  discrete = true,
  draw = function(self, shape)
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    local rows = self.probs:reshape(-1, self.probs:size(-1))
    return core.multinomial(rows, n, {replacement = true}):t():reshape(base.full(shape, self.batch))
  end,
  log_prob = function(self, x)
    options.tensor("Categorical:log_prob", "x", x)
    local logits = self.logits:expand(base.full(x.shape, {self.logits:size(-1)}))
    return logits:gather(-1, x:unsqueeze(-1)):squeeze(-1)
  end,
  -- what cannot be counts for nothing
  entropy = function(self) return -(self.probs * self.logits:clamp(-1e30)):sum(-1) end,
})

function D.Categorical:init(o)
  local logits, probs = base.take_either(self, o)
  options.tensor(getmetatable(self).__name, logits and "logits" or "probs", logits or probs)
  if probs then
    logits = (probs / probs:sum{dim = -1, keepdim = true}):clamp(base.tiny(probs)):log()
  end
  self.logits = logits:log_softmax(-1)
  self.probs = self.logits:exp()
  self.batch = {table.unpack(logits.shape, 1, logits:dim() - 1)}
end

D.Geometric = base.define("Geometric", {"{logits =} or {probs =}"}, {
  discrete = true,
  init = base.take_bits,
  draw = function(self, shape)
    return (base.exponential(shape, self.probs) / -(-self.probs):log1p()):floor()
  end,
  log_prob = function(self, x)
    return core.xlogy(x:to(self.probs.dtype), 1 - self.probs) + self.probs:log()
  end,
  entropy = function(self)
    return core.bce_with_logits(self.logits, self.probs, {reduction = "none"}) / self.probs
  end,
  mean = function(self) return 1 / self.probs - 1 end,
  variance = function(self) return (1 / self.probs - 1) / self.probs end,
}, "How often something of this probability fails before it happens.")

-- n, a tensor or a number, beside logits or probs.
local function take_count(self, n, o)
  base.take_bits(self, o)
  base.take(self, {"n", "logits", "probs"}, n, self.logits, self.probs)
end

-- 0, 1, ... n in a new first dim, for numbers in these dims.
local function counts(n, like)
  local x = core.arange(0, n + 1):to(like.dtype):to(like.device)
  for _ = 1, like:dim() do x = x:unsqueeze(-1) end
  return x
end

D.Binomial = base.define("Binomial", {"n", "{logits =} or {probs =}"}, {
  discrete = true,
  init = take_count,
  -- one try after the other, as many as the largest n has
  draw = function(self, shape)
    local all = base.full(shape, self.batch)
    local sum = core.zeros(all, base.like(self.probs))
    for k = 1, self.n:numel() > 0 and self.n:amax():item() or 0 do
      sum:add_((core.rand(all, base.like(self.probs)):lt(self.probs) & self.n:ge(k)):to(sum.dtype))
    end
    return sum
  end,
  log_prob = function(self, x)
    x = x:to(self.probs.dtype)
    local ways = (self.n + 1):lgamma() - (x + 1):lgamma() - (self.n - x + 1):lgamma()
    return ways + x * self.logits - self.n * core.softplus(self.logits)
  end,
  entropy = function(self)
    local x = counts(self.n:numel() > 0 and math.tointeger(self.n:amax():item()) or 0, self.probs)
    local p = self:log_prob(x)
    return -core.where(x:le(self.n), p:exp() * p, 0):sum(1)
  end,
  mean = function(self) return self.n * self.probs end,
  variance = function(self) return self.n * self.probs * (1 - self.probs) end,
}, "How often something of this probability happens in n tries.")

D.NegativeBinomial = base.define("NegativeBinomial", {"n", "{logits =} or {probs =}"}, {
  discrete = true,
  init = take_count,
  draw = function(self, shape)
    return core.poisson(base.gamma(self.n, shape) * self.logits:exp())
  end,
  log_prob = function(self, x)
    x = x:to(self.probs.dtype)
    local ways = (self.n + x):lgamma() - (x + 1):lgamma() - self.n:lgamma()
    return ways + self.n * core.logsigmoid(-self.logits) + x * core.logsigmoid(self.logits)
  end,
  mean = function(self) return self.n * self.logits:exp() end,
  variance = function(self) return self:mean() / (1 - self.probs) end,
}, "How often something of this probability happens before it has failed n times.")

local Categorical = D.Categorical

D.OneHotCategorical = base.define("OneHotCategorical", {"{logits =} or {probs =}"}, {
  events = 1,
  init = Categorical.init,
  draw = function(self, shape)
    return core.one_hot(Categorical.draw(self, shape), self.probs:size(-1)):to(self.probs.dtype)
  end,
  -- the sample, with the gradient of the probabilities (arXiv:1308.3432)
  rsample = function(self, ...) return self:sample(...) + (self.probs - self.probs:detach()) end,
  log_prob = function(self, x) return Categorical.log_prob(self, x:argmax(-1)) end,
  entropy = Categorical.entropy,
  mean = function(self) return self.probs end,
  variance = function(self) return self.probs * (1 - self.probs) end,
}, "Categorical whose samples are 1 at the class and 0 elsewhere; those of rsample have the "
  .. "gradient of the probabilities.")

D.Multinomial = base.define("Multinomial", {"n", "{logits =} or {probs =}"}, {
  discrete = true, events = 1,
  init = function(self, n, o)
    self.n = options.count("Multinomial", "n", n, 0)
    Categorical.init(self, o)
  end,
  draw = function(self, shape)
    local classes = Categorical.draw(self, base.full({self.n}, shape))
    return core.one_hot(classes, self.probs:size(-1)):sum(1):to(self.probs.dtype)
  end,
  log_prob = function(self, x)
    x = x:to(self.probs.dtype)
    local each = core.where(x:eq(0), 0, x * self.logits) - (x + 1):lgamma()
    return each:sum(-1) + (x:sum(-1) + 1):lgamma()
  end,
  entropy = function(self)
    local x = counts(self.n, self.probs)
    local p = D.Binomial(self.n, {probs = self.probs}):log_prob(x):exp()
    return self.n * Categorical.entropy(self) - x[-1]:add(1):lgamma():view({})
      + (p * (x + 1):lgamma()):sum{dims = {1, -1}}
  end,
  mean = function(self) return self.n * self.probs end,
  variance = function(self) return self.n * self.probs * (1 - self.probs) end,
}, "How often each class comes in n draws.")

return D
