--- flare.nn.functional: layers as functions. It has the operators under their own names (relu,
-- linear, softmax, cross_entropy, ...) and functions that need several operators.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local F = {}

local function reduce(where, x, how)
  if how == "mean" then return x:mean() end
  if how == "sum" then return x:sum() end
  if how == "none" then return x end
  fail("%s: reduction is 'mean', 'sum' or 'none', got '%s'", where, tostring(how))
end

--- Sets elements to zero with probability p and scales the others by 1 / (1 - p). With
-- training = false the result is x.
-- @param x any shape
-- @param opts {p = 0.5, training = true}
function F.dropout(x, opts)
  if type(opts) == "number" then opts = {p = opts} end
  local o = options.check("dropout", opts, {p = 0.5, training = true})
  if not o.training or o.p == 0 then return x end
  return core.dropout(x, o.p)
end

--- The rows of `weight` (rows, width) at the positions `index` (...): (..., width).
function F.embedding(index, weight, opts)
  return core.embedding(weight, index, opts)
end

--- The sum, mean or maximum of the rows of `weight` (rows, width) in each bag: (bags, width).
-- @param index positions (bags, size), or (n) with `offsets`, where each bag begins in index
-- @param opts {mode = "mean", "sum" or "max", offsets =, weights = factors of the rows for "sum",
--   padding = row that is left out, include_last = whether the last offset is the end of the
--   last bag}
function F.embedding_bag(index, weight, opts)
  local none = options.none
  local o = options.check("embedding_bag", opts, {mode = "mean", offsets = none, weights = none,
                                                  padding = none, include_last = false})
  local offsets = o.offsets
  if type(offsets) == "table" then
    offsets = core.tensor(offsets, {dtype = "i64", device = index.device})
  end
  return (core.embedding_bag(weight, index, {
    offsets = offsets, weights = o.weights, mode = o.mode, padding = o.padding,
    include_last = o.include_last}))
end

