--- Losses as modules: one row each, called as loss(prediction, target).
--
-- All take {reduction = "mean" | "sum" | "none"}. Class labels count from 1; losses of
-- classification leave out targets that are `ignore_index`, -100 by default.
local class = require "flare.class"
local core = require "flare.core"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local none = options.none
-- The function and its options. Tensors and functions among these have no default. `takes` = 3: the
-- loss is called with (a, b, target), (anchor, same, other) or (mean, target, variance).
local rows = {
  CrossEntropyLoss = {"cross_entropy", weight = none, ignore_index = -100, label_smoothing = 0},
  NLLLoss = {"nll_loss", weight = none, ignore_index = -100},
  MSELoss = {"mse_loss"},
  L1Loss = {"l1_loss"},
  SmoothL1Loss = {"smooth_l1_loss", beta = 1},
  HuberLoss = {"huber_loss", delta = 1},
  BCELoss = {"bce_loss", weight = none},
  BCEWithLogitsLoss = {"bce_with_logits", weight = none, pos_weight = none},
  KLDivLoss = {"kl_div", log_target = false},
  PoissonNLLLoss = {"poisson_nll_loss", log_input = true, full = false, eps = 1e-8},
  HingeEmbeddingLoss = {"hinge_embedding_loss", margin = 1},
  SoftMarginLoss = {"soft_margin_loss"},
  MultiMarginLoss = {"multi_margin_loss", margin = 1, p = 1, weight = none},
  MultiLabelMarginLoss = {"multilabel_margin_loss"},
  MultiLabelSoftMarginLoss = {"multilabel_soft_margin_loss", weight = none},
  CosineEmbeddingLoss = {"cosine_embedding_loss", takes = 3, margin = 0},
  MarginRankingLoss = {"margin_ranking_loss", takes = 3, margin = 0},
  TripletMarginLoss = {"triplet_margin_loss", takes = 3, margin = 1, p = 2, eps = 1e-6,
                       swap = false, distance = none},
  GaussianNLLLoss = {"gaussian_nll_loss", takes = 3, full = false, eps = 1e-6},
}

local classes = {}
for name, row in pairs(rows) do
  local op, takes, tensors = row[1], row.takes, {}
  local defaults = {reduction = "mean"}
  for key, value in pairs(row) do
    if key ~= 1 and key ~= "takes" then defaults[key] = value end
    if value == none then tensors[#tensors + 1] = key end
  end
  local cls = class(name, Module)
  cls.operator, cls.defaults = op, defaults

  function cls:init(opts)
    self._options = options.check("nn." .. name, opts, defaults)
    -- tensors are buffers, so that they move with the module
    for _, key in ipairs(tensors) do
      local tensor = self._options[key]
      if core.is_tensor(tensor) then self[key] = self:buffer(tensor) end
    end
  end

  --- (prediction, target) -> a scalar, or one value for each with reduction "none"
  function cls:forward(a, b, c)
    local opts = self._options
    for _, key in ipairs(tensors) do opts[key] = self[key] or opts[key] end
    if takes then return F[op](a, b, c, opts) end
    return (F[op](a, b, opts))
  end

  function cls:describe()
    return self._options.reduction ~= "mean" and "reduction=" .. self._options.reduction or ""
  end

  classes[name] = cls
end
return classes
