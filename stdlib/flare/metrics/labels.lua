--- What scores and targets of classes mean, by their shapes and dtypes.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local floats = {f64 = true, f32 = true, f16 = true, bf16 = true}

--- The number of classes of scores (N, C, ...) for targets (N, ...); nil where both have one shape.
function M.classes(where, scores, targets)
  where = where .. ":update"
  options.tensors(where, "scores", scores, "targets", targets)
  local own, other = scores.shape, targets.shape
  if tostring(own) == tostring(other) then return nil end
  local fits = #own == #other + 1 and own[1] == other[1]
  for k = 2, #other do fits = fits and own[k + 1] == other[k] end
  if not fits then
    fail("%s: scores (N, C, ...) or predictions in the shape of the targets are expected, got %s "
      .. "for targets %s", where, tostring(own), tostring(other))
  end
  return own[2]
end

--- Whether predictions in the shape of the targets are scores of two classes, 0 and 1.
function M.binary(scores) return floats[scores.dtype] or scores.dtype == "bool" end

--- Predicted and true labels: positions of classes, or 0 and 1.
-- @param threshold above which a score means 1
-- @return two tensors of i64; the number of classes, nil for predicted labels
function M.predicted(where, scores, targets, threshold)
  local n = M.classes(where, scores, targets)
  targets = targets:to "i64":to(scores.device)
  if n then return scores:argmax(2), targets, n end
  if not M.binary(scores) then return scores:to "i64", targets end
  if scores.dtype ~= "bool" then scores = scores:gt(threshold) end
  return scores:to "i64", targets, 2
end

--- Raises an error if a label is not in [first, first + n - 1].
function M.check(where, name, x, first, n)
  if x:numel() == 0 then return end
  local least, most = x:amin():item(), x:amax():item()
  if least < first or most > first + n - 1 then
    fail("%s:update: %s must be labels from %d to %d, got %d", where, name, first, first + n - 1,
         least < first and least or most)
  end
end

--- The mean of figures of classes.
-- @param average "macro": of those that are numbers; "weighted": by `weights`; "none": all
-- @param values, weights tensors of one element for each class
function M.average(average, values, weights)
  if average == "none" then return values end
  local known = values:isnan():logical_not()
  values = core.where(known, values, 0)
  weights = average == "weighted" and weights or core.ones_like(values)
  weights = weights * known:to "f64"
  return ((values * weights):sum() / weights:sum()):item()
end

return M
