--- Statistics composed of operators: sets, histograms of several variables, reductions that ignore
-- NaN, distances, polynomial fits.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local need = options.tensor

-- --- sets ---

--- The sorted distinct elements of a and b.
function M.union1d(a, b)
  local x, y = need("union1d", "a", a), need("union1d", "b", b)
  return (core.cat({x:flatten(), y:flatten()}, 1):unique())
end

--- The sorted distinct elements that are in both a and b.
function M.intersect1d(a, b)
  local x = need("intersect1d", "a", a):unique()
  return x:masked_select(x:isin(need("intersect1d", "b", b)))
end

--- The sorted distinct elements of a that are not in b.
function M.setdiff1d(a, b)
  local x = need("setdiff1d", "a", a):unique()
  return x:masked_select(x:isin(need("setdiff1d", "b", b), {invert = true}))
end

-- --- histograms ---

-- The bin edges of variable k: as given, or for a number of bins of equal width.
local function edges_of(x, k, bins, range)
  if core.is_tensor(bins) then return bins:to(x.dtype):to(x.device) end
  if math.type(bins) ~= "integer" or bins < 1 then
    fail("histogramdd: variable %d: a number of bins or a tensor of edges, got %s", k,
      tostring(bins))
  end
  local low, high = 0, 1
  if range then low, high = range[1], range[2]
  elseif x:numel() > 0 then low, high = x:amin():item(), x:amax():item() end
  local finite = type(low) == "number" and type(high) == "number" and (high - low) * 0 == 0
  if not finite or low > high then
    fail("histogramdd: variable %d: %s to %s is no range", k, tostring(low), tostring(high))
  end
  if low == high then low, high = low - 0.5, high + 0.5 end
  return core.linspace(low, high, bins + 1, {dtype = x.dtype, device = x.device})
end

--- A histogram of several variables: the number of points in each cell. Bins include their left
-- edge, the last bin both edges.
-- @param x points (n, variables)
-- @param opts {bins = 10, range = {{low, high}, ...}, weight =, density = false}: bins are a number
--   for all variables or a list with a number or a tensor of edges for each
-- @return the counts with a dim for each variable, and a list of the bin edges
function M.histogramdd(x, opts)
  local o = options.check("histogramdd", opts,
    {bins = options.none, range = options.none, weight = options.none, density = false})
  if need("histogramdd", "x", x):dim() ~= 2 or not x.dtype:find "f%d" then
    fail("histogramdd: x is a matrix of floats, a row for each point, got %s %s", x.dtype,
      tostring(x.shape))
  end
  local n, d = x:size(1), x:size(2)
  local edges, shape, inside, place, cells = {}, {}, nil, nil, 1
  for k = 1, d do
    local column = x:select(2, k):contiguous()
    local bins = type(o.bins) == "table" and o.bins[k] or o.bins or 10
    edges[k] = edges_of(column, k, bins, o.range and o.range[k])
    shape[k] = edges[k]:numel() - 1
    local at = core.searchsorted(edges[k], column, {right = true}) - 1
    at = core.where(column:eq(edges[k][-1]), at - 1, at)
    local fits = at:ge(1):logical_and(at:le(shape[k])):logical_and(column:isnan():logical_not())
    inside = inside and inside:logical_and(fits) or fits
    place = place and place * shape[k] + at - 1 or at - 1
    cells = cells * shape[k]
  end
  local weight = o.weight or core.ones({n}, {dtype = x.dtype, device = x.device})
  local counts = core.zeros({cells}, {dtype = weight.dtype, device = x.device})
  if n > 0 and d > 0 then
    place = place:masked_select(inside) + 1
    counts = counts:scatter_add(1, place, weight:masked_select(inside))
  end
  counts = counts:reshape(shape)
  if not o.density then return counts, edges end
  counts = counts / counts:sum()
  for k = 1, d do
    local width = {}
    for j = 1, d do width[j] = j == k and shape[k] or 1 end
    counts = counts / edges[k]:diff():reshape(width)
  end
  return counts, edges
end

-- --- reductions that ignore NaN ---

