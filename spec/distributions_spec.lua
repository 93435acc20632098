-- Distributions against figures that PyTorch 2.11 computed from the same parameters, and samples
-- against their own means and variances.
local flare = require "flare"
local D = flare.distributions
local expect = require "spec.support.expect"
local support = require "spec.support.fill"
local fill, near, refused = support.fill, support.near, expect.refused

local function positive(shape, c) return fill(shape, c):abs() + 0.3 end
local function covariance(c)
  local m = fill({3, 3}, c)
  return m:matmul(m:t()) + flare.eye(3, {dtype = "f64"})
end

-- sums of log_prob, entropy, mean, variance and divergence; false: there is none
local expected = {
  {"Normal", -15.6754201811, 15.422501564, 6.83483461375, 11.3048813896, 14.5151147381},
  {"Uniform", -10.9954887825, 10.9954887825, 4.70107021058, 6.25, false},
  {"Exponential", -12.2281746687, 14.1765368831, 16.3328049337, 29.5424066, 3.12888019855},
  {"Laplace", -22.9235990991, 17.1404466427, 1.70107021058, 16.7060088267, false},
  {"Gamma", -14.4624000161, 11.4236125301, 15.3010533722, 22.6763675341, 9.18024901994},
  {"Beta", 1.04505501703, -3.23699596249, 6.28875606057, 1.01975275882, 7.47280021672},
  {"Dirichlet", 0.202378801686, -5.34841289819, 4, 0.668295740236, 3.96881377658},
  {"Poisson", -23.7747459267, false, 32.9835266067, 32.9835266067, false},
  {"Bernoulli", -7.13527278686, 6.17703305757, 6.69028459178, 2.02635673564, 8.8955197239},
  {"Categorical", -4.38256670764, 3.57908584702, false, false, 1.07195516235},
  {"MultivariateNormal", -18.5257030893, 21.5429225304, 1.70107021058,
    30.0396552818, 4.02377660633},
}

local s, u = {4, 3}, (fill({4, 3}, 9) + 1) / 2.2 + 0.02
local shares = positive(s, 3)
shares = shares / shares:sum{dim = -1, keepdim = true}
local made = {
  Normal = {D.Normal(fill({3}, 1), positive({4, 1}, 2)), fill(s, 5),
            D.Normal(fill(s, 3), positive({3}, 4))},
  Uniform = {D.Uniform(fill(s, 1) - 1, fill(s, 1) + 1.5), fill(s, 2)},
  Exponential = {D.Exponential(positive(s, 1)), positive(s, 3), D.Exponential(positive({3}, 2))},
  Laplace = {D.Laplace(fill(s, 1), positive({3}, 2)), fill(s, 5)},
  Gamma = {D.Gamma(positive(s, 1), positive({3}, 2)), positive(s, 5),
           D.Gamma(positive(s, 3), positive({3}, 4))},
  Beta = {D.Beta(positive(s, 1), positive({3}, 2)), u, D.Beta(positive(s, 3), positive({3}, 4))},
  Dirichlet = {D.Dirichlet(positive(s, 1)), shares, D.Dirichlet(positive({3}, 2))},
  Poisson = {D.Poisson(positive(s, 1) * 3), flare.arange(12):remainder(5):view(s)},
  Bernoulli = {D.Bernoulli{logits = fill(s, 1) * 2}, fill(s, 2):gt(0), D.Bernoulli{probs = u}},
  Categorical = {D.Categorical{logits = fill(s, 1) * 2},
                 flare.tensor({1, 3, 2, 2}, {dtype = "i64"}),
                 D.Categorical{probs = positive(s, 2)}},
  MultivariateNormal = {D.MultivariateNormal(fill(s, 1), {covariance = covariance(4)}), fill(s, 6),
                        D.MultivariateNormal(fill({3}, 2), {covariance = covariance(5)})},
}

