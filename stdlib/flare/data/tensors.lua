--- A data set of tensors with equal first dims: sample i is row i of each.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local positions = require "flare.data.positions"

local Tensors = class("Tensors")
Tensors.__word = "set"

--- data.Tensors(x, y, ...)
function Tensors:init(...)
  self.tensors = {...}
  local n = select("#", ...)
  if n == 0 then fail("data.Tensors: at least one tensor is needed") end
  for i = 1, n do
    local t = self.tensors[i]
    if not core.is_tensor(t) or t:dim() == 0 then
      fail("data.Tensors: argument %d must be a tensor with rows", i)
    end
    if #t ~= #self.tensors[1] then
      fail("data.Tensors: argument %d has %d rows, the first has %d", i, #t, #self.tensors[1])
    end
  end
end

function Tensors:size()
  return #self.tensors[1]
end
Tensors.__len = Tensors.size

function Tensors:__tostring()
  local rows = {}
  for i, t in ipairs(self.tensors) do
    rows[i] = ("%s (%s)"):format(t.dtype, table.concat(t.shape, ", ", 2))
  end
  return ("Tensors: %d rows of %s"):format(self:size(), table.concat(rows, ", "))
end

--- The rows at positions, a tensor or a list of them, of each tensor.
function Tensors:fetch(index)
  index = positions("Tensors:fetch", index)
  local out = {}
  for i, t in ipairs(self.tensors) do out[i] = t:index_select(1, index:to(t.device)) end
  return table.unpack(out)
end

--- The module and arguments from which a worker thread makes this data set again.
function Tensors:describe()
  return "flare.data.tensors", table.unpack(self.tensors)
end

return Tensors
