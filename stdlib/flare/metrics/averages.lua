--- Metrics that are averages: of a loss, of errors, of log-probabilities.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

local M = {}

-- Two tensors of one shape as f64.
local function pair(self, x, y)
  options.alike(self.where .. ":update", "predictions", x, "targets", y)
  return x:detach():to "f64", y:detach():to "f64":to(x.device)
end

local function mean_of(states)
  return (states.sum / states.count):item()
end

--- metrics.Mean(): the mean of numbers, such as the losses of batches.
M.Mean = class("Mean", Metric)
M.Mean.sums, M.Mean.value = {"sum", "count"}, function(_, states) return mean_of(states) end

--- Adds a batch.
-- @param x a number, or a tensor, whose elements all count
-- @param weight how much each counts, by default 1: for a loss that is a mean, the number of rows;
-- or a tensor of the shape of x
function M.Mean:update(x, weight)
  x = core.is_tensor(x) and x:detach() or core.tensor(x, {dtype = "f64"})
  weight = weight or 1
  if core.is_tensor(weight) then
    local values, weights = pair(self, x, weight)
    self:add("sum", (values * weights):sum())
    return self:add("count", weights:sum())
  end
  if type(weight) ~= "number" or weight < 0 then
    fail("metrics.Mean:update: the weight must be a number of at least 0, got %s",
         tostring(weight))
  end
  self:add("sum", x:to "f64":sum() * weight)
  self:add("count", core.tensor(x:numel() * weight, {dtype = "f64"}))
end

--- metrics.MeanSquaredError{root = false}: the mean of (prediction - target)^2 over all elements,
-- or its root.
M.MeanSquaredError = class("MeanSquaredError", Metric)
M.MeanSquaredError.defaults, M.MeanSquaredError.sums = {root = false}, {"sum", "count"}

--- Adds a batch.
-- @param predictions a tensor
-- @param targets a tensor of the same shape
function M.MeanSquaredError:update(predictions, targets)
  local x, y = pair(self, predictions, targets)
  self:add("sum", (x - y):square():sum())
  self:add("count", core.tensor(x:numel(), {dtype = "f64"}))
end

function M.MeanSquaredError:value(states)
  local mean = mean_of(states)
  return self.options.root and mean ^ 0.5 or mean
end

--- metrics.MeanAbsoluteError(): the mean of |prediction - target| over all elements.
M.MeanAbsoluteError = class("MeanAbsoluteError", Metric)
M.MeanAbsoluteError.sums = {"sum", "count"}
M.MeanAbsoluteError.value = M.Mean.value

--- Adds a batch.
-- @param predictions a tensor
-- @param targets a tensor of the same shape
function M.MeanAbsoluteError:update(predictions, targets)
  local x, y = pair(self, predictions, targets)
  self:add("sum", (x - y):abs():sum())
  self:add("count", core.tensor(x:numel(), {dtype = "f64"}))
end

--- metrics.R2(): the coefficient of determination, 1 - residual / total sum of squares; for rows of
-- several targets, the mean over the columns. A column of equal targets counts 1 if all predictions
-- are right, else 0; a single row has no figure, NaN.
M.R2 = class("R2", Metric)
M.R2.rows = {"moments"}

-- Count, mean, sum of squares about the mean, and residual of two sets together (Chan and others,
-- 1979). The means are kept, since sums of squares would lose what a large mean has in common.
local function merge(a, b)
  local n = a[1] + b[1]
  local apart, share = b[2] - a[2], (b[1] / n)
  return {n, a[2] + apart * share, a[3] + b[3] + apart:square() * a[1] * share, a[4] + b[4]}
end

--- Adds a batch.
-- @param predictions (N) or (N, D)
-- @param targets a tensor of the same shape
function M.R2:update(predictions, targets)
  local x, y = pair(self, predictions, targets)
  if #x == 0 then return end
  if x:dim() == 1 then x, y = x:unsqueeze(2), y:unsqueeze(2) end
  if x:dim() ~= 2 then
    fail("metrics.R2:update: (N) or (N, D) is expected, got %s", tostring(predictions.shape))
  end
  local _ <close> = core.no_grad()
  local mean = y[1] + (y - y[1]):mean(1) -- exact where all are equal
  local new = {core.full_like(mean, #y), mean, (y - mean):square():sum{dims = {1}},
               (y - x):square():sum{dims = {1}}}
  local old = self.states.moments
  if old then new = merge(old[1]:squeeze(1):unbind(1), new) end
  self:replace("moments", core.stack(new, 1):unsqueeze(1))
end

function M.R2:value(states)
  local all = states.moments
  local total = all:select(1, 1):unbind(1)
  for rank = 2, #all do total = merge(total, all:select(1, rank):unbind(1)) end
  if total[1][1]:item() < 2 then return 0 / 0 end -- one row has no spread
  local sum, columns = 0, #total[1]
  for k = 1, columns do
    local spread, rest = total[3][k]:item(), total[4][k]:item()
    if spread ~= 0 then sum = sum + 1 - rest / spread
    elseif rest ~= rest then sum = rest
    elseif rest == 0 then sum = sum + 1 end
  end
  return sum / columns
end

--- metrics.Perplexity{ignore = nil, base = 1}: exp of the mean negative log-probability of tokens.
-- `ignore`: targets that do not count; `base`: the first token's number, 0 for token ids.
M.Perplexity = class("Perplexity", Metric)
M.Perplexity.defaults, M.Perplexity.sums = {ignore = options.none, base = 1}, {"sum", "count"}

--- Adds a batch.
-- @param logits (..., V)
-- @param targets (...) numbers of tokens
function M.Perplexity:update(logits, targets)
  options.tensors("metrics.Perplexity:update", "logits", logits, "targets", targets)
  local rows = logits:reshape(-1, logits:size(-1)):detach()
  targets = targets:reshape(-1)
  if #rows ~= #targets then
    fail("metrics.Perplexity:update: logits %s have %d rows, for %d targets",
         tostring(logits.shape), #rows, #targets)
  end
  local counts = self.options.ignore and targets:ne(self.options.ignore) or nil
  if counts then rows, targets = rows[counts], targets[counts] end
  if #targets == 0 then return end
  local own = targets:to "i64":unsqueeze(2)
  local logp = rows:to(rows.dtype == "f64" and "f64" or "f32"):log_softmax(2)
    :gather(2, own, {base = self.options.base})
  self:add("sum", -logp:to "f64":sum())
  self:add("count", core.tensor(#targets, {dtype = "f64"}))
end

function M.Perplexity:value(states) return math.exp(mean_of(states)) end

return M
