-- Distributions against PyTorch: figures that spec/support/layers_data.py has made.
local flare = require "flare"
local D = flare.distributions
local expect = require "spec.support.expect"
local peers = require "spec.support.layers_data"
local support = require "spec.support.fill"
local fill, near, refused, i64 = support.fill, support.near, expect.refused, expect.i64

local function positive(shape, c) return fill(shape, c):abs() + 0.3 end

local s, u = {4, 3}, (fill({4, 3}, 9) + 1) / 2.2 + 0.02
local counts5 = flare.arange(12):remainder(5):view(s)
local counts7 = flare.arange(12):remainder(7):view(s)
local function f64(list) return flare.tensor(list, {dtype = "f64"}) end
local function through(list)
  return D.TransformedDistribution(D.Normal(fill(s, 1), positive(s, 2)), list)
end

-- a distribution, a value, another distribution
local made = {
  Normal = {D.Normal(fill({3}, 1), positive({4, 1}, 2)), fill(s, 5)},
  Uniform = {D.Uniform(fill(s, 1) - 1, fill(s, 1) + 1.5), fill(s, 2),
             D.Uniform(fill(s, 1) - 2, fill(s, 1) + 1.7)},
  Exponential = {D.Exponential(positive(s, 1)), positive(s, 3)},
  Laplace = {D.Laplace(fill(s, 1), positive({3}, 2)), fill(s, 5),
             D.Laplace(fill(s, 3), positive(s, 4))},
  Gamma = {D.Gamma(positive(s, 1), positive({3}, 2)), positive(s, 5)},
  Poisson = {D.Poisson(positive(s, 1) * 3), counts5, D.Poisson(positive(s, 2))},
  LogNormal = {D.LogNormal(fill(s, 1), positive({3}, 2)), positive(s, 5),
               D.LogNormal(fill(s, 3), positive(s, 4))},
  Cauchy = {D.Cauchy(fill(s, 1), positive({3}, 2)), fill(s, 5),
            D.Cauchy(fill(s, 3), positive(s, 4))},
  HalfNormal = {D.HalfNormal(positive(s, 2)), positive(s, 5), D.HalfNormal(positive(s, 4))},
  HalfCauchy = {D.HalfCauchy(positive(s, 2)), positive(s, 5)},
  StudentT = {D.StudentT(positive(s, 2) + 2, fill({3}, 1), positive(s, 3)), fill(s, 5)},
  Chi2 = {D.Chi2(positive(s, 2) * 3), positive(s, 5), D.Chi2(positive(s, 3))},
  InverseGamma = {D.InverseGamma(positive(s, 2) + 2, positive(s, 3)), positive(s, 5),
                  D.InverseGamma(positive(s, 4) + 2, positive(s, 5))},
  Gumbel = {D.Gumbel(fill(s, 1), positive({3}, 2)), fill(s, 5),
            D.Gumbel(fill(s, 3), positive(s, 4))},
  Weibull = {D.Weibull(positive(s, 1), positive(s, 2) + 1), positive(s, 5)},
  Pareto = {D.Pareto(positive(s, 1), positive(s, 2) + 2), positive(s, 1) + 0.5},
  Geometric = {D.Geometric{logits = fill(s, 1)}, counts5, D.Geometric{probs = u}},
  Binomial = {D.Binomial(6, {logits = fill(s, 1) * 2}), counts7},
  NegativeBinomial = {D.NegativeBinomial(positive({3}, 2) * 4, {probs = u * 0.7}), counts7},
  OneHotCategorical = {D.OneHotCategorical{logits = fill(s, 1) * 2},
                       i64{1, 3, 2, 2}:one_hot(3), D.OneHotCategorical{probs = positive(s, 2)}},
  Multinomial = {D.Multinomial(5, {logits = fill({3}, 1) * 2}),
                 f64{{5, 0, 0}, {1, 2, 2}, {0, 4, 1}}},
  MixtureSameFamily = {D.MixtureSameFamily(D.Categorical{logits = fill({3}, 1)},
                                           D.Normal(fill(s, 2), positive(s, 3))), fill({4}, 5)},
  MixtureOfVectors = {D.MixtureSameFamily(D.Categorical{logits = fill({4}, 1)},
    D.Independent(D.Normal(fill(s, 2), positive(s, 3)))), fill({5, 3}, 5)},
  TransformedAffine = {through{D.AffineTransform(0.5, fill({3}, 4))}, fill(s, 5)},
  TransformedExp = {through(D.ExpTransform()), positive(s, 5)},
  TransformedPower = {through{D.ExpTransform(), D.PowerTransform(f64(-1.5))}, positive(s, 5)},
  TransformedSigmoid = {through{D.SigmoidTransform()}, u},
  TransformedSoftplus = {through{D.SoftplusTransform()}, positive(s, 5)},
  TransformedTanh = {through{D.TanhTransform(), D.AffineTransform(0.5, f64(-2))}, fill(s, 5)},
  TransformedVector = {D.TransformedDistribution(
    D.Independent(D.Normal(fill(s, 1), positive(s, 2))), {D.TanhTransform()}), fill(s, 5) * 0.9},
}

