--- Sequences and optional values inside of graphs: lists of tensors, and `none`.
local core = require "flare.core"
local graph = require "flare.onnx.graph"
local shape_ops = require "flare.onnx.shape"
local Node = require "flare.onnx.node"

local M = {}

local none = setmetatable({}, {__name = "none"})

-- A position in a list, from 1; negative positions of ONNX count from the end; `last` is the
-- length.
local function place(n, list, position, last)
  local at = n:number(position)
  if at < 0 then at = at + #list end
  if at < 0 or at >= last then
    n:fail("there is no position %d in a sequence of %d", n:number(position), #list)
  end
  return at + 1
end

local function copy(list) return table.move(list, 1, #list, 1, {}) end

function M.SequenceEmpty() return {} end
function M.SequenceConstruct(_, ...) return {...} end
function M.SequenceAt(n, list, position) return list[place(n, list, position, #list)] end

function M.SequenceLength(n, list)
  return Node.remember(core.tensor(#list, {dtype = "i64"}):to(n.device), {#list})
end

function M.SequenceInsert(n, list, x, position)
  local out = copy(list)
  table.insert(out, position and place(n, list, position, #list + 1) or #list + 1, x)
  return out
end

function M.SequenceErase(n, list, position)
  local out = copy(list)
  table.remove(out, position and place(n, list, position, #list) or #list)
  return out
end

function M.ConcatFromSequence(n, list)
  if n.attr.new_axis == 1 then
    return core.stack(list, n:axis(n.attr.axis, list[1]:dim() + 1))
  end
  return core.cat(list, n:axis(n.attr.axis, list[1]:dim()))
end

function M.SplitToSequence(n, x, split)
  local dim = n:axis(n.attr.axis or 0, x:dim())
  local size, sizes, out = x.shape[dim], {}, {}
  if not split or split:dim() == 0 then
    local each = n:number(split, 1)
    for at = 0, size - 1, each do sizes[#sizes + 1] = math.min(each, size - at) end
  else
    sizes = shape_ops.parts_of(n, size, split)
  end
  local at = 1
  for k, count in ipairs(sizes) do
    out[k] = x:narrow(dim, at, count)
    if not split and n.attr.keepdims == 0 then out[k] = out[k]:squeeze(dim) end
    at = at + count
  end
  return out
end

function M.SequenceMap(n, list, ...)
  local body, more, results = n.attr.body, {...}, {}
  for k = 1, #body.outputs do results[k] = {} end
  for k, x in ipairs(list) do
    local inputs = {x}
    for j, other in ipairs(more) do
      inputs[j + 1] = core.is_tensor(other) and other or other[k]
    end
    for j, y in ipairs(graph.call(body, n.env, inputs)) do results[j][k] = y end
  end
  return table.unpack(results)
end

function M.Optional(_, x) return x == nil and none or x end

function M.OptionalHasElement(n, x)
  return core.tensor(x ~= nil and x ~= none, {dtype = "bool"}):to(n.device)
end

function M.OptionalGetElement(n, x)
  if x == nil or x == none then n:fail("the optional value is not there") end
  return x
end

return M
