--- Cosine similarity and p-norm distance of vectors.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local statistics = require "flare.statistics"
local Module = require "flare.nn.module"

local CosineSimilarity = class("CosineSimilarity", Module)

--- nn.CosineSimilarity({dim = 2, eps = 1e-8})
function CosineSimilarity:init(opts)
  self._options = options.check("nn.CosineSimilarity", opts, {dim = 2, eps = 1e-8})
end

--- (a, b) -> the cosine similarities along dim
function CosineSimilarity:forward(a, b)
  return core.cosine_similarity(a, b, self._options)
end

local PairwiseDistance = class("PairwiseDistance", Module)

--- nn.PairwiseDistance({p = 2, eps = 1e-6, keepdim = false})
function PairwiseDistance:init(opts)
  self._options = options.check("nn.PairwiseDistance", opts, {p = 2, eps = 1e-6, keepdim = false})
end

--- a (..., width), b (..., width) -> the p-norms of a - b + eps along the last dim
function PairwiseDistance:forward(a, b)
  return statistics.pairwise_distance(a, b, self._options)
end

return {CosineSimilarity = CosineSimilarity, PairwiseDistance = PairwiseDistance}
