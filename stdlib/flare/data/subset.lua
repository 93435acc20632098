--- A subset of a data set, given by positions.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local fetch = require "flare.data.fetch"
local options = require "flare.options"
local positions = require "flare.data.positions"

local Subset = class("Subset")
Subset.__word = "set"

--- data.Subset(dataset, index), index: a tensor of positions in the data set
function Subset:init(dataset, index)
  if not (type(dataset) == "table" and dataset.size and (dataset.fetch or dataset.get)) then
    fail("data.Subset: a data set with size and fetch (or get), such as data.Tensors(x, y), is "
      .. "expected, got %s", options.kind(dataset))
  end
  if type(index) == "table" then index = core.tensor(index, {dtype = "i64"}) end
  if not core.is_tensor(index) or index:dim() ~= 1 then
    fail("data.Subset: the positions must be a tensor of one dim or a list")
  end
  if #index > 0 then
    local low, high = index:amin():item(), index:amax():item()
    if low < 1 or high > dataset:size() then
      fail("data.Subset: position %d is not in 1..%d", low < 1 and low or high, dataset:size())
    end
  end
  self.dataset, self.index = dataset, index
end

function Subset:size()
  return #self.index
end
Subset.__len = Subset.size

function Subset:__tostring()
  return ("Subset: %d of %d rows, of %s"):format(#self.index, self.dataset:size(),
                                                tostring(self.dataset))
end

--- The samples at positions, a tensor or a list of them.
function Subset:fetch(index)
  index = positions("Subset:fetch", index)
  return fetch(self.dataset, self.index:index_select(1, index))
end

--- The module and arguments from which a worker thread makes this data set again.
function Subset:describe()
  if not self.dataset.describe then
    fail("data.Subset: the data set has no method describe, which workers need")
  end
  return "flare.data.subset", self.index, self.dataset:describe()
end

--- Makes a data set from the arguments that describe gave.
function Subset.from(index, name, ...)
  local inner = require(name)
  return Subset((inner.from or inner)(...), index)
end

return Subset
