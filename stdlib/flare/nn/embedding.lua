--- A table of vectors, looked up by position (1 is the first row).
local class = require "flare.class"
local core = require "flare.core"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Embedding = class("Embedding", Module)

--- nn.Embedding(rows, width, {padding = row that stays zero and gets no gradient})
-- weight is (rows, width), normal with standard deviation 1 at first.
function Embedding:init(rows, width, opts)
  local o = options.check("nn.Embedding", opts, {padding = options.none})
  self.rows = options.count("nn.Embedding", "rows", rows)
  self.width = options.count("nn.Embedding", "width", width)
  self.padding = o.padding
  self.weight = init.normal(rows, width)
  if o.padding then self.weight[o.padding]:zero_() end
  self:param(self.weight)
end

--- Positions of any shape -> the same shape with `width` behind it.
function Embedding:forward(index)
  return core.embedding(self.weight, index, self.padding)
end

function Embedding:describe()
  return ("%d, %d"):format(self.rows, self.width)
end

return Embedding
