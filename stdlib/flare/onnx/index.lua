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

local function product(list, first, last)
  local p = 1
  for k = first, last do p = p * list[k] end
  return p
end

-- Tuples of positions, the last dim of `index`, as positions in dims [first, ...) of `shape` put
-- together.
local function flat_positions(index, shape, first)
  local rank, at = index:dim(), nil
  for k = 1, index.shape[rank] do
    local size = shape[first + k - 1]
    local i = forward(index:select(rank, k), size)
    if i:numel() > 0 and (i:lt(0):any():item() or i:ge(size):any():item()) then
      error(("a position is outside of axis %d, which has size %d"):format(first + k - 2, size), 0)
    end
    at = at and at * size + i or i
  end
  return at
end

function M.GatherND(n, x, index)
  local b, shape, rank = n.attr.batch_dims or 0, n:shape(x), index:dim()
  local k = index.shape[rank]
  local batch, each = product(shape, 1, b), product(shape, b + 1, b + k)
  local rest = table.move(shape, b + k + 1, #shape, 1, {})
  local at = flat_positions(index, shape, b + 1):reshape(batch, -1)
  at = at + core.arange(0, batch, {device = x.device}):unsqueeze(2) * each
  local rows = x:reshape(batch * each, table.unpack(rest))
  local result = table.move(n:shape(index), 1, rank - 1, 1, {})
  table.move(rest, 1, #rest, #result + 1, result)
  return rows:index_select(1, at:reshape(-1), zero):reshape(result)
end

local folds = {
  add = function(a, b) return a + b end, mul = function(a, b) return a * b end,
  max = core.maximum, min = core.minimum,
}

-- Several updates may meet in one place: one after the other, in the order of the updates.
local function fold_rows(x, at, updates, f)
  local y = x:clone()
  for k, position in ipairs(at:totable()) do
    local row = y:narrow(1, position + 1, 1)
    row:copy_(f(row, updates:narrow(1, k, 1)))
  end
  return y
end

local reductions = {none = true, add = true, mul = true, max = true, min = true}

local function scatter_rows(x, at, updates, way)
  if way == "none" then return x:index_copy(1, at, updates, zero) end
  return fold_rows(x, at, updates, folds[way])
end

function M.ScatterND(n, x, index, updates)
  local shape, rank = n:shape(x), index:dim()
  local k = index.shape[rank]
  local way = n:choice("reduction", "none", reductions)
  if index:numel() == 0 or k == 0 then return x end
  local at = flat_positions(index, shape, 1):reshape(-1)
  local rest = table.move(shape, k + 1, #shape, 1, {})
  local rows = x:reshape(product(shape, 1, k), table.unpack(rest))
  updates = updates:reshape(at.shape[1], table.unpack(rest))
  return scatter_rows(rows, at, updates, way):reshape(shape)
end

function M.ScatterElements(n, x, index, updates)
  local dim, shape = n:axis(n.attr.axis or 0, x:dim()), n:shape(x)
  local way = n:choice("reduction", "none", reductions)
  if index:numel() == 0 then return x end
  index = forward(index, shape[dim])
  if way == "none" then return x:scatter(dim, index, updates, zero) end
  -- every element of x is a row, found by its place in the whole
  local at = index * product(shape, dim + 1, #shape)
  for d = 1, #shape do
    if d ~= dim then
      local list = {}
      for k = 1, #shape do list[k] = k == d and index.shape[d] or 1 end
      local steps = core.arange(0, index.shape[d], {device = x.device})
      at = at + (steps * product(shape, d + 1, #shape)):reshape(list)
    end
  end
  local y = scatter_rows(x:reshape(-1), at:reshape(-1), updates:reshape(-1), way)
  return y:reshape(shape)
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
