--- The cosine of the angle between two vectors.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local Module = require "flare.nn.module"

local CosineSimilarity = class("CosineSimilarity", Module)

--- nn.CosineSimilarity({dim = 2, eps = 1e-8})
function CosineSimilarity:init(opts)
  self._options = options.check("nn.CosineSimilarity", opts, {dim = 2, eps = 1e-8})
end

--- (a, b) -> their cosines along dim
function CosineSimilarity:forward(a, b)
  return core.cosine_similarity(a, b, self._options)
end

return CosineSimilarity
