--- Stacking of tensors, and conversion to a number of dims, under NumPy's and PyTorch's names.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local function list_of(where, ...)
  local list = type((...)) == "table" and (...) or {...}
  local n = type((...)) == "table" and #list or select("#", ...)
  if n == 0 then fail("%s: needs at least one tensor", where) end
  for k = 1, n do options.tensor(where, ("input %d"):format(k), list[k]) end
  return list
end

local function each(list, f)
  local made = {}
  for k, x in ipairs(list) do made[k] = f(x) end
  return made
end

--- x with at least one dim.
function M.atleast_1d(x)
  options.tensor("atleast_1d", "x", x)
  return x:dim() == 0 and x:view(1) or x
end

--- x with at least two dims: vectors become rows.
function M.atleast_2d(x)
  options.tensor("atleast_2d", "x", x)
  return x:dim() < 2 and M.atleast_1d(x):unsqueeze(1) or x
end

--- x with at least three dims: (n) becomes (1, n, 1), (m, n) becomes (m, n, 1).
function M.atleast_3d(x)
  options.tensor("atleast_3d", "x", x)
  return x:dim() < 3 and M.atleast_2d(x):unsqueeze(3) or x
end

--- Concatenates tensors along dim 2, vectors along dim 1.
function M.hstack(...)
  local list = each(list_of("hstack", ...), M.atleast_1d)
  return core.cat(list, list[1]:dim() == 1 and 1 or 2)
end

--- Concatenates tensors along dim 1; vectors are rows.
function M.vstack(...)
  return core.cat(each(list_of("vstack", ...), M.atleast_2d), 1)
end

--- Concatenates tensors along dim 3.
function M.dstack(...)
  return core.cat(each(list_of("dstack", ...), M.atleast_3d), 3)
end

--- Concatenates tensors along dim 2; vectors are columns.
function M.column_stack(...)
  return core.cat(each(list_of("column_stack", ...), function(x)
    return x:dim() < 2 and M.atleast_1d(x):unsqueeze(2) or x
  end), 2)
end

--- Pads sequences of different lengths at their ends and stacks them.
-- @param list tensors (time, ...)
-- @param opts {batch_first = false, value = 0}
-- @return (longest, n, ...), or (n, longest, ...) with batch_first, and the lengths as i64
function M.pad_sequence(list, opts)
  list = list_of("pad_sequence", list)
  local o = options.check("pad_sequence", opts, {batch_first = false, value = 0})
  local lengths, shape = {}, {#list, 0}
  for k, x in ipairs(list) do
    lengths[k] = x:size(1)
    shape[2] = math.max(shape[2], lengths[k])
  end
  table.move(list[1].shape, 2, list[1]:dim(), 3, shape)
  local out = core.full(shape, o.value, {dtype = list[1].dtype, device = list[1].device})
  for k, x in ipairs(list) do
    if lengths[k] > 0 then out[{k, {1, lengths[k]}}] = x end
  end
  return o.batch_first and out or out:transpose(1, 2), core.tensor(lengths, {dtype = "i64"})
end

--- The shape that all broadcast to.
local function common(where, list)
  local shape = {}
  for k, x in ipairs(list) do
    while #shape < x:dim() do table.insert(shape, 1, 1) end
    for d = 1, x:dim() do
      local at, n = #shape - x:dim() + d, x:size(d)
      if n ~= 1 and shape[at] ~= 1 and n ~= shape[at] then
        fail("%s: input %d has shape %s, which does not broadcast with (%s)", where, k,
          tostring(x.shape), table.concat(shape, ", "))
      end
      if n ~= 1 then shape[at] = n end
    end
  end
  return shape
end

--- Views of tensors that are broadcast to their common shape, as several results.
function M.broadcast_tensors(...)
  local list = list_of("broadcast_tensors", ...)
  local shape = common("broadcast_tensors", list)
  return table.unpack(each(list, function(x) return x:expand(shape) end))
end

--- The coordinates of a grid: for vectors x1, x2, ... as many views of shape (#x1, #x2, ...).
-- @param ... vectors; a last string "xy" exchanges the first two dims, as NumPy does
function M.meshgrid(...)
  local given, indexing = {...}, "ij"
  if type(given[#given]) == "string" then indexing = table.remove(given) end
  if indexing ~= "ij" and indexing ~= "xy" then
    fail("meshgrid: indexing is 'ij' or 'xy', got '%s'", indexing)
  end
  local list = list_of("meshgrid", table.unpack(given))
  local shape = {}
  for k, x in ipairs(list) do
    if x:dim() > 1 then fail("meshgrid: input %d has shape %s; it takes vectors", k,
      tostring(x.shape)) end
    shape[k] = x:numel()
  end
  local swap = indexing == "xy" and #list > 1
  local k = 0
  return table.unpack(each(list, function(x)
    local ones = {}
    k = k + 1
    for d = 1, #list do ones[d] = d == k and shape[k] or 1 end
    local y = x:reshape(ones):expand(shape)
    return swap and y:transpose(1, 2) or y
  end))
end

--- Gathers elements along dim at positions `index`; the other dims broadcast. Without dim, x is
-- flattened.
function M.take_along_dim(x, index, dim)
  if dim == nil then return x:flatten():gather(1, index:flatten()) end
  local nd = x:dim()
  local d = math.type(dim) == "integer" and (dim < 0 and dim + nd + 1 or dim)
  if not d or d < 1 or d > nd or index:dim() ~= nd then
    fail("take_along_dim: x has shape %s and index %s: they need the same number "
      .. "of dims, and dim must be one of them",
      tostring(x.shape), tostring(index.shape))
  end
  local of_x, of_index = {}, {}
  for k = 1, nd do
    local m, n = x:size(k), index:size(k)
    of_x[k] = k == d and m or m == 1 and n or m
    of_index[k] = k == d and n or n == 1 and m or n
  end
  return x:expand(of_x):gather(d, index:expand(of_index))
end

--- Rotates x by k times 90 degrees in the plane of two dims, from the first to the second.
function M.rot90(x, k, dims)
  k = (k or 1) % 4
  local a, b = table.unpack(dims or {1, 2})
  if k == 0 then return x:clone() end
  if k == 2 then return x:flip{a, b} end
  return k == 1 and x:flip(b):transpose(a, b) or x:transpose(a, b):flip(b)
end

--- Flips x upside down, along dim 1.
function M.flipud(x) return options.tensor("flipud", "x", x):flip(1) end

--- Flips x left to right, along dim 2.
function M.fliplr(x) return options.tensor("fliplr", "x", x):flip(2) end

--- A block-diagonal matrix of matrices.
function M.block_diag(...)
  local list, width, rows = each(list_of("block_diag", ...), M.atleast_2d), 0, {}
  for k, x in ipairs(list) do
    if x:dim() > 2 then fail("block_diag: input %d has shape %s", k, tostring(x.shape)) end
    width = width + x:size(2)
  end
  local at = 0
  for k, x in ipairs(list) do
    rows[k] = x:pad{at, width - at - x:size(2)}
    at = at + x:size(2)
  end
  return core.cat(rows, 1)
end

return M
