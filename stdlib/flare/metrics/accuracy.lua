--- The fraction of predictions that are right.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local labels = require "flare.metrics.labels"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

--- metrics.Accuracy{top_k = 1, threshold = 0.5, ignore = nil, subset = false}
-- Of scores (N, C) with targets (N, C), several labels of a row, each element counts; with
-- `subset`, a row is right if all its elements are. With top_k above 1, a prediction is right if
-- the label is among the top_k largest scores.
-- `ignore`: a label that does not count.
local Accuracy = class("Accuracy", Metric)
Accuracy.defaults = {top_k = 1, threshold = 0.5, ignore = options.none, subset = false}
Accuracy.sums = {"right", "count"}

function Accuracy:prepare(o)
  options.count(self.where, "top_k", o.top_k)
  if o.subset and (o.ignore or o.top_k > 1) then
    fail("%s: subset goes with neither ignore nor top_k", self.where)
  end
end

--- Adds a batch.
-- @param scores (N, C, ...) of classes, (N, ...) of two classes, or predicted labels (N, ...)
-- @param targets (N, ...): labels from 1, or 0 and 1 where there are two classes
function Accuracy:update(scores, targets)
  local _ <close> = core.no_grad()
  local o = self.options
  local right
  if o.top_k > 1 then
    local n = labels.classes(self.where, scores, targets)
    if not n or n < o.top_k then
      fail("%s:update: top_k = %d needs scores of at least as many classes, got %s", self.where,
           o.top_k, tostring(scores.shape))
    end
    local _, places = scores:topk(o.top_k, {dim = 2})
    right = places:eq(targets:to "i64":unsqueeze(2)):any(2)
  else
    local predicted, wanted = labels.predicted(self.where, scores, targets, o.threshold)
    right = predicted:eq(wanted)
    while o.subset and right:dim() > 1 do right = right:all(2) end
  end
  local count = core.tensor(right:numel(), {dtype = "f64"})
  if o.ignore then
    local counts = targets:ne(o.ignore)
    right, count = right:logical_and(counts), counts:sum()
  end
  self:add("right", right:sum())
  self:add("count", count)
end

function Accuracy:value(states) return (states.right / states.count):item() end

return Accuracy
