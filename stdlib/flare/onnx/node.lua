--- A node as the implementations of operators see it: attributes, the version of its operator set,
-- and common conversions. Axes and positions count from 0 in ONNX and are converted here.
local core = require "flare.core"

local Node = {}
Node.__index = Node

-- The integers in constant tensors, so that each is copied from the device once.
local known = setmetatable({}, {__mode = "k"})

--- Caches the integers of a tensor.
function Node.remember(x, list)
  known[x] = list
  return x
end

--- Removes tensors that leave the model from the cache: the caller may write to them.
function Node.forget(list)
  for _, x in ipairs(list) do known[x] = nil end
  return list
end

--- "Conv (ai.onnx, version 11)".
function Node.title_of(name, domain, version)
  return ("%s (%s, version %s)"):format(name, domain == "" and "ai.onnx" or domain,
                                        version or "not imported")
end

--- Raises an error; the caller adds the node.
function Node.fail(_, format, ...)
  error(format:format(...), 0)
end

--- The elements of a tensor with at most one dim, as a list; nil for nil.
function Node.list(_, x)
  if x == nil then return nil end
  if not known[x] then
    local values = x:totable()
    if type(values) ~= "table" then values = {values} end
    return values
  end
  return table.move(known[x], 1, #known[x], 1, {})
end

--- The one element of a tensor, or `default` for nil.
function Node:number(x, default)
  if x == nil then return default end
  local list = self:list(x:dim() > 1 and x:reshape(-1) or x)
  if #list ~= 1 then self:fail("one element is expected, got %d", #list) end
  return list[1]
end

--- An axis of ONNX as a dim of a tensor with that many.
function Node:axis(axis, rank)
  local dim = axis < 0 and axis + rank + 1 or axis + 1
  if dim < 1 or dim > rank then
    self:fail("there is no axis %d in a tensor with %d dims", axis, rank)
  end
  return dim
end

--- The same for a list of them; nil for nil.
function Node:axes(list, rank)
  if not list then return nil end
  local dims = {}
  for k, axis in ipairs(list) do dims[k] = self:axis(axis, rank) end
  return dims
end

--- Whether a later step or the model uses output k.
function Node:wants(k)
  local name = self.outputs[k]
  return name ~= nil and name ~= ""
end

--- The choice that a string attribute makes among names; `default` if it is not there.
function Node:choice(name, default, choices)
  local given = self.attr[name] or default
  if not choices[given] then
    local list = {}
    for choice in pairs(choices) do list[#list + 1] = choice end
    table.sort(list)
    self:fail("%s is '%s', it can be %s", name, tostring(given), table.concat(list, ", "))
  end
  return given
end

--- A tensor of integers on the model's device.
function Node:ints(list)
  local x = #list == 0 and core.zeros({0}, {dtype = "i64"}) or core.tensor(list, {dtype = "i64"})
  return Node.remember(x:to(self.device), table.move(list, 1, #list, 1, {}))
end

--- The shape of a tensor as a plain list.
function Node.shape(_, x)
  return table.move(x.shape, 1, x:dim(), 1, {})
end

return Node
