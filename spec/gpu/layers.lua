-- Layers, optimizers, distributions and transforms that are made of rows, on a GPU beside the CPU:
-- results and gradients in f32 to 1e-4 of their size. Needs one GPU; less than 20 s. Ends with PASS
-- or FAIL. A device's name as argument takes another one.
local flare = require "flare"
local nn, F, D, T = flare.nn, flare.nn.functional, flare.distributions, flare.data.transforms
local device, failed, count = arg and arg[1] or "cuda", 0, 0

local function same(name, there, here)
  there, here = there:detach():to "cpu":double(), here:detach():double()
  local far = (there - here):abs() / (1 + here:abs())
  local most = far:numel() > 0 and far:max():item() or 0
  count = count + 1
  if most ~= most or most >= 1e-4 or tostring(there.shape) ~= tostring(here.shape) then
    failed = failed + 1
    print("FAIL", name, ("%g"):format(most))
  end
end

local function move(list)
  local moved = {}
  for k, v in pairs(list) do moved[k] = flare.is_tensor(v) and v:to(device) or v end
  return moved
end

-- f(module, ...) of a layer and its copy, with gradients of parameters.
local function layer(name, module, inputs, f)
  f = f or function(m, ...) return (m(...)) end
  module:zero_grad()
  local copy, n = module:clone():to(device), #inputs + 2
  local here = f(module, table.unpack(inputs, 1, n))
  local there = f(copy, table.unpack(move(inputs), 1, n))
  same(name, there, here)
  if not here.requires_grad then return end
  here:square():sum():backward()
  there:square():sum():backward()
  local grads = {}
  for key, p in copy:named_parameters() do grads[key] = p.grad end
  for key, p in module:named_parameters() do
    if p.grad then same(name .. " " .. key, grads[key], p.grad) end
  end
end

-- f on both, from the same seed.
local function call(name, f, ...)
  flare.manual_seed(5)
  local here = f(...)
  flare.manual_seed(5)
  same(name, f(table.unpack(move{...}, 1, select("#", ...))), here)
end

flare.manual_seed(3)
local x, memory = flare.randn(4, 9, 32), flare.randn(4, 7, 32)
local index = flare.randint(1, 51, {40})
for _, mode in ipairs {"sum", "mean", "max"} do
  local bag = nn.EmbeddingBag(50, 24, {mode = mode, padding = 3})
  layer("EmbeddingBag " .. mode, bag, {index:view(8, 5)})
  bag:zero_grad()
  layer("EmbeddingBag of offsets " .. mode, bag, {index, {1, 4, 4, 20, 33}})
end
for _, first in ipairs {false, true} do
  local o = {hidden = 64, dropout = 0, norm_first = first, causal = true, encoder = 2, decoder = 2}
  layer("Transformer", nn.Transformer(32, 4, o), {memory, x})
end
local narrow = nn.MultiHeadAttention(32, 4, {memory = 16})
layer("weights of attention", narrow, {x, memory[{{}, {}, {1, 16}}]:contiguous()},
      function(m, ...) return m:weights(...) end)
layer("LSTM", nn.LSTM(32, 20, {projection = 8, layers = 2, bidirectional = true}), {x})
for k = 1, 2 do
  local norm = nn.BatchNorm1d(9, {cumulative = k == 1})
  layer("BatchNorm", norm, {x})
  layer("BatchNorm in evaluation", norm:eval(), {x})
end
layer("LocalResponseNorm", nn.LocalResponseNorm(5, {alpha = 0.5}), {x})
layer("prune", nn.prune(nn.Linear(32, 8), 0.4), {x})
layer("parametrize", nn.parametrize(nn.Linear(32, 8), function(w) return w:tril() end), {x})
layer("adaptive softmax", nn.AdaptiveLogSoftmaxWithLoss(32, 90, {10, 40}),
      {x[1], flare.randint(1, 91, {9})})
local labels = flare.randint(0, 33, {9, 32})
call("multilabel_margin_loss", F.multilabel_margin_loss, x[1], labels)
for _, name in ipairs {"threshold", "softmin", "alpha_dropout", "feature_alpha_dropout",
                       "instance_norm"} do
  call(name, F[name], x)
end
call("rrelu", function(v) return F.rrelu(v, {training = true}) end, x)

for _, name in ipairs {"Muon", "Adafactor", "ASGD"} do
  local p, g = flare.randn(48, 64), {flare.randn(48, 64), flare.randn(48, 64)}
  call(name, function(w, a, b)
    w = w:clone():requires_grad_(true)
    local opt = flare.optim[name]({w}, name == "Muon" and {dtype = "f32"} or {})
    for _, grad in ipairs {a, b} do
      w.grad = grad
      opt:step()
    end
    return w:detach()
  end, p, table.unpack(g))
end

local loc, scale = flare.randn(5, 3), flare.rand(5, 3) + 0.5
local value = flare.rand(5, 3) + 6
for _, name in ipairs {"LogNormal", "Cauchy", "Gumbel", "Weibull", "Pareto", "InverseGamma"} do
  call(name, function(a, b, v)
    local d = D[name](name:find "^[LCG]" and a or a:abs() + 0.5, b)
    return d:log_prob(v) + d:entropy() + d:sample():mul(0)
  end, loc, scale, value)
end
call("StudentT", function(a, b, v) return D.StudentT(b * 4, a, b):log_prob(v) end, loc, scale,
     value)
call("Binomial", function(a) return D.Binomial(9, {logits = a}):entropy() end, loc)
call("Mixture", function(a, b, v)
  return D.MixtureSameFamily(D.Categorical{logits = a}, D.Normal(a, b)):log_prob(v[{{}, 1}])
end, loc, scale, value)
call("Transformed", function(a, b, v)
  local d = D.TransformedDistribution(D.Normal(a, b), {D.TanhTransform(), D.AffineTransform(1, 9)})
  return d:log_prob(v)
end, loc, scale, value)

local images = flare.rand(6, 3, 20, 24)
for _, t in ipairs {T.Resize(9), T.CenterCrop(8), T.RandomCrop(16, {padding = 3}),
                    T.RandomHorizontalFlip(), T.RandomResizedCrop(12), T.GaussianBlur(5),
                    T.RandomAffine{degrees = 20, translate = {0.1, 0.1}}, T.RandomErasing{p = 1},
                    T.ColorJitter{brightness = 0.3, contrast = 0.3, saturation = 0.3}} do
  call(getmetatable(t).__name, t, images)
end

print(("%d results, %d of them off"):format(count, failed))
print(failed == 0 and "PASS" or "FAIL")
os.exit(failed == 0 and 0 or 1)
