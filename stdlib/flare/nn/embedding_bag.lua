--- Sums, means or maxima of bags of embedding vectors, without the vectors in memory.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"
local Embedding = require "flare.nn.embedding"
local F = require "flare.nn.functional"

local none = options.none
local modes = {sum = true, mean = true, max = true}

local EmbeddingBag = class("EmbeddingBag", Embedding)

--- nn.EmbeddingBag(rows, width, {mode = "mean", padding = row that is left out,
--   include_last = false, max_norm =, weight =})
-- `mode`: "sum", "mean" or "max"; weight is (rows, width), as nn.Embedding's. With `include_last`
-- the last offset is the end of the last bag.
function EmbeddingBag:init(rows, width, opts)
  local o = options.check("nn.EmbeddingBag", opts,
                          {mode = "mean", padding = none, include_last = false, max_norm = none,
                           weight = none})
  if not modes[o.mode] then
    fail("nn.EmbeddingBag: mode is 'sum', 'mean' or 'max', got '%s'", tostring(o.mode))
  end
  self.mode, self.include_last = o.mode, o.include_last
  Embedding.init(self, rows, width, {padding = o.padding, max_norm = o.max_norm,
                                       weight = o.weight})
end

--- positions (bags, size), or positions (n) with offsets (bags) -> (bags, width). The result of an
-- empty bag is zeros.
-- @param offsets where each bag begins in index, the first at 1: a list or a tensor
-- @param weights factors of the rows, in index's shape, for mode "sum"
function EmbeddingBag:forward(index, offsets, weights)
  if self.max_norm then self:limit(index) end
  return F.embedding_bag(index, self.weight, {
    offsets = offsets, weights = weights, mode = self.mode, padding = self.padding,
    include_last = self.include_last})
end

function EmbeddingBag:describe()
  return ("%s, %s"):format(Embedding.describe(self), self.mode)
end

return EmbeddingBag
