-- A Gaussian process: the marginal likelihood by Cholesky's factor, maximised by L-BFGS, in f64.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(1)

local x = (flare.rand(40, 1, {dtype = "f64"}) * 6 - 3):sort(1)
local y = (2 * x):sin():squeeze(2) + 0.1 * flare.randn(40, {dtype = "f64"})

local GP = flare.class("GP", nn.Module)
function GP:init()
  self.log_scale = self:param(flare.zeros(1, {dtype = "f64"}))
  self.log_length = self:param(flare.zeros(1, {dtype = "f64"}))
  self.log_noise = self:param(flare.full({1}, -1, {dtype = "f64"}))
end
function GP:kernel(a, b)
  local d = flare.cdist(a, b) / self.log_length:exp()
  return self.log_scale:exp() * (-0.5 * d ^ 2):exp()
end
function GP:factor()
  local k = self:kernel(x, x) + (self.log_noise:exp() + 1e-6) * flare.eye(#x, {dtype = "f64"})
  return k:cholesky()
end
function GP:forward()
  local l = self:factor()
  local alpha = y:unsqueeze(2):cholesky_solve(l):squeeze(2)
  return 0.5 * y:dot(alpha) + l:diagonal():log():sum() + 0.5 * #x * math.log(2 * math.pi)
end
function GP:predict(z)
  local l = self:factor()
  local k = self:kernel(x, z)
  local mean = k.T:matmul(y:unsqueeze(2):cholesky_solve(l)):squeeze(2)
  local v = flare.triangular_solve(l, k)
  local variance = self.log_scale:exp() - (v ^ 2):sum(1)
  return mean, variance
end

local model = GP()
local optimizer = optim.LBFGS(model, {lr = 0.5, max_iter = 50})
local before = model():item()
optimizer:step(function()
  optimizer:zero_grad()
  local loss = model()
  loss:backward()
  return loss
end)
local after = model():item()
print("negative log likelihood", before, after)
print("noise", model.log_noise:exp():sqrt():item(), "length", model.log_length:exp():item())
assert(after < before)
local z = flare.linspace(-2.5, 2.5, 50, {dtype = "f64"}):unsqueeze(2)
local mean, variance = flare.no_grad(function() return model:predict(z) end)
local err = (mean - (2 * z):sin():squeeze(2)):abs():max():item()
print("largest error", err, "largest deviation", variance:sqrt():max():item())
assert(err < 0.35 and variance:min():item() > 0)
assert(flare.gradcheck(function(a)
  return (a.T:matmul(a) + flare.eye(3, {dtype = "f64"})):logdet()
end, {flare.rand(3, 3)}))
-- the curvature of the likelihood in its noise
local h = flare.hessian(function(s)
  local k = model:kernel(x, x):detach() + s:exp() * flare.eye(#x, {dtype = "f64"})
  return 0.5 * k:logdet() + 0.5 * y:dot(k:inv():matmul(y:unsqueeze(2)):squeeze(2))
end, model.log_noise:detach():squeeze(1))
print("curvature", h:item())
