--- The confusion matrix, and figures that follow from it.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local labels = require "flare.metrics.labels"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"

local M = {}

local Counts = class("Counts", Metric)
Counts.sums = {"matrix", "binary", "labels"}

local choices = {average = {macro = true, micro = true, weighted = true, binary = true,
                            none = true},
                 normalize = {none = true, ["true"] = true, predicted = true, all = true}}

function Counts:prepare(o)
  if o.classes then options.count(self.where, "classes", o.classes, 2) end
  for key, known in pairs(choices) do
    if o[key] and not known[o[key]] then
      fail("%s: unknown %s '%s'%s", self.where, key, tostring(o[key]), options.hint(o[key], known))
    end
  end
end

-- Adds how often each of C labels was right, predicted and true.
local function add_labels(self, scores, targets)
  local o, where = self.options, self.where
  options.alike(where .. ":update", "scores", scores, "targets", targets)
  if scores:dim() < 2 then
    fail("%s:update: multilabel needs (N, C), got %s", where, tostring(scores.shape))
  end
  local predicted, wanted = labels.predicted(where, scores, targets, o.threshold)
  local own = o.ignore and wanted:ne(o.ignore):to "i64"
  if own then predicted, wanted = predicted * own, wanted * own end
  labels.check(where, "predictions", predicted, 0, 2)
  labels.check(where, "targets", wanted, 0, 2)
  local function count(x) return x:transpose(1, 2):reshape(x:size(2), -1):sum(2) end
  self:add("labels", core.stack({count(predicted * wanted), count(predicted), count(wanted)}, 1))
end

--- Adds a batch.
-- @param scores (N, C, ...) of classes, (N, ...) of two classes, or predicted labels (N, ...);
-- with `multilabel`, (N, C, ...) of C labels
-- @param targets (N, ...): labels from 1, or 0 and 1 where there are two classes; with
-- `multilabel`, (N, C, ...) of 0 and 1
function Counts:update(scores, targets)
  local _ <close> = core.no_grad()
  local o, where = self.options, self.where
  if o.multilabel then return add_labels(self, scores, targets) end
  local predicted, wanted, n = labels.predicted(where, scores, targets, o.threshold)
  local first = labels.binary(scores) and predicted:dim() == scores:dim() and 0 or 1
  n = n or o.classes
  if not n then
    fail("%s:update: predicted labels do not say how many classes there are; pass classes = n",
         where)
  elseif o.classes and o.classes ~= n then
    fail("%s:update: scores of %d classes, but classes = %d", where, n, o.classes)
  end
  predicted, wanted = predicted:reshape(-1), wanted:reshape(-1)
  if o.ignore then
    local counts = wanted:ne(o.ignore)
    predicted, wanted = predicted[counts], wanted[counts]
  end
  labels.check(where, "predictions", predicted, first, n)
  labels.check(where, "targets", wanted, first, n)
  self:add("binary", core.tensor(1 - first, {dtype = "f64"}))
  local pairs_of = (wanted - first) * n + (predicted - first) + 1
  self:add("matrix", pairs_of:bincount{minlength = n * n}:view(n, n))
end

--- metrics.ConfusionMatrix{classes = n, normalize = "none", threshold = 0.5, ignore = nil}
-- How often each class (rows) was predicted as each (columns), a tensor; with `normalize`, divided
-- by the sums of rows ("true"), of columns ("predicted") or by the sum of "all". `classes` is
-- needed for predicted labels only.
M.ConfusionMatrix = class("ConfusionMatrix", Counts)
M.ConfusionMatrix.defaults = {classes = options.none, normalize = "none", threshold = 0.5,
                              ignore = options.none}

function M.ConfusionMatrix:value(states)
  local how, x = self.options.normalize, states.matrix
  if how == "none" then return x:to "i64" end
  local sum = how == "all" and x:sum()
    or x:sum{dims = {how == "true" and 2 or 1}, keepdim = true}
  return core.where(sum:eq(0), 0, x / sum)
end

-- Hits, predicted and true counts of classes or labels.
local function counts_of(states)
  if states.labels then return table.unpack(states.labels:unbind(1)) end
  local x = states.matrix
  return x:diagonal(), x:sum{dims = {1}}, x:sum{dims = {2}}
end

-- A class of a figure of hits, predicted and true counts.
local function define(name, options_text, text, extra, figure)
  local cls = class(name, Counts)
  cls.about = {("metrics.%s{%saverage = nil, classes = n, multilabel = false, threshold = 0.5, "
    .. "ignore = nil}"):format(name, options_text),
    text .. " `average`: \"macro\", the mean over the classes that occur, the default; "
    .. "\"weighted\" by their counts; \"micro\", over all predictions; \"binary\", of the second "
    .. "of two classes, the default for scores of two classes; \"none\", a tensor. `multilabel`: "
    .. "a row may have several of C labels; \"macro\" is then the mean over all."}
  cls.defaults = {average = options.none, classes = options.none, threshold = 0.5,
                  ignore = options.none, multilabel = false}
  for key, value in pairs(extra) do cls.defaults[key] = value end

  function cls:value(states)
    local hits, predicted, wanted = counts_of(states)
    local binary = states.binary and states.binary:item() > 0
    local average = self.options.average or binary and "binary" or "macro"
    if average == "micro" then
      hits, predicted, wanted = hits:sum(), predicted:sum(), wanted:sum()
    end
    local values = figure(hits, predicted, wanted, self.options)
    values = core.where(values:isnan(), 0, values) -- 0 / 0
    if average == "micro" then return values:item() end
    if average == "binary" then
      if #hits ~= 2 or states.labels then
        fail("%s: average = 'binary' needs two classes, got %d%s", self.where, #hits,
             states.labels and " labels" or "")
      end
      return values[2]:item()
    end
    local occurs = (predicted + wanted):gt(0)
    if average ~= "none" and not states.labels then values = core.where(occurs, values, 0 / 0) end
    return labels.average(average, values, wanted)
  end
  M[name] = cls
end

define("Precision", "", "The fraction of the predictions of a class that are right.", {},
       function(hits, predicted) return hits / predicted end)

define("Recall", "", "The fraction of the members of a class that are found.", {},
       function(hits, _, wanted) return hits / wanted end)

define("F1", "beta = 1, ", "The harmonic mean of precision and recall; with `beta`, recall counts "
       .. "beta^2 times as much as precision.", {beta = 1},
       function(hits, predicted, wanted, o)
         local square = o.beta ^ 2
         return (hits * (1 + square)) / (wanted * square + predicted)
       end)

define("Jaccard", "", "Intersection over union of the predicted and the true members of a class: "
       .. "the mean IoU of segmentations.", {},
       function(hits, predicted, wanted) return hits / (predicted + wanted - hits) end)

return M
