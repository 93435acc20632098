--- Losses over distances and similarities, with more inputs than prediction and target.
local class = require "flare.class"
local core = require "flare.core"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local classes = {}
for name, row in pairs{
  CosineEmbeddingLoss = {"cosine_embedding_loss", {margin = 0}},
  MarginRankingLoss = {"margin_ranking_loss", {margin = 0}},
  TripletMarginLoss = {"triplet_margin_loss", {margin = 1, p = 2, eps = 1e-6}},
} do
  local cls = class(name, Module)
  row[2].reduction = "mean"
  cls.operator, cls.defaults = row[1], row[2]

  function cls:init(opts)
    self._options = options.check("nn." .. name, opts, row[2])
  end

  --- (a, b, target), for TripletMarginLoss (anchor, same, other)
  function cls:forward(a, b, c)
    return F[row[1]](a, b, c, self._options)
  end

  classes[name] = cls
end

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
