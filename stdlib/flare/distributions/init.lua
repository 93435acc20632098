--- flare.distributions: probability distributions: log-probabilities and samples with gradients
-- with respect to the parameters.
--
--     local d = flare.distributions.Normal(mean, std)
--     local loss = -(d:log_prob(action) * advantage):mean() - 0.01 * d:entropy():mean()
--
-- Parameters are tensors or numbers and broadcast. The shape of a sample is the given sizes, then
-- the parameters' shape: d:sample(), d:sample(5), d:sample{5, 2}.
require "flare"

local files = {kl = "kl", Distribution = "base"}
for file, names in pairs{
  continuous = "Normal Uniform Exponential Laplace Gamma Beta Dirichlet MultivariateNormal",
  tails = "LogNormal Cauchy HalfNormal HalfCauchy StudentT Chi2 InverseGamma Gumbel Weibull Pareto",
  discrete = "Poisson Bernoulli Categorical Geometric Binomial NegativeBinomial OneHotCategorical "
    .. "Multinomial",
  compound = "Independent MixtureSameFamily TransformedDistribution",
  transforms = "Transform AffineTransform ExpTransform PowerTransform SigmoidTransform "
    .. "TanhTransform SoftplusTransform",
} do
  for name in names:gmatch "%w+" do files[name] = file end
end
for name, file in next, files do files[name] = "flare.distributions." .. file end

return require "flare.lazy"("distributions", {}, files)
