--- Metrics of the order that scores give: areas under curves, exact, from all scores.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local labels = require "flare.metrics.labels"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

local M = {}

local Ranking = class("Ranking", Metric)
Ranking.defaults = {average = "macro"}
Ranking.rows = {"scores", "targets"}

function Ranking:prepare(o)
  local known = {macro = true, micro = true, weighted = true, none = true}
  if not known[o.average] then
    fail("%s: unknown average '%s'%s", self.where, o.average, options.hint(o.average, known))
  end
end

--- Adds a batch.
-- @param scores (N) of two classes, or (N, C)
-- @param targets (N): 0 and 1 for (N), labels from 1 for (N, C); or (N, C) of 0 and 1
function Ranking:update(scores, targets)
  local n = labels.classes(self.where, scores, targets)
  if scores:dim() > 2 then
    fail("%s:update: scores (N) or (N, C) are expected, got %s", self.where,
         tostring(scores.shape))
  end
  if n then
    labels.check(self.where, "targets", targets, 1, n)
    targets = targets:to "i64":one_hot(n)
  else
    labels.check(self.where, "targets", targets:to "i64", 0, 2)
  end
  if scores:dim() == 1 then scores, targets = scores:unsqueeze(2), targets:unsqueeze(2) end
  self:keep("scores", scores)
  self:keep("targets", targets:to "i32":to(scores.device))
end

function Ranking:value(states)
  if states.scores:isnan():any():item() then fail("%s: a score is NaN", self.where) end
  local values, weights, scores, targets = {}, {}, states.scores, states.targets
  if self.options.average == "micro" then
    scores, targets = scores:reshape(-1, 1), targets:reshape(-1, 1)
  end
  for k = 1, scores:size(2) do
    local own = targets:select(2, k)
    local _, inverse, counts = scores:select(2, k):unique()
    local hits = inverse:bincount{weight = own, minlength = #counts}
    values[k], weights[k] = self.area(hits, counts:to "f64"), own:sum():item()
  end
  if #values == 1 then return values[1] end
  return labels.average(self.options.average, core.tensor(values, {dtype = "f64"}),
                        core.tensor(weights, {dtype = "f64"}))
end

local classes_text = "Of (N, C) scores, each class against the others; `average`: the \"macro\" "
  .. "mean over the classes that have both, \"weighted\" by their counts, \"micro\", of all scores "
  .. "together, or \"none\", a tensor."

-- The area by the sum of the positives' ranks (Mann and Whitney); equal scores share their ranks.
-- @param hits how many positives have each score, in ascending order
-- @param counts how many rows have it
M.AUROC = class("AUROC", Ranking)
M.AUROC.about = {'metrics.AUROC{average = "macro"}', "The area under the curve of true positive "
  .. "over false positive rate: the probability that a positive has a higher score than a "
  .. "negative. " .. classes_text}
function M.AUROC.area(hits, counts)
  local positives = hits:sum():item()
  local negatives = counts:sum():item() - positives
  local ranks = counts:cumsum(1) - (counts - 1) / 2
  local sum = (ranks * hits):sum():item()
  return (sum - positives * (positives + 1) / 2) / (positives * negatives)
end

M.AveragePrecision = class("AveragePrecision", Ranking)
M.AveragePrecision.about = {'metrics.AveragePrecision{average = "macro"}', "The sum over all "
  .. "thresholds of precision times the gain in recall: the area under the curve of precision "
  .. "over recall. " .. classes_text}
function M.AveragePrecision.area(hits, counts)
  hits, counts = hits:flip{1}, counts:flip{1}
  local precision = hits:cumsum(1) / counts:cumsum(1)
  return (precision * hits):sum():item() / hits:sum():item()
end

return M
