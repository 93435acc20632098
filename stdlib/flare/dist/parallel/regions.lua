--- The boundaries of regions in which the ranks of a group compute parts of one thing. Outside of a
-- region all ranks have the same tensor (or, with split sequences, each its own positions); inside,
-- each works on its heads, columns or experts. Every boundary is a pair of collectives, one for
-- forward and one for its gradient:
--
--     boundary     forward          backward
--     copy         nothing          all-reduce        into a region, from whole tensors
--     reduce       all-reduce       nothing           out of it: partial sums become whole
--     gather       all-gather       reduce-scatter    into a region, from split sequences
--     scatter      reduce-scatter   all-gather        out of it: partial sums, split
--     own          own part         all-gather        from whole tensors to split ones
--     join         all-gather       own part          from split tensors to whole ones
--
-- (arXiv:1909.08053 has the first pair, f and g, arXiv:2205.05198 the second.)
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

M.copy = core.func{
  name = "copy_to_ranks",
  forward = function(ctx, x, group)
    ctx.group = group
    return x:view(x.shape)
  end,
  backward = function(ctx, dy) return ctx.group:all_reduce(dy), nil end,
}

M.reduce = core.func{
  name = "reduce_from_ranks",
  forward = function(_, x, group) return group:all_reduce(x) end,
  backward = function(_, dy) return dy, nil end,
}

-- Collectives work along dim 1: calls f with that dim first.
local function first(x, dim, f)
  if dim == 1 then return f(x:contiguous()) end
  return f(x:transpose(1, dim):contiguous()):transpose(1, dim)
end

--- The rank's part of x along a dim: positions from 1.
-- @return first position and number of positions
function M.range(where, what, n, group)
  if n % group.size ~= 0 then
    fail("%s: rank %d: %s has size %d, which %d ranks cannot share equally", where,
      group.ranks[group.rank + 1], what, n, group.size)
  end
  local part = n // group.size
  return group.rank * part + 1, part
end

local function part_of(x, group, dim)
  dim = dim < 0 and x:dim() + 1 + dim or dim
  local at, n = M.range("dist", ("dim %d of a tensor (%s)"):format(dim,
    table.concat(x.shape, ", ")), x:size(dim), group)
  return x:narrow(dim, at, n)
end

local function joined(x, group, dim)
  dim = dim < 0 and x:dim() + 1 + dim or dim
  return first(x, dim, function(y) return group:all_gather(y) end)
end

local function reduced(x, group, dim)
  part_of(x, group, dim) -- checks the size
  return first(x, dim, function(y) return group:reduce_scatter(y) end)
end

local function pair(name, forward, backward)
  return core.func{
    name = name,
    forward = function(ctx, x, group, dim)
      ctx.group, ctx.dim = group, dim
      return forward(x, group, dim)
    end,
    backward = function(ctx, dy) return backward(dy, ctx.group, ctx.dim), nil, nil end,
  }
end

M.gather = pair("gather_from_ranks", joined, reduced)
M.scatter = pair("reduce_scatter_from_ranks", reduced, joined)
M.own = pair("own_part", function(x, group, dim) return part_of(x, group, dim):clone() end, joined)
M.join = pair("join_parts", joined, part_of)

-- Ends a stretch of own random numbers: the seed of all ranks, behind what was drawn.
local Own = {}
function Own.__close(own)
  local _, drawn = own.generator:state()
  own.generator:set_state(own.seed, drawn)
end

--- Runs f(...) with random numbers of the rank's own. They follow from the state of the default
-- generator, so a checkpoint draws them again, and the ranks' generators stay in step.
function M.with_own_random(group, f, ...)
  local generator = core.default_generator()
  local seed, offset = generator:state()
  local _ <close> = setmetatable({generator = generator, seed = seed}, Own)
  generator:set_state((seed ~ (group.rank + 1) * 0x5851F42D4C957F2D) & math.maxinteger, offset)
  return f(...)
end

--- Lets a module compute with parameters whose gradients are the sums over the ranks: all have the
-- same parameters and different inputs.
function M.share_parameters(module, group)
  local forward = module.forward
  local names = {}
  for name in next, rawget(module, "_tensors") or {} do names[#names + 1] = name end
  table.sort(names) -- collectives of backward come in one order on all ranks
  rawset(module, "forward", function(self, ...)
    local stand_in = {}
    for _, name in ipairs(names) do
      local p = self[name]
      stand_in[name] = p and p.requires_grad and M.copy(p, group) or p
    end
    return forward(setmetatable(stand_in, {__index = self}), ...)
  end)
end

return M
