--- Layers of functions that are written in Lua: losses, distances, similarities.
local class = require "flare.class"
local core = require "flare.core"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local classes = {}
for name, row in pairs{
  CosineEmbeddingLoss = {"cosine_embedding_loss", {margin = 0}},
  MarginRankingLoss = {"margin_ranking_loss", {margin = 0}},
  TripletMarginLoss = {"triplet_margin_loss", {margin = 1, p = 2, eps = 1e-6, swap = false}},
  GaussianNLLLoss = {"gaussian_nll_loss", {full = false, eps = 1e-6}},
  PoissonNLLLoss = {"poisson_nll_loss", {log_input = true, full = false, eps = 1e-8}, 2},
  HingeEmbeddingLoss = {"hinge_embedding_loss", {margin = 1}, 2},
  SoftMarginLoss = {"soft_margin_loss", {}, 2},
  MultiMarginLoss = {"multi_margin_loss", {margin = 1, p = 1, weight = options.none}, 2},
  MultiLabelSoftMarginLoss = {"multilabel_soft_margin_loss", {weight = options.none}, 2},
} do
  local cls = class(name, Module)
  row[2].reduction = "mean"
  cls.operator, cls.defaults = row[1], row[2]

  function cls:init(opts)
    self._options = options.check("nn." .. name, opts, row[2])
    local weight = self._options.weight
    if weight then self.weight = self:buffer(weight) end -- so that it moves with the module
  end

  -- (prediction, target); (a, b, target); (anchor, same, other); (mean, target, variance)
  function cls:forward(a, b, c)
    self._options.weight = self.weight
    if row[3] == 2 then return F[row[1]](a, b, self._options) end
    return F[row[1]](a, b, c, self._options)
  end

  classes[name] = cls
end

local GLU = class("GLU", Module)

--- nn.GLU(dim), -1 if left out: the first half of dim times the sigmoid of the second
function GLU:init(dim) self.dim = dim or -1 end

function GLU:forward(x) return F.glu(x, self.dim) end

classes.GLU = GLU

local CosineSimilarity = class("CosineSimilarity", Module)

--- nn.CosineSimilarity({dim = 2, eps = 1e-8})
function CosineSimilarity:init(opts)
  self._options = options.check("nn.CosineSimilarity", opts, {dim = 2, eps = 1e-8})
end

function CosineSimilarity:forward(a, b)
  return core.cosine_similarity(a, b, self._options)
end

classes.CosineSimilarity = CosineSimilarity
return classes
