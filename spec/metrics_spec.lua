-- Metrics beside other libraries' (spec/support/metrics_data.py), in batches and over ranks.
local flare = require "flare"
local data = require "spec.support.metrics_data"
local message = require "spec.support.expect".message
local launch = require "spec.support.launch"
local tree = require "spec.support.tree"
local metrics = flare.metrics

local function near(expected, value, tolerance)
  if flare.is_tensor(value) then value = value:totable() end
  if type(expected) == "table" then
    for key, inner in pairs(expected) do near(inner, value[key], tolerance) end
  else
    assert.near(expected, value, tolerance or 1e-12)
  end
end

-- The figure over rows that are added in batches of 1, 2, 3 ... rows.
local function batched(metric, x, y)
  local first, size = 1, 1
  while first <= #x do
    local n = math.min(size, #x - first + 1)
    metric:update(x:narrow(1, first, n), y:narrow(1, first, n))
    first, size = first + n, size + 1
  end
  return metric:compute()
end

local function both(metric, expected, x, y)
  metric:update(x, y)
  near(expected, metric:compute())
  near(expected, batched(metric:reset(), x, y))
end

local c = data.classes
local scores, labels = flare.tensor(c.scores, {dtype = "f64"}), flare.tensor(c.labels,
                                                                          {dtype = "i64"})

describe("metrics of classes", function()
  it("are scikit-learn's", function()
    both(metrics.Accuracy(), c.accuracy, scores, labels)
    both(metrics.Accuracy{top_k = 2}, c.top2, scores, labels)
    for _, average in ipairs {"macro", "micro", "weighted"} do
      for name, value in pairs(c[average]) do
        local area = name == "AUROC" or name == "AveragePrecision"
        local cls = name == "F2" and "F1" or name
        local o = {average = average, beta = name == "F2" and 2 or nil}
        both(metrics[cls](o), value, area and scores:narrow(2, 1, 4) or scores, labels)
      end
    end
    both(metrics.F1{average = "none"}, c.per_class, scores, labels)
    both(metrics.ConfusionMatrix(), c.confusion, scores, labels)
    for how, key in pairs {["true"] = "true", predicted = "pred", all = "all"} do
      both(metrics.ConfusionMatrix{normalize = how}, c["confusion_" .. key], scores, labels)
    end
  end)

  it("take labels, images and labels that do not count", function()
    both(metrics.F1{average = "macro", classes = 5}, c.macro.F1, scores:argmax(2), labels)
    both(metrics.Accuracy(), c.accuracy, scores:argmax(2), labels)
    local wide, own = scores:view(9, 10, 5):transpose(2, 3), labels:view(9, 10)
    both(metrics.Accuracy(), c.accuracy, wide, own)
    both(metrics.Accuracy{top_k = 2}, c.top2, wide, own)
    both(metrics.Jaccard(), c.macro.Jaccard, wide, own)
    local more = flare.cat({labels, flare.full({3}, 7, {dtype = "i64"})}, 1)
    local with = flare.cat({scores, scores:narrow(1, 1, 3)}, 1)
    both(metrics.Accuracy{ignore = 7}, c.accuracy, with, more)
    both(metrics.F1{average = "weighted", ignore = 7}, c.weighted.F1, with, more)
  end)

  it("of two classes take scores, also equal ones, and truth values", function()
    local b = data.binary
    local x, y = flare.tensor(b.scores), flare.tensor(b.labels)
    for _, name in ipairs {"Precision", "Recall", "F1", "Jaccard", "AUROC", "AveragePrecision"} do
      both(metrics[name](), b[name], x, y)
      both(metrics[name](), b[name], x, y:eq(1))
    end
    both(metrics.Accuracy(), b.accuracy, x, y)
    both(metrics.Precision(), b.Precision, x:gt(0.5), y)
    local two = flare.stack({x, 1 - x}, 2)
    both(metrics.AUROC{average = "none"}, {b.AUROC, b.AUROC}, two, flare.stack({y, 1 - y}, 2))
  end)

  it("of several labels are scikit-learn's", function()
    local l = data.labels
    local x, y = flare.tensor(l.scores), flare.tensor(l.labels, {dtype = "i64"})
    for _, average in ipairs {"macro", "micro", "weighted"} do
      for name, value in pairs(l[average]) do
        local cls = name == "F2" and "F1" or name
        local o = {average = average, beta = name == "F2" and 2 or nil, multilabel = true}
        both(metrics[cls](o), value, x, y)
        both(metrics[cls](o), value, x:gt(0.5), y:eq(1))
      end
    end
    both(metrics.F1{multilabel = true}, l.macro.F1, x, y)
    both(metrics.F1{multilabel = true, average = "none"}, l.per_label, x, y)
    local wide, own = x:view(10, 4, 4):transpose(2, 3), y:view(10, 4, 4):transpose(2, 3)
    both(metrics.F1{multilabel = true}, l.macro.F1, wide, own)
    both(metrics.Accuracy(), l.accuracy, x, y)
    both(metrics.Accuracy{subset = true}, l.subset, x, y)
    for name, value in pairs(l.areas) do both(metrics[name]{average = "micro"}, value, x, y) end
    local more = flare.cat({y, flare.full({2, 4}, 9, {dtype = "i64"})}, 1)
    both(metrics.F1{multilabel = true, ignore = 9}, l.macro.F1,
         flare.cat({x, flare.ones(2, 4)}, 1), more)
    assert.match("multilabel needs %(N, C%), got %(40%)", message(function()
      metrics.F1{multilabel = true}:update(x:select(2, 1), y:select(2, 1))
    end))
    assert.match("average = 'binary' needs two classes, got 4 labels", message(function()
      local f1 = metrics.F1{multilabel = true, average = "binary"}
      f1:update(x, y)
      f1:compute()
    end))
  end)

  it("take batches without rows", function()
    local none = {scores:narrow(1, 1, 0), labels:narrow(1, 1, 0)}
    for _, name in ipairs {"Accuracy", "F1", "Jaccard", "AUROC", "AveragePrecision"} do
      local metric, plain = metrics[name](), metrics[name]()
      metric:update(table.unpack(none))
      metric:update(scores, labels)
      metric:update(table.unpack(none))
      plain:update(scores, labels)
      assert.equal(plain:compute(), metric:compute())
    end
  end)

  it("have a perplexity", function()
    local wide = flare.stack({scores:narrow(2, 1, 4), scores:narrow(2, 1, 4)}, 2)
    local twice = flare.stack({labels, labels}, 2)
    both(metrics.Perplexity(), c.perplexity, wide, twice)
    both(metrics.Perplexity{base = 0}, c.perplexity, wide, twice - 1)
    twice[{{}, 2}] = 99
    both(metrics.Perplexity{ignore = 99}, c.perplexity, wide, twice)
  end)

  it("refuse what is no label", function()
    assert.match("Accuracy:update: scores %(N, C, ...%) or predictions in the shape of the targets "
      .. "are expected, got %(90, 5%) for targets %(89%)",
      message(function() metrics.Accuracy():update(scores, labels:narrow(1, 1, 89)) end))
    assert.match("F1:update: targets must be labels from 1 to 5, got 0",
      message(function() metrics.F1():update(scores, labels - 1) end))
    assert.match("pass classes = n",
      message(function() metrics.F1():update(labels, labels) end))
    assert.match("unknown average 'macros' %(did you mean 'macro'%?%)",
      message(function() metrics.F1{average = "macros"} end))
    assert.match("AUROC: a score is NaN", message(function()
      local auroc = metrics.AUROC()
      auroc:update(flare.tensor{0 / 0, 1}, flare.tensor{0, 1})
      auroc:compute()
    end))
  end)
end)

describe("metrics of numbers", function()
  local r = data.regression
  local x, y = flare.tensor(r.x, {dtype = "f64"}), flare.tensor(r.y, {dtype = "f64"})

  it("are scikit-learn's", function()
    both(metrics.MeanSquaredError(), r.mse, x, y)
    both(metrics.MeanSquaredError{root = true}, r.rmse_first, x:select(2, 1), y:select(2, 1))
    both(metrics.MeanAbsoluteError(), r.mae, x, y)
    both(metrics.R2(), r.r2, x, y)
    both(metrics.R2(), r.r2_first, x:select(2, 1), y:select(2, 1))
  end)

  it("have no R2 of one row, and 1 or 0 where targets are equal", function()
    local function r2(a, b) -- in batches of one row and of all
      local metric = metrics.R2()
      for k = 1, #a do metric:update(a:narrow(1, k, 1), b:narrow(1, k, 1)) end
      local all = metrics.R2()
      all:update(a, b)
      local one, other = metric:compute(), all:compute()
      assert(one == other or one ~= one and other ~= other)
      return one
    end
    local function is_nan(value) return value ~= value end
    local equal = flare.full({10}, 0.1, {dtype = "f64"})
    assert.is_true(is_nan(r2(flare.tensor{1}, flare.tensor{1})))
    assert.equal(0, r2(equal + 0.1, equal))
    assert.equal(1, r2(equal, equal))
    assert.is_true(is_nan(r2(flare.ones(3), flare.tensor{1, 0 / 0, 2})))
    assert.is_true(is_nan(r2(flare.tensor{1, 0 / 0, 2}, flare.ones(3))))
  end)

  it("have a mean with weights", function()
    local mean = metrics.Mean()
    assert.is_true(mean:compute() ~= mean:compute()) -- no batch: NaN
    mean:update(2, 3)
    mean:update(flare.tensor{4, 8})
    assert.equal((6 + 12) / 5, mean:compute())
    mean:update(flare.tensor{3, 5}, flare.tensor{2, 0})
    assert.equal((6 + 12 + 6) / 7, mean:compute())
  end)

  it("go on from a saved state, and share batches in a collection", function()
    local function make()
      return metrics.Collection{r2 = metrics.R2(), mae = metrics.MeanAbsoluteError(),
                                auroc = metrics.AUROC()}
    end
    local binary = data.binary
    local a, b = flare.tensor(binary.scores), flare.tensor(binary.labels)
    local one, other = make(), make()
    one:update(a:narrow(1, 1, 30), b:narrow(1, 1, 30))
    local path = os.tmpname()
    assert(flare.save(path, one:state_dict()))
    other:load_state_dict(flare.load(path))
    os.remove(path)
    for _, each in ipairs {one, other} do each:update(a:narrow(1, 31, 60), b:narrow(1, 31, 60)) end
    assert.same(one:compute(), other:compute())
    assert.near(binary.AUROC, other:compute().auroc, 1e-12)
  end)
end)

describe("metrics of texts", function()
  local t = data.texts
  local firsts = {}
  for k, list in ipairs(t.references) do firsts[k] = list[1] end

  -- each text a batch of its own
  local function one_by_one(metric, references, candidates)
    for k, text in ipairs(candidates or t.candidates) do metric:update({text}, {references[k]}) end
    return metric:compute()
  end

  it("are sacreBLEU's, jiwer's and rouge-score's", function()
    near(t.bleu, one_by_one(metrics.BLEU(), t.references))
    near(t.bleu_lower, one_by_one(metrics.BLEU{lower = true}, t.references))
    near(t.bleu_words, one_by_one(metrics.BLEU{tokenize = "none"}, t.references))
    local one, smooth = metrics.BLEU(), metrics.BLEU()
    one:update({t.candidates[3]}, {firsts[3]})
    near(t.bleu_one, one:compute())
    smooth:update({t.candidates[5]}, {firsts[5]})
    near(t.bleu_smooth, smooth:compute())
    near(t.wer, one_by_one(metrics.WordErrorRate(), firsts))
    near(t.cer, one_by_one(metrics.CharacterErrorRate(), firsts))
    near(t.rouge, {one_by_one(metrics.RougeL(), firsts)})
  end)

  it("know case and white space beyond ASCII", function()
    local u = data.cases
    near(u.bleu, one_by_one(metrics.BLEU(), u.references, u.candidates))
    near(u.bleu_lower, one_by_one(metrics.BLEU{lower = true}, u.references, u.candidates))
    near(u.bleu_words, one_by_one(metrics.BLEU{lower = true, tokenize = "none"}, u.references,
                                  u.candidates))
  end)

  it("count edits", function()
    assert.equal(3, metrics.edit_distance("kitten", "sitting"))
    assert.equal(1, metrics.edit_distance("naïve", "naive"))
    assert.equal(2, metrics.edit_distance({1, 2, 3}, {2, 3, 4}))
    local distance = metrics.EditDistance()
    distance:update({"abc", ""}, {"abd", "xyz"})
    assert.equal(2, distance:compute())
  end)
end)

-- Tensors of the boxes of an image.
local function image_of(list, truth)
  local boxes, marks, scores_of = {}, {}, {}
  for k, item in ipairs(list) do
    boxes[k], marks[k], scores_of[k] = item.box, item.label, truth and item.crowd or item.score
  end
  boxes = #list > 0 and flare.tensor(boxes, {dtype = "f64"}) or flare.zeros(0, 4)
  local out = {boxes = boxes, labels = flare.tensor(marks, {dtype = "i64"})}
  out[truth and "crowd" or "scores"] = flare.tensor(scores_of, {dtype = "f64"})
  return out
end

describe("metrics of boxes", function()
  it("are pycocotools'", function()
    local b, metric = data.boxes, metrics.MeanAveragePrecision()
    for k, truth in ipairs(b.truths) do
      metric:update({image_of(b.found[k])}, {image_of(truth, true)})
    end
    local out = metric:compute()
    near(b.figures, out)
    near(b.classes, out.classes)
  end)

  it("go on from a saved state", function()
    local b, one, other = data.boxes, metrics.MeanAveragePrecision(), metrics.MeanAveragePrecision()
    local function add(metric, from, to)
      for k = from, to do metric:update({image_of(b.found[k])}, {image_of(b.truths[k], true)}) end
    end
    add(one, 1, 6)
    other:load_state_dict(one:state_dict())
    add(other, 7, #b.truths)
    near(b.figures, other:compute())
  end)

  it("refuse boxes that cannot be judged", function()
    local function said(found)
      found.boxes = flare.tensor{{1, 1, 3, 3}}
      return message(function()
        metrics.MeanAveragePrecision():update({found}, {{boxes = flare.zeros(0, 4)}})
      end)
    end
    local one, nan = flare.ones(1), flare.full({1}, 0 / 0)
    assert.match("update: an image has boxes, but no scores", said{labels = one})
    assert.match("update: an image has boxes, but no labels", said{scores = one})
    assert.match("update: a box, a label or a score is NaN", said{labels = one, scores = nan})
    assert.match("update: labels must be integers", said{labels = one / 2, scores = one})
  end)

  it("refuse boxes without labels", function()
    assert.match("boxes %(n, 4%) and n labels are expected, got %(2, 4%) and %(1%)",
      message(function()
        metrics.MeanAveragePrecision():update({{boxes = flare.zeros(2, 4),
          labels = flare.zeros(1), scores = flare.zeros(2)}}, {{boxes = flare.zeros(0, 4)}})
      end))
  end)
end)

describe("metrics over ranks", function()
  it("are those of all batches, also where a rank has fewer or none", function()
    local status, out, _, folder = launch.run("-n 4 --tee all", ([[
      package.path = %q
      local data, m = require "spec.support.metrics_data", flare.metrics
      local function near(a, b) assert(math.abs(a - b) < 1e-12, ("%%g is not %%g"):format(b, a)) end
      -- this rank's rows: 2/3 of the rows on rank 0, the rest on ranks 1 and 3
      local function part(list, ...)
        local x = flare.tensor(list, ...)
        local n = #x // 3
        local ranges = {[0] = {1, n}, {n + 1, n + 5}, {1, 0}, {n + 6, #x}}
        local from, to = table.unpack(ranges[rank])
        return x:narrow(1, from, to - from + 1)
      end
      local function over(metric, x, y)
        if #x > 0 then metric:update(x, y) end
        return metric:compute()
      end
      local c, b, r, t = data.classes, data.binary, data.regression, data.texts
      local scores, labels = part(c.scores), part(c.labels, {dtype = "i64"})
      near(c.accuracy, over(m.Accuracy(), scores, labels))
      near(c.macro.F1, over(m.F1(), scores, labels))
      near(b.F1, over(m.F1(), part(b.scores), part(b.labels)))
      local l = data.labels
      near(l.weighted.F1, over(m.F1{multilabel = true, average = "weighted"}, part(l.scores),
                               part(l.labels)))
      near(l.subset, over(m.Accuracy{subset = true}, part(l.scores), part(l.labels)))
      near(b.AUROC, over(m.AUROC(), part(b.scores), part(b.labels)))
      near(b.AveragePrecision, over(m.AveragePrecision(), part(b.scores), part(b.labels)))
      local f64 = {dtype = "f64"}
      near(r.mse, over(m.MeanSquaredError(), part(r.x, f64), part(r.y, f64)))
      near(r.r2, over(m.R2(), part(r.x, f64), part(r.y, f64)))
      local bleu = m.BLEU()
      if rank == 1 then
        bleu:update({t.candidates[1], t.candidates[2]}, {t.references[1], t.references[2]})
      elseif rank == 2 then
        bleu:update({table.unpack(t.candidates, 3)}, {table.unpack(t.references, 3)})
      end
      near(t.bleu, bleu:compute())
      local own = m.Mean{group = false}
      own:update(rank)
      assert(own:compute() == rank)
    ]]):format(tree.output "pwd":gsub("\n", "") .. "/?.lua"), 120)
    launch.remove(folder)
    assert.equal(0, status, out)
  end)
end)
