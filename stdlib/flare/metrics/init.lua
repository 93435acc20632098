--- flare.metrics: figures such as accuracy, to which batches are added, over all ranks of a job.
--
--     local accuracy = flare.metrics.Accuracy()
--     for x, labels in loader:epoch() do accuracy:update(model(x), labels) end
--     print(accuracy:compute())
require "flare"

local files = {
  Metric = "metric", Collection = "collection", Mean = "averages", Perplexity = "averages",
  MeanSquaredError = "averages", MeanAbsoluteError = "averages", R2 = "averages",
  Accuracy = "accuracy", ConfusionMatrix = "confusion", Precision = "confusion",
  Recall = "confusion", F1 = "confusion", Jaccard = "confusion", AUROC = "ranking",
  AveragePrecision = "ranking", MeanAveragePrecision = "detection", BLEU = "bleu",
  RougeL = "sequences", EditDistance = "sequences", WordErrorRate = "sequences",
  CharacterErrorRate = "sequences", edit_distance = "sequences",
}

for name, file in next, files do files[name] = "flare.metrics." .. file end

return require "flare.lazy"("metrics", {}, files)
