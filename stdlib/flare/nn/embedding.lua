--- A table of vectors that are looked up by position; 1 is the first row.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Embedding = class("Embedding", Module)

--- nn.Embedding(rows, width, {padding = row that stays zero and gets no gradient, max_norm =,
--   weight =, base = 1})
-- weight is (rows, width), drawn from the standard normal distribution, or a copy of the option
-- `weight`; `layer:freeze()` excludes it from training. Before a look-up, the rows in question
-- whose norm is above `max_norm` are scaled down to it, in place. `base` is the position of the
-- first row: 0 for ids that count from 0, as those of tokens in published vocabularies.
function Embedding:init(rows, width, opts)
  local where, none = "nn." .. getmetatable(self).__name, options.none
  local o = options.check(where, opts, {padding = none, max_norm = none, weight = none,
                                        base = 1})
  self.rows = options.count(where, "rows", rows)
  self.width = options.count(where, "width", width)
  self.padding, self.max_norm, self.base = o.padding, o.max_norm, o.base
  if o.base ~= 0 and o.base ~= 1 then fail("%s: base is 0 or 1, got %g", where, o.base) end
  if o.padding and options.count(where, "padding", o.padding, o.base) >= rows + o.base then
    fail("%s: padding %d is no row of %d", where, o.padding, rows)
  elseif o.max_norm and not (type(o.max_norm) == "number" and o.max_norm >= 0) then
    fail("%s: max_norm must be a number of at least 0, got %s", where, tostring(o.max_norm))
  end
  if o.weight then
    local shape = options.tensor(where, "weight", o.weight).shape
    if #shape ~= 2 or shape[1] ~= rows or shape[2] ~= width then
      fail("%s: weight must be (%d, %d), got %s", where, rows, width, tostring(shape))
    end
    self.weight = o.weight:detach():clone()
  else
    self.weight = init.normal(rows, width)
    if o.padding then self.weight[o.padding + 1 - o.base]:zero_() end
  end
  self:param(self.weight)
end

-- Scales the rows at these positions, which may repeat, down to max_norm.
function Embedding:limit(index)
  local _ <close> = core.no_grad()
  local at = index:reshape(-1)
  local base = {base = self.base}
  local rows = self.weight:index_select(1, at, base):renorm(2, 1, self.max_norm)
  self.weight:index_copy_(1, at, rows, base)
end

--- positions (...) -> (..., width)
function Embedding:forward(index)
  if self.max_norm then self:limit(index) end
  if self.base == 0 then
    return core.embedding(self.weight, index, {padding = self.padding, base = 0})
  end
  return core.embedding(self.weight, index, self.padding)
end

function Embedding:describe()
  return ("%d, %d"):format(self.rows, self.width)
end

return Embedding
