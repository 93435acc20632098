--- Gather and scatter. Positions in ONNX count from 0, negative ones from the end.
local core = require "flare.core"

local M = {}

local zero = {base = 0}

-- Positions as i64, none of them negative.
local function forward(index, size)
  index = index:to("i64")
  return core.where(index:lt(0), index + size, index)
end

function M.Gather(n, x, index)
  local dim, shape = n:axis(n.attr.axis or 0, x:dim()), n:shape(x)
  local y = x:index_select(dim, forward(index, shape[dim]):reshape(-1), zero)
  local result = table.move(shape, 1, dim - 1, 1, {})
  table.move(n:shape(index), 1, index:dim(), dim, result)
  table.move(shape, dim + 1, #shape, #result + 1, result)
  return y:reshape(result)
end

function M.GatherElements(n, x, index)
  local dim = n:axis(n.attr.axis or 0, x:dim())
  return x:gather(dim, forward(index, x.shape[dim]), zero)
end

-- Tuples of positions in the dims after the first `batch` of x, none of them negative.
local function forward_tuples(n, x, index, batch)
  local sizes = {}
  for k = 1, index.shape[index:dim()] do sizes[k] = x.shape[batch + k] end
  return forward(index, n:ints(sizes))
end

function M.GatherND(n, x, index)
  local batch = n.attr.batch_dims or 0
  return x:gather_nd{index = forward_tuples(n, x, index, batch), batch_dims = batch, base = 0}
end

local reductions = {none = "none", add = "sum", mul = "prod", max = "amax", min = "amin"}

function M.ScatterND(n, x, index, updates)
  local way = reductions[n:choice("reduction", "none", reductions)]
  return x:scatter_nd{index = forward_tuples(n, x, index, 0), src = updates, reduce = way, base = 0}
end

function M.ScatterElements(n, x, index, updates)
  local way = reductions[n:choice("reduction", "none", reductions)]
  local dim = n:axis(n.attr.axis or 0, x:dim())
  index = forward(index, x.shape[dim])
  if way == "none" then return x:scatter(dim, index, updates, zero) end
  return x:scatter_reduce{dim = dim, index = index, src = updates, reduce = way, base = 0}
end

M.Scatter = M.ScatterElements

function M.Compress(n, x, condition)
  local dim = 1
  if n.attr.axis then dim = n:axis(n.attr.axis, x:dim()) else x = x:reshape(-1) end
  local keep = condition:narrow(1, 1, math.min(condition.shape[1], x.shape[dim]))
  return x:index_select(dim, keep:nonzero(zero):reshape(-1), zero)
end

function M.NonZero(_, x)
  if x:dim() == 0 then
    x = x:reshape(1)
    return x:nonzero(zero):narrow(2, 1, 0):transpose(1, 2)
  end
  return x:nonzero(zero):transpose(1, 2)
end

function M.OneHot(n, index, depth, values)
  local classes, rank = math.tointeger(n:number(depth)), index:dim() + 1
  local dim = n:axis(n.attr.axis or -1, rank)
  index = forward(index, classes):unsqueeze(dim)
  local shape = {}
  for d = 1, rank do shape[d] = d == dim and classes or 1 end
  local hot = index:eq(core.arange(0, classes, {device = index.device}):reshape(shape))
  return core.where(hot, values:select(1, 2), values:select(1, 1))
end

return M