--- The sampling grid of an affine map, for grid_sample.
-- @param theta (n, 2, 3), or (n, 3, 4) for three dims of space
-- @param size the result's shape, (n, channels, height, width)
function F.affine_grid(theta, size, opts)
  local o = options.check("affine_grid", opts, {align_corners = false})
  options.tensor("affine_grid", "theta", theta)
  if type(size) ~= "table" then
    fail("affine_grid: size must be a list of sizes, got %s", options.kind(size))
  end
  local n = #size - 2
  if n < 2 or n > 3 or theta:dim() ~= 3 or theta:size(1) ~= size[1] or theta:size(2) ~= n
    or theta:size(3) ~= n + 1 then
    fail("affine_grid: theta of shape %s and a size of %d dims do not fit: (n, 2, 3) goes with "
      .. "(n, channels, height, width)", tostring(theta.shape), #size)
  end
  local axes, shape = {}, {table.unpack(size, 3)}
  for k = 1, n do -- width first
    local m, ones = shape[n + 1 - k], {}
    for d = 1, n do ones[d] = d == n + 1 - k and m or 1 end
    local edge = o.align_corners and 1 or 1 - 1 / m
    if o.align_corners and m == 1 then edge = 0 end
    local x = core.linspace(-edge, edge, m, {dtype = theta.dtype, device = theta.device})
    axes[k] = x:view(ones):expand(shape)
  end
  axes[n + 1] = core.ones(shape, {dtype = theta.dtype, device = theta.device})
  local points = core.stack(axes, -1):view(1, -1, n + 1)
  table.insert(shape, 1, size[1])
  shape[#shape + 1] = n
  return points:matmul(theta:transpose(2, 3)):view(shape)
end

--- 1 - cosine for pairs with target 1, max(0, cosine - margin) for those with -1.
-- @param a, b (n, width) or (width)
-- @param target (n) or a scalar of 1 and -1
function F.cosine_embedding_loss(a, b, target, opts)
  local o = options.check("cosine_embedding_loss", opts, {margin = 0, reduction = "mean"})
  options.alike("cosine_embedding_loss", "a", a, "b", b)
  options.tensor("cosine_embedding_loss", "target", target)
  local cosine = core.cosine_similarity(a, b, -1)
  if target:numel() > 1 then
    options.alike("cosine_embedding_loss", "a . b", cosine, "target", target)
  end
  local apart = core.relu(cosine - o.margin)
  return reduce("cosine_embedding_loss", core.where(target:gt(0), 1 - cosine, apart), o.reduction)
end

--- max(0, -target * (a - b) + margin): with target 1, a should be above b; with -1, below.
function F.margin_ranking_loss(a, b, target, opts)
  local o = options.check("margin_ranking_loss", opts, {margin = 0, reduction = "mean"})
  options.alike("margin_ranking_loss", "a", a, "b", b)
  options.tensor("margin_ranking_loss", "target", target)
  if target:numel() > 1 then options.alike("margin_ranking_loss", "a", a, "target", target) end
  return reduce("margin_ranking_loss", core.relu(target * (b - a) + o.margin), o.reduction)
end

--- max(0, |anchor - same| - |anchor - other| + margin), with distances along the last dim. With
-- `swap`, |same - other| replaces |anchor - other| where it is smaller.
-- @param opts {margin = 1, p = 2, eps = 1e-6, swap = false, reduction = "mean", distance = f(a, b)
--   in place of the p-norm}
function F.triplet_margin_loss(anchor, same, other, opts)
  local o = options.check("triplet_margin_loss", opts,
                          {margin = 1, p = 2, eps = 1e-6, swap = false, reduction = "mean",
                           distance = options.none})
  options.alike("triplet_margin_loss", "anchor", anchor, "same", same, "other", other)
  local distance = o.distance or function(a, b)
    return core.norm(a - b + o.eps, {p = o.p, dims = {-1}})
  end
  local near, far = distance(anchor, same), distance(anchor, other)
  if o.swap then far = far:minimum(distance(same, other)) end
  return reduce("triplet_margin_loss", core.relu(near - far + o.margin), o.reduction)
end

--- The negative log-likelihood of target under a normal distribution with mean x and variance
-- `var`, without log(2 pi) / 2, which `full` adds. Variances below eps are taken as eps.
function F.gaussian_nll_loss(x, target, var, opts)
  local o = options.check("gaussian_nll_loss", opts,
                          {full = false, eps = 1e-6, reduction = "mean"})
  options.alike("gaussian_nll_loss", "x", x, "target", target)
  options.tensor("gaussian_nll_loss", "var", var)
  local below = core.relu(o.eps - var:detach())
  var = var + below
  local loss = 0.5 * (var:log() + (x - target) ^ 2 / var)
  return reduce("gaussian_nll_loss", o.full and loss + 0.5 * math.log(2 * math.pi) or loss,
                o.reduction)
end

--- The negative log-likelihood of target under a Poisson distribution with rate exp(x) (rate x with
-- log_input = false), without log(target!); `full` adds Stirling's approximation of it.
function F.poisson_nll_loss(x, target, opts)
  local o = options.check("poisson_nll_loss", opts,
                          {log_input = true, full = false, eps = 1e-8, reduction = "mean"})
  options.alike("poisson_nll_loss", "x", x, "target", target)
  local loss = o.log_input and x:exp() - target * x or x - target * (x + o.eps):log()
  if o.full then
    local more = target * target:log() - target + 0.5 * (2 * math.pi * target):log()
    loss = loss + core.where(target:gt(1), more, 0)
  end
  return reduce("poisson_nll_loss", loss, o.reduction)
end

--- x where target is 1, max(0, margin - x) where it is -1.
function F.hinge_embedding_loss(x, target, opts)
  local o = options.check("hinge_embedding_loss", opts, {margin = 1, reduction = "mean"})
  options.alike("hinge_embedding_loss", "x", x, "target", target)
  return reduce("hinge_embedding_loss", core.where(target:gt(0), x, core.relu(o.margin - x)),
                o.reduction)
end

--- log(1 + exp(-target x)), target 1 or -1.
function F.soft_margin_loss(x, target, opts)
  local o = options.check("soft_margin_loss", opts, {reduction = "mean"})
  options.alike("soft_margin_loss", "x", x, "target", target)
  return reduce("soft_margin_loss", core.softplus(-target * x), o.reduction)
end

--- Multi-class hinge loss: the sum of max(0, margin - x[target] + x[class])^p over the other
-- classes, divided by the number of classes, times `weight` (classes) of the target. x is (n,
-- classes), target (n).
function F.multi_margin_loss(x, target, opts)
  local o = options.check("multi_margin_loss", opts,
                          {margin = 1, p = 1, weight = options.none, reduction = "mean"})
  options.tensors("multi_margin_loss", "x", x, "target", target)
  if x:dim() ~= target:dim() + 1 or x:numel() ~= target:numel() * x:size(-1) then
    fail("multi_margin_loss: x of shape (n, classes) takes a target (n), got %s and %s",
         tostring(x.shape), tostring(target.shape))
  end
  local at = target:unsqueeze(-1)
  local over = core.relu(o.margin - x:gather(-1, at) + x) ^ o.p
  if o.weight then over = over * o.weight:take(at) end
  local others = core.one_hot(target, x:size(-1), {dtype = "bool"}):logical_not()
  return reduce("multi_margin_loss", core.where(others, over, 0):mean(-1), o.reduction)
end

--- Multi-label hinge loss: the sum of max(0, 1 - x[label] + x[other]) over all labels and all other
-- classes, divided by the number of classes. x is (n, classes) or (classes).
-- @param target labels, from 1, in x's shape; a 0 ends the labels of a row
function F.multilabel_margin_loss(x, target, opts)
  local where = "multilabel_margin_loss"
  local o = options.check(where, opts, {reduction = "mean"})
  options.tensors(where, "x", x, "target", target)
  if tostring(x.shape) ~= tostring(target.shape) or x:dim() < 1 or x:dim() > 2 then
    fail("%s: x and target must be (n, classes) or (classes) both, got %s and %s", where,
         tostring(x.shape), tostring(target.shape))
  end
  local real = target:gt(0):to("i64"):cumprod(-1)
  local at = target:clamp(1)
  local labels = core.zeros_like(target):scatter_add(-1, at, real):gt(0)
  local over = core.relu(1 - x:gather(-1, at):unsqueeze(-1) + x:unsqueeze(-2))
  local counts = real:gt(0):unsqueeze(-1) & labels:logical_not():unsqueeze(-2)
  return reduce(where, core.where(counts, over, 0):sum{dims = {-2, -1}} / x:size(-1), o.reduction)
end

--- The mean over classes of the cross-entropy between sigmoid(x) and target, both (n, classes),
-- times `weight` (classes).
function F.multilabel_soft_margin_loss(x, target, opts)
  local o = options.check("multilabel_soft_margin_loss", opts,
                          {weight = options.none, reduction = "mean"})
  local each = core.bce_with_logits(x, target, o.weight, nil, {reduction = "none"})
  return reduce("multilabel_soft_margin_loss", each:mean(-1), o.reduction)
end

--- Connectionist temporal classification (Graves and others, 2006): the negative log-likelihood of
-- the labels, summed over all their alignments with the input, with blanks in between.
-- @param log_probs log-probabilities (time, n, classes), as log_softmax gives them
-- @param targets labels (n, most labels), from 1; elements beyond a row's length are not used
-- @param input_lengths, target_lengths (n): tensors or lists
-- @param opts {blank = 1, reduction = "mean", zero_infinity = false}: `blank` is the class for no
--   label; "mean" divides each loss by its number of labels first; `zero_infinity` sets infinite
--   losses, of labels too long for the input, and their gradients to 0
function F.ctc_loss(log_probs, targets, input_lengths, target_lengths, opts)
  return require("flare.nn.ctc").loss(log_probs, targets, input_lengths, target_lengths, opts)
end

--- A differentiable sample from the categorical distribution with these logits (Gumbel-softmax,
-- arXiv:1611.01144): probabilities that come near 0 and 1 as the temperature `tau` falls. With
-- `hard` it is one-hot, with the gradient of the probabilities (straight-through).
function F.gumbel_softmax(logits, opts)
  local o = options.check("gumbel_softmax", opts, {tau = 1, hard = false, dim = -1})
  options.tensor("gumbel_softmax", "logits", logits)
  local noise = core.empty_like(logits:detach()):exponential_():log()
  local soft = core.softmax((logits - noise) / o.tau, o.dim)
  if not o.hard then return soft end
  local top = soft:detach():argmax{dim = o.dim, keepdim = true}
  local hard = core.zeros_like(soft:detach()):scatter(o.dim, top, core.ones_like(soft:detach()))
  return hard - soft:detach() + soft
end

--- x where it is above `threshold`, `value` elsewhere.
function F.threshold(x, opts)
  local o = options.check("threshold", opts, {threshold = 0, value = 0})
  options.tensor("threshold", "x", x)
  return core.where(x:gt(o.threshold), x, o.value)
end

--- softmax of -x.
function F.softmin(x, opts)
  local o = options.check("softmin", type(opts) == "number" and {dim = opts} or opts, {dim = -1})
  options.tensor("softmin", "x", x)
  return core.softmax(-x, o.dim)
end

--- Randomized leaky ReLU (arXiv:1505.00853): x where it is positive, elsewhere x times a slope. In
-- training, each element's slope is drawn uniformly from lower to upper; in evaluation it is their
-- mean.
function F.rrelu(x, opts)
  local o = options.check("rrelu", opts, {lower = 1 / 8, upper = 1 / 3, training = false})
  options.tensor("rrelu", "x", x)
  if not o.training then return core.leaky_relu(x, (o.lower + o.upper) / 2) end
  return core.where(x:gt(0), x, x * core.empty_like(x:detach()):uniform_(o.lower, o.upper))
end

-- Alpha dropout (arXiv:1706.02515): dropped elements take the limit of selu for x -> -inf, and an
-- affine map restores mean 0 and variance 1.
local function alpha_dropout(where, x, shape, opts)
  if type(opts) == "number" then opts = {p = opts} end
  local o = options.check(where, opts, {p = 0.5, training = true})
  if o.p < 0 or o.p >= 1 then fail("%s: p must be a number in [0, 1), got %g", where, o.p) end
  if not o.training or o.p == 0 then return x end
  local floor = -1.7580993408473766
  local scale = ((1 - o.p) * (1 + o.p * floor ^ 2)) ^ -0.5
  local kept = core.full(shape, 1 - o.p, {dtype = x.dtype, device = x.device}):bernoulli():gt(0)
  return core.where(kept, x, floor) * scale - scale * floor * o.p
end

--- Alpha dropout (arXiv:1706.02515): drops elements with probability p and keeps mean and variance
-- of an input with mean 0 and variance 1, as selu gives it.
-- @param opts {p = 0.5, training = true}
function F.alpha_dropout(x, opts)
  options.tensor("alpha_dropout", "x", x)
  return alpha_dropout("alpha_dropout", x, x.shape, opts)
end

--- alpha_dropout of whole channels of (batch, channels, ...).
-- @param opts {p = 0.5, training = true}
function F.feature_alpha_dropout(x, opts)
  if options.tensor("feature_alpha_dropout", "x", x):dim() < 2 then
    fail("feature_alpha_dropout: the input must be (batch, channels, ...), got %s",
         tostring(x.shape))
  end
  local shape = {x:size(1), x:size(2)}
  for d = 3, x:dim() do shape[d] = 1 end
  return alpha_dropout("feature_alpha_dropout", x, shape, opts)
end

--- Instance normalization: normalizes each channel of each sample of x (batch, channels, ...) by
-- its own mean and variance.
-- @param opts {weight =, bias =, eps = 1e-5}, weight and bias (channels)
function F.instance_norm(x, opts)
  local where, none = "instance_norm", options.none
  local o = options.check(where, opts, {weight = none, bias = none, eps = 1e-5})
  if options.tensor(where, "x", x):dim() < 3 then
    fail("%s: the input must be (batch, channels, size...), got %s", where, tostring(x.shape))
  end
  return (core.group_norm(x, o.weight, o.bias, x:size(2), o.eps))
end

--- Local response normalization: x / (k + alpha * m)^beta, where m is the mean square over `size`
-- neighbouring channels. x is (batch, channels, ...).
function F.local_response_norm(x, size, opts)
  local where = "local_response_norm"
  local o = options.check(where, opts, {alpha = 1e-4, beta = 0.75, k = 1})
  options.count(where, "size", size)
  options.tensor(where, "x", x)
  if x:dim() < 2 then
    fail("%s: the input must be (batch, channels, ...), got %s", where, tostring(x.shape))
  end
  local space = 1
  for d = 3, x:dim() do space = space * x:size(d) end
  local squares = x:square():reshape(x:size(1), 1, x:size(2), space)
  local means = core.avg_pool(squares:pad{0, 0, size // 2, (size - 1) // 2}, {size, 1},
                              {stride = 1})
  return x / (means:view(x.shape) * o.alpha + o.k) ^ o.beta
end

--- Gated linear unit (arXiv:1612.08083): the first half of dim times the sigmoid of the second
-- half.
function F.glu(x, opts)
  local o = options.check("glu", type(opts) == "number" and {dim = opts} or opts, {dim = -1})
  options.tensor("glu", "x", x)
  if x:size(o.dim) % 2 == 1 then
    fail("glu: dim %d has %d elements, which cannot be halved", o.dim, x:size(o.dim))
  end
  local halves = x:chunk(2, o.dim)
  return halves[1] * halves[2]:sigmoid()
end

--- x where it is positive, weight * x elsewhere; weight has one element or one for each
-- element of dim 2.
function F.prelu(x, weight)
  options.tensors("prelu", "x", x, "weight", weight)
  if weight:numel() > 1 then
    local shape = {}
    for i = 1, x:dim() do shape[i] = i == 2 and weight:numel() or 1 end
    weight = weight:view(shape)
  end
  return core.relu(x) - weight * core.relu(-x)
end

return setmetatable(F, {
  __name = "flare.nn.functional",
  __index = function(self, name)
    local value = core[name]
    if value == nil then
      local all = {}
      for key in pairs(core) do all[key] = true end
      for key in pairs(self) do all[key] = true end
      fail("there is no nn.functional.%s%s", tostring(name), options.hint(tostring(name), all))
    end
    rawset(self, name, value)
    return value
  end,
})
