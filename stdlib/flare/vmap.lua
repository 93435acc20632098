--- flare.vmap: vectorizes a function that is written for one sample, to run on a batch.
--
--     local distances = flare.vmap(function(a, b) return (a - b):norm() end)
--     print(distances(x, y))               -- x, y: (n, d); the result: (n)
--
-- Each call inside becomes one call over all samples (runtime/modes/vmap.c).
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- A copy of a value in which every tensor is replaced by f(tensor, dim). For a table, `dim` may be
-- a table of dims.
local function map(value, dim, f)
  if core.is_tensor(value) then return f(value, dim) end
  if type(value) ~= "table" or getmetatable(value) then return value end
  local out = {}
  for key, inner in pairs(value) do
    local d = dim
    if type(dim) == "table" then d = dim[key] end
    out[key] = map(inner, d, f)
  end
  return out
end

local function check_dim(name, dim)
  if dim ~= nil and dim ~= false and not (type(dim) == "number" and math.tointeger(dim)) then
    fail("vmap: %s must be dims or false, got %s", name, tostring(dim))
  end
end

-- The samples' dim of argument or result k.
local function dim_of(dims, k)
  if type(dims) ~= "table" then return dims end
  return dims[k]
end

-- Counts the samples of all arguments; they must agree.
local function count(given, dims)
  local n, first
  for k = 1, given.n do
    map(given[k], dim_of(dims, k), function(x, dim)
      check_dim("in_dims", dim)
      if not dim then return end
      if x:dim() == 0 then fail("vmap: argument %d has no dim to take samples from", k) end
      local size = x:size(dim)
      if n and size ~= n then
        fail("vmap: argument %d has %d samples, argument %d has %d", k, size, first, n)
      end
      n, first = size, first or k
    end)
  end
  if not n then fail "vmap: no argument has samples: all in_dims are false" end
  if n == 0 then fail "vmap: there must be at least one sample" end
  return n
end

-- Runs inside a level of vmap.
local function run_level(f, o, given)
  local inner = {n = given.n}
  for k = 1, given.n do
    inner[k] = map(given[k], dim_of(o.in_dims, k), function(x, dim)
      if not dim then return x end
      if dim ~= 1 and dim ~= -x:dim() then x = x:movedim({dim}, {1}) end
      return core.vmap_in(x)
    end)
  end
  local results = table.pack(f(table.unpack(inner, 1, inner.n)))
  for k = 1, results.n do
    results[k] = map(results[k], dim_of(o.out_dims, k), function(y, dim)
      check_dim("out_dims", dim)
      y = core.vmap_out(y)
      return (dim or 1) == 1 and y or y:movedim({1}, {dim})
    end)
  end
  return results
end

--- Vectorizes f over the samples of a batch.
-- @param f a function of one sample: of tensors, tables of tensors, other values
-- @param opts {in_dims = 1, out_dims = 1}: the dim of the samples in all arguments and results, or
--   a list with a dim for each, or false for an argument that all samples share
-- @return a function of batches that returns batches
function M.vmap(f, opts)
  local o = options.check("vmap", opts, {in_dims = options.none, out_dims = options.none})
  if o.in_dims == nil then o.in_dims = 1 end
  if o.out_dims == nil then o.out_dims = 1 end
  if type(f) ~= "function" and not (getmetatable(f) or {}).__call then
    fail("vmap: a function is expected, got %s", options.kind(f))
  end
  return core.framed(function(...)
    local given = table.pack(...)
    local results = core.vmap_run(count(given, o.in_dims), run_level, f, o, given)
    return table.unpack(results, 1, results.n)
  end)
end

return M
