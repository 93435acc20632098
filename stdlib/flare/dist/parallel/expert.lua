--- Expert parallel training: each rank of a group has some experts of every nn.MoE, and its own
-- tokens. Tokens go to the ranks of their experts by an all-to-all, and the results back by another
-- (arXiv:2006.16668). All parts have the size of the largest one.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local layers = require "flare.dist.parallel.layers"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Weights whose gradient is divided by the number of ranks: the sum over all tokens becomes the
-- mean over the ranks, as data parallel training has it.
local averaged = core.func{
  name = "average_gradient",
  forward = function(ctx, w, n)
    ctx.n = n
    return w:view(w.shape)
  end,
  backward = function(ctx, dw) return dw / ctx.n, nil end,
}

-- Where the rows of each expert lie among the parts of `most` rows, one part for each rank, and
-- how many rows the parts hold: positions of the rows, from 1.
local function places(counts, of_part, most)
  local list, n = {}, 0
  for part = 1, #counts // of_part do
    local at = (part - 1) * most
    for e = (part - 1) * of_part + 1, part * of_part do
      for _ = 1, counts[e] do
        n, at = n + 1, at + 1
        list[n] = at
      end
    end
  end
  return list
end

-- The rows that arrived, in the order of experts: for each expert those of rank 1, rank 2 and so
-- on. counts[r][e] of rank r and own expert e.
local function order_of(counts, of_part, most)
  local list, ends, n = {}, {}, 0
  for e = 1, of_part do
    for r, own in ipairs(counts) do
      local at = (r - 1) * most
      for before = 1, e - 1 do at = at + own[before] end
      for k = 1, own[e] do
        n = n + 1
        list[n] = at + k
      end
    end
    ends[e] = n
  end
  return list, ends
end

local function index(list, device)
  return core.tensor(list, {dtype = "i64", device = device})
end

-- Rows in the order of all experts -> their results, by way of the ranks of the experts.
local function exchange(self, apply, group, x, ends)
  local n, of_part = group.size, self.experts // group.size
  local device, width = x.device, x:size(2)
  local counts, before = ends:tolist(), 0
  for e, last in ipairs(counts) do counts[e], before = last - before, last end
  -- numbers of rows, of which the largest part of any rank decides the size of all parts
  local theirs = group:all_to_all(core.tensor(counts, {dtype = "i64"}):view(n, of_part)):tolist()
  local most = 0
  for part = 1, n do
    local sum = 0
    for e = 1, of_part do sum = sum + counts[(part - 1) * of_part + e] end
    most = math.max(most, sum)
  end
  most = group:all_reduce(core.tensor({most}, {dtype = "i64"}), {reduce = "max"}):item()
  if most == 0 then return apply(self, x, ends) end
  local sent = places(counts, of_part, most)
  local kept = #sent -- rows above the capacity are behind the last group, and have no result
  local at = index(sent, device)
  local room = core.zeros({n * most, width}, {dtype = x.dtype, device = device})
  local came = group:all_to_all(room:index_copy(1, at, x:narrow(1, 1, kept)))
  local mine, own_ends = order_of(theirs, of_part, most)
  mine = index(mine, device)
  local y = apply(self, came:index_select(1, mine), index(own_ends, device))
  local back = group:all_to_all(core.zeros({n * most, y:size(2)},
    {dtype = y.dtype, device = device}):index_copy(1, mine, y))
  y = back:index_select(1, at)
  if kept < x:size(1) then
    y = core.cat({y, core.zeros({x:size(1) - kept, y:size(2)},
      {dtype = y.dtype, device = device})}, 1)
  end
  return y
end

-- The bias of the choice moves by the load of all ranks, so that it stays the same on them.
local function share_bias(layer, group)
  if not layer.bias then return end
  local note = layer.note
  rawset(layer, "note", function(self, load, p, logits)
    local before = self.bias:clone()
    note(self, load, p, logits)
    if not (self.training and logits.requires_grad) then return end
    local _ <close> = core.no_grad()
    local count = group:all_reduce(load):to(before.dtype)
    self.bias:copy_(before + (count:mean() - count):sign() * self.bias_balance)
  end)
end

--- Divides the experts of all nn.MoE layers of a model among the ranks of a mesh's axis, in place.
-- Each rank has its own part of the batch, as in data parallel training; all start with the same
-- model. Gradients of experts are then those of the mean over the ranks' losses; for the others
-- call dist.average_gradients(model, mesh) after backward.
-- @param model a module with nn.MoE layers
-- @param mesh from dist.mesh, or a group
-- @param o.axis the mesh's axis, default "ep"
-- @return the model
function M.expert_parallel(model, mesh, o)
  o = options.check("expert_parallel", o, {axis = "ep"})
  if not walk.is_module(model) then
    fail("expert_parallel: a model is expected, got %s", options.kind(model))
  end
  local group = require "flare.dist.parallel.axis"("expert_parallel", mesh, o.axis)
  local MoE, found = require("flare.nn").MoE, false
  for name, layer in model:named_modules() do
    if class.is(layer, MoE) then
      found = true
      layers.divisible("expert_parallel", (name == "" and "the layer" or name) .. " has %d experts",
        layer.experts, group)
      layers.divide(layer, {gate_proj = 1, up_proj = 1, down_proj = 1}, group, "expert")
      share_bias(layer, group)
      local run_experts = layer.run_experts
      local stands_for = {__index = layer, __metatable = getmetatable(layer)}
      local function scaled(self, x, ends)
        local weights = {}
        for _, key in ipairs {"gate_proj", "up_proj", "down_proj"} do
          weights[key] = self[key] and averaged(self[key], group.size)
        end
        return run_experts(setmetatable(weights, stands_for), x, ends)
      end
      rawset(layer, "run_experts", function(self, x, ends)
        return exchange(self, scaled, group, x, ends)
      end)
    end
  end
  if not found then
    fail("expert_parallel: this %s has no nn.MoE", getmetatable(model).__name)
  end
  require("flare.dist.parallel.state").replace_save(model)
  return model
end

--- Averages the gradients of a model over the ranks that have other parts of the batch or of the
-- sequence. Gradients of divided experts, which have seen all tokens of their axis, are left out
-- there.
-- @param model a module
-- @param mesh from dist.mesh: its axes dp, ep and cp; or a group
-- @return the model
function M.average_gradients(model, mesh)
  local Group = require "flare.dist.group"
  local average = require "flare.dist.parallel.average"
  local groups = {}
  if class.is(mesh, Group) then
    groups[1] = mesh
  elseif type(mesh) == "table" and type(mesh.axes) == "table" then
    for _, axis in ipairs {"dp", "ep", "cp"} do groups[#groups + 1] = mesh[axis] end
  end
  if #groups == 0 then
    fail("average_gradients: a group is expected, or a mesh with an axis dp, ep or cp, got %s",
      type(mesh) == "table" and mesh.axes and "axes " .. table.concat(mesh.axes, ", ")
        or options.kind(mesh))
  end
  for _, group in ipairs(groups) do
    local grads, missing = {}, nil
    walk.visit(model, function(name, p, owner, key)
      local split = rawget(owner, "_split")
      split = split and split[key]
      local experts = split and split.kind == "expert" and split.group == group
      if p.requires_grad and not experts then
        missing = missing or not p.grad and name or nil
        grads[#grads + 1] = p.grad
      end
    end, "parameter")
    if missing then
      fail("average_gradients: '%s' has no gradient", missing)
    end
    average(grads, group, "mean")
  end
  return model
end

return M