local function extreme(name, filler)
  return function(x, ...)
    need("nan" .. name, "x", x)
    if not x.dtype:find "f%d" then return x["a" .. name](x, ...) end
    local known = x:isnan():logical_not()
    local y = core.where(known, x, filler)["a" .. name](core.where(known, x, filler), ...)
    return core.where(known:any(...), y, 0 / 0)
  end
end

--- The maximum of the elements that are not NaN; arguments as for amax.
M.nanmax = extreme("max", -math.huge)

--- The minimum of the elements that are not NaN; arguments as for amin.
M.nanmin = extreme("min", math.huge)

--- The variance of the elements that are not NaN.
-- @param opts {dims = all, correction = 1, keepdim = false}
function M.nanvar(x, opts)
  local o = options.check("nanvar", opts,
    {dim = options.none, dims = options.none, correction = 1, keepdim = false})
  need("nanvar", "x", x)
  local dims = o.dims or o.dim
  local known = x:isnan():logical_not()
  local mean = x:nanmean{dims = dims, keepdim = true}
  local off = core.where(known, x - mean, 0)
  local count = known:sum{dims = dims, keepdim = o.keepdim}
  local free = (count - o.correction):clamp(0):to(x.dtype)
  return (off * off):sum{dims = dims, keepdim = o.keepdim} / free
end

--- The standard deviation of the elements that are not NaN; options as for nanvar.
function M.nanstd(x, opts) return M.nanvar(x, opts):sqrt() end

-- --- distances ---

--- The p-norms of a - b along the last dim, with eps added to each difference.
-- @param opts {p = 2, eps = 1e-6, keepdim = false}
function M.pairwise_distance(a, b, opts)
  local o = options.check("pairwise_distance", opts, {p = 2, eps = 1e-6, keepdim = false})
  return (need("pairwise_distance", "a", a) - b + o.eps):norm(o.p, {-1}, {keepdim = o.keepdim})
end

--- The p-norm distances (p = 2 by default) between all pairs of rows, those of the first row first.
function M.pdist(x, p)
  if need("pdist", "x", x):dim() ~= 2 then
    fail("pdist: x is a matrix, a row for each point, got %s", tostring(x.shape))
  end
  local n = x:size(1)
  local pairs_of = core.ones({n, n}, {device = x.device}):triu(1):nonzero()
  local a, b = x:index_select(1, pairs_of:select(2, 1)), x:index_select(1, pairs_of:select(2, 2))
  return (a - b):norm(p or 2, {2})
end

-- --- curves ---

--- The coefficients of the least-squares polynomial fit to points, the highest power first.
function M.polyfit(x, y, degree)
  need("polyfit", "x", x)
  need("polyfit", "y", y)
  if x:dim() ~= 1 or y:dim() == 0 or y:size(1) ~= x:numel() or math.type(degree) ~= "integer"
      or degree < 0 then
    fail("polyfit: x is a vector, y has as many rows, and the degree is at least 0; got %s, %s, %s",
      tostring(x.shape), tostring(y.shape), tostring(degree))
  end
  local powers = x:vander(degree + 1)
  local scale = (powers * powers):sum(1):sqrt()
  local found = core.lstsq(powers / scale, y)
  return y:dim() == 1 and found / scale or found / scale:unsqueeze(2)
end

--- Unwraps a sequence of angles: adds multiples of the period, so that neighbours differ by at most
-- half a period.
-- @param opts {dim = -1, period = 2 pi}
function M.unwrap(x, opts)
  local o = options.check("unwrap", opts, {dim = -1, period = 2 * math.pi})
  local step, half = need("unwrap", "x", x):diff{dim = o.dim}, o.period / 2
  local short = (step + half):remainder(o.period) - half
  short = core.where(short:eq(-half):logical_and(step:gt(0)), half, short)
  local turns = core.where(step:abs():lt(half), 0, short - step):cumsum(o.dim)
  local first = x:narrow(o.dim, 1, math.min(1, x:size(o.dim)))
  local rest = x:narrow(o.dim, math.min(2, x:size(o.dim) + 1), step:size(o.dim))
  return core.cat({first, rest + turns}, o.dim)
end

return M