describe("distributions", function()
  it("take numbers as values", function()
    near(D.Uniform(0, 2):log_prob(0.5), {-math.log(2)}, 1e-6)
    near(D.Gumbel(0, 1):icdf(0.5), {-math.log(math.log(2))}, 1e-6)
    near(D.Exponential(2):cdf(1), {1 - math.exp(-2)}, 1e-6)
    assert.error_matches(function() return D.Laplace(0, 1):log_prob "x" end,
                         "Laplace:log_prob: x must be a tensor, got string")
  end)

  for _, row in ipairs(expected) do
    local name, log_prob, entropy, mean, variance, kl = table.unpack(row)
    local d, x, q = table.unpack(made[name])

    it("have PyTorch's figures: " .. name, function()
      near(d:log_prob(x):sum(), {log_prob}, 1e-11)
      if entropy then near(d:entropy():sum(), {entropy}, 1e-11) end
      if mean then near(d:mean():sum(), {mean}, 1e-11) end
      if variance then near(d:variance():sum(), {variance}, 1e-11) end
      if kl then near(D.kl(d, q):sum(), {kl}, 1e-9) end
    end)

    it("draw what they say: " .. name, function()
      flare.manual_seed(11)
      local samples = d:sample(20000)
      assert.equal(20000, samples:size(1))
      assert.equal(tostring(d:sample().shape), tostring(d:sample{2, 5}[{2, 5}].shape))
      if mean then
        local spread = d:variance():sqrt()
        assert.is_true(((samples:mean(1) - d:mean()):abs() / spread):max():item() < 0.035)
        assert.is_true((samples:var(1) / d:variance() - 1):abs():max():item() < 0.12)
      else
        for k = 1, 3 do
          near(samples:eq(k):to "f64":mean(1), d.probs[{{}, k}]:tolist(), 0.02)
        end
      end
    end)
  end

  it("have samples with gradients, where they do not count", function()
    for name, d in pairs{
      Normal = function(p) return D.Normal(p, p) end,
      Uniform = function(p) return D.Uniform(0, p) end,
      Laplace = function(p) return D.Laplace(p, p) end,
      Gamma = function(p) return D.Gamma(p, p) end,
      Beta = function(p) return D.Beta(p, p) end,
      Dirichlet = D.Dirichlet, Exponential = D.Exponential,
    } do
      local p = flare.tensor({1.5, 2, 3}, {requires_grad = true})
      assert.is_false(d(p):sample(2).requires_grad, name)
      local g = flare.grad(d(p):rsample(2):square():sum(), {p})
      assert.is_true(g:abs():sum():item() > 0, name)
    end
    refused("Categorical: a sample that counts has no gradient", made.Categorical[1].rsample,
            made.Categorical[1])
  end)

  it("take -inf for classes that cannot be", function()
    local d = D.Categorical{logits = flare.tensor{0, -math.huge, 0}:requires_grad_()}
    near(d:entropy():detach(), {math.log(2)}, 1e-6)
    near(D.kl(d, D.Categorical{logits = flare.zeros(3)}):detach(), {math.log(1.5)}, 1e-6)
    assert.is_true(d:sample(50):ne(2):all():item())
  end)

  it("take numbers beside tensors of any dtype and device", function()
    local d = D.Gamma(flare.ones(2, {dtype = "f64", device = "sim:0"}), 1)
    assert.same({"f64", "sim:0"}, {d.rate.dtype, d:sample(3).device})
    assert.equal("sim:0", D.Normal(0, flare.ones(2, {device = "sim:0"})):rsample().device)
  end)

  it("count the last dims as one event", function()
    local d = made.Normal[1]
    local one = D.Independent(d)
    near(one:log_prob(fill(s, 5)), d:log_prob(fill(s, 5)):sum(2):tolist(), 1e-12)
    near(one:entropy(), d:entropy():sum(2):tolist(), 1e-12)
    near(D.kl(one, D.Independent(made.Normal[3])),
         D.kl(d, made.Normal[3]):sum(2):tolist(), 1e-12)
    assert.same({7, 4, 3}, {table.unpack(one:rsample(7).shape)})
  end)

  it("say what they need", function()
    refused("scale must be a tensor or a number, got nil", D.Normal, 0)
    refused("either logits = or probs = is needed", D.Categorical)
    refused("Poisson has no entropy here", made.Poisson[1].entropy, made.Poisson[1])
    refused("did you mean 'probs'", D.Bernoulli, {prbs = 1})
    refused("two distributions of one kind are expected, got Normal and Gamma", D.kl,
            D.Normal(0, 1), D.Gamma(1, 1))
    near(D.Normal(0, 1):log_prob(flare.tensor(0)), {-0.5 * math.log(2 * math.pi)}, 1e-6)
  end)
end)