describe("distributions", function()
  for name, case in pairs(made) do
    local d, x, other = table.unpack(case)
    local want = peers["d_" .. name]

    it("have PyTorch's figures: " .. name, function()
      local got = {function() return d:log_prob(x) end, function() return d:entropy() end,
                   function() return d:mean() end, function() return d:variance() end,
                   function() return d:cdf(x) end, function() return d:icdf(u) end,
                   other and function() return D.kl(d, other) end}
      for k, value in ipairs(want) do
        local ok, y = pcall(got[k] or error)
        if value == value then
          assert(ok, y)
          y = y:sum():item()
          assert(y == value or math.abs(y - value) < 1e-9 * (1 + math.abs(value)),
                 ("figure %d is %.15g, there %.15g"):format(k, y, value))
        end
      end
    end)

    it("draw what they say: " .. name, function()
      flare.manual_seed(3)
      local samples = d:sample(20000)
      assert.equal(tostring(d:sample().shape), tostring(d:sample{2, 5}[{2, 5}].shape))
      local has_mean, mean = pcall(d.mean, d)
      local variance = has_mean and d:variance()
      if has_mean and (mean + variance):isfinite():all():item() then
        assert.equal(tostring(mean.shape), tostring(samples.shape):gsub("^%(20000,? ?", "("))
        local off = (samples:to "f64":mean(1) - mean):abs() / (variance:sqrt() + 1e-12)
        assert.is_true(off:max():item() < 0.05)
      end
      local has_cdf, below = pcall(d.cdf, d, x)
      if has_cdf then
        local share = samples:le(x):to "f64":mean(1)
        assert.is_true((share - below):abs():max():item() < 0.015)
      end
    end)
  end

  it("have samples with gradients, where they do not count", function()
    for name, d in pairs{
      LogNormal = function(p) return D.LogNormal(p, p) end,
      Cauchy = function(p) return D.Cauchy(p, p) end, HalfNormal = D.HalfNormal,
      StudentT = function(p) return D.StudentT(p, p, p) end, Chi2 = D.Chi2,
      InverseGamma = function(p) return D.InverseGamma(p, p) end,
      Gumbel = function(p) return D.Gumbel(p, p) end,
      Weibull = function(p) return D.Weibull(p, p) end,
      Pareto = function(p) return D.Pareto(p, p) end,
      OneHotCategorical = function(p) return D.OneHotCategorical{logits = p} end,
      Transformed = function(p)
        return D.TransformedDistribution(D.Normal(p, p), {D.TanhTransform()})
      end,
    } do
      local p = f64{1.5, 2, 3}:requires_grad_(true)
      assert.is_false(d(p):sample(2).requires_grad, name)
      local y = d(p):rsample(2)
      local g = flare.grad((y * fill(y.shape, 1)):sum(), {p})
      assert.is_true(g:abs():sum():item() > 0, name)
    end
    refused("Binomial: a sample that counts has no gradient", made.Binomial[1].rsample,
            made.Binomial[1])
  end)

  it("know densities where tanh has come to its end", function()
    local d = D.TransformedDistribution(D.Normal(f64{30, -2}, 1), D.TanhTransform())
    local y = d:sample(4)
    assert.equal(1, y[{1, 1}]:item())
    assert.is_true(d:log_prob(y):isfinite():all():item())
    local inside = d:sample(3)[{{}, 2}]
    local one = D.TransformedDistribution(D.Normal(f64(-2), 1), {D.TanhTransform()})
    local x = inside:atanh()
    near(one:log_prob(inside), (D.Normal(f64(-2), 1):log_prob(x) - (1 - inside ^ 2):log())
                                 :totable(), 1e-9)
  end)

  it("turn a share into a value and back", function()
    for name, case in pairs(made) do
      local d = case[1]
      if pcall(d.icdf, d, u) then near(d:cdf(d:icdf(u)), u:view(-1):totable(), 1e-9)
      else assert.is_true(peers["d_" .. name][6] ~= peers["d_" .. name][6], name) end
    end
  end)

  it("have gradients of log_prob", function()
    assert.is_true(flare.gradcheck(function(df, loc, scale, x)
      return D.StudentT(df, loc, scale):log_prob(x)
    end, {positive({3}, 1), fill({3}, 2), positive({3}, 3), fill({3}, 4)}, {second = true}))
    assert.is_true(flare.gradcheck(function(logits, loc, x)
      return D.MixtureSameFamily(D.Categorical{logits = logits}, D.Gumbel(loc, 1)):log_prob(x)
    end, {fill({3}, 1), fill({3}, 2), fill({4, 1}, 3):squeeze(2)}, {second = true}))
    assert.is_true(flare.gradcheck(function(loc, x)
      return D.TransformedDistribution(D.Normal(loc, 1), {D.SigmoidTransform()}):log_prob(x)
    end, {fill({4, 3}, 2), u}, {second = true}))
  end)

  it("take integers and numbers, on any device", function()
    assert.equal("f32", D.Normal(i64{1, 2}, 1):sample().dtype)
    local normal = D.Normal(flare.zeros(2, {device = "sim:0"}), 1)
    local d = D.TransformedDistribution(normal, {D.AffineTransform(1, -2), D.PowerTransform(3)})
    local y = d:rsample(3)
    assert.equal("sim:0", (d:log_prob(y) + d:cdf(y)).device)
    assert.equal("sim:0", D.Binomial(3, {logits = normal.loc}):entropy().device)
  end)

  it("of several kinds say what they need", function()
    refused("a distribution is expected, got a tensor", D.Independent, flare.ones(2))
    refused("Independent: 3 dims of a batch of 1", D.Independent, D.Normal(flare.zeros(2), 1), 3)
    refused("scale must be a tensor or a number, got nil", D.AffineTransform, 1)
    refused("entry 2 is no transform, but number", D.TransformedDistribution, D.Normal(0, 1),
            {D.ExpTransform(), 3})
    refused("a list of transforms is expected, got nil", D.TransformedDistribution, D.Normal(0, 1))
    refused("must have a part for each of 3 classes", D.MixtureSameFamily,
            D.Categorical{logits = flare.zeros(3)}, D.Normal(flare.zeros(2), 1))
    refused("n must be an integer of at least 0, got -1", D.Multinomial, -1,
            {logits = flare.zeros(3)})
    refused("either logits = or probs = is needed", D.Binomial, 3)
    refused("probs must be a tensor, got number", D.Geometric, {probs = 0.5})
    refused("Weibull: shape must be a tensor or a number, got nil", D.Weibull, 1)
    refused("there is no formula for two of Weibull", D.kl, made.Weibull[1], made.Weibull[1])
    refused("df must be a tensor or a number, got string", D.StudentT, "3")
  end)
end)
