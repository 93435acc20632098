--- A table of vectors that are put together by bags of positions: their sum, mean or largest
-- elements.
local class = require "flare.class"
local fail = require "flare.fail"
local options = require "flare.options"
local Embedding = require "flare.nn.embedding"
local F = require "flare.nn.functional"

local none = options.none
local modes = {sum = true, mean = true, max = true}

local EmbeddingBag = class("EmbeddingBag", Embedding)

--- nn.EmbeddingBag(rows, width, {mode = "mean", padding = row that counts for nothing,
--   include_last = false, max_norm =, weight =})
-- `mode`: "sum", "mean" or "max"; weight is (rows, width), as nn.Embedding's. With `include_last`
-- offsets end with the place behind the last bag.
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

--- Positions (bags, size), or (n) with the place at which each bag begins -> (bags, width). A bag
-- without anything gives zeros.
-- @param offsets places in index, the first 1: a list or a tensor
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
