--- Layers that are divided among the ranks of a group. Each is made of an ordinary layer, keeps the
-- rank's part of its parameters, and notes in `_split` how they were cut, so that checkpoints can
-- be put together again.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local regions = require "flare.dist.parallel.regions"
local Module = require "flare.nn.module"

local M = {}

--- Which rows of `total` the rank has; only vocabularies may be uneven.
-- @return first row, number of rows, number of the largest part
function M.rows(total, group)
  local most = (total + group.size - 1) // group.size
  local at = math.min(group.rank * most, total)
  return at + 1, math.min(most, total - at), most
end

--- The rank's part of a tensor. @param split {dim, parts = 1, group}
function M.cut(x, split)
  local dim, n = split.dim, x:size(split.dim) // split.parts
  local at, count = M.rows(n, split.group)
  local list = {}
  for k = 1, split.parts do list[k] = x:narrow(dim, (k - 1) * n + at, count) end
  return #list == 1 and list[1]:clone() or core.cat(list, dim)
end

--- The whole tensor of the ranks' parts, the inverse of cut.
-- @param total its size along the dim
function M.whole(x, split, total)
  local group, dim, n = split.group, split.dim, total // split.parts
  local _, mine, most = M.rows(n, group)
  local blocks = {}
  for k = 1, split.parts do
    local block = x:narrow(dim, (k - 1) * mine + 1, mine):transpose(1, dim):contiguous()
    if mine < most then
      local shape = {table.unpack(block.shape)}
      shape[1] = most - mine
      block = core.cat({block, core.zeros(shape, {dtype = x.dtype, device = x.device})}, 1)
    end
    blocks[k] = group:all_gather(block):narrow(1, 1, n):transpose(1, dim)
  end
  return core.cat(blocks, dim):contiguous()
end

-- Takes the rank's part of a parameter of `layer`; tied parameters are cut once.
local function take(self, layer, key, split, o)
  local p = layer[key]
  if not p then return end
  local part = o.seen[p.id]
  if not part then
    part = core.no_grad(M.cut, p:detach(), split):requires_grad_(p.requires_grad)
    o.seen[p.id] = part
  end
  self:param(part):requires_grad_(p.requires_grad)
  self[key] = part
  self._split[key] = {dim = split.dim, parts = split.parts, group = split.group,
    total = p:size(split.dim)}
end

--- Cuts parameters of a module in place.
-- @param dims by name of parameter @param kind a word that the splits note
function M.divide(module, dims, group, kind)
  local names = {}
  for name in pairs(dims) do names[#names + 1] = name end
  table.sort(names)
  if not rawget(module, "_split") then rawset(module, "_split", {}) end
  for _, name in ipairs(names) do
    local p = module[name]
    if p then
      local split = {dim = dims[name], parts = 1, group = group, kind = kind,
        total = p:size(dims[name])}
      local part = core.no_grad(M.cut, p:detach(), split)
      module[name] = module:param(part)
      part:requires_grad_(p.requires_grad)
      module._split[name] = split
    end
  end
end

local function divisible(where, what, n, group)
  if n % group.size ~= 0 then
    fail("%s: rank %d: %s, which %d ranks cannot share equally", where,
      group.ranks[group.rank + 1], what:format(n), group.size)
  end
end
M.divisible = divisible

---------------------------------------------------------------- linear layers

local ColumnLinear = class("ColumnLinear", Module)

--- A linear layer of which each rank has some outputs: y_r = act(x W_r^T + b_r).
-- @param linear an nn.Linear @param o {group, name, parts = blocks of outputs that are cut alike,
--   enter = what brings x into the region, unit = outputs that stay together, uneven, seen}
function ColumnLinear:init(linear, o)
  local group, parts, unit = o.group, o.parts or 1, o.unit or 1
  if not o.uneven then
    divisible("tensor_parallel", ("%s has %%d %s"):format(o.name, unit > 1 and "heads"
      or parts > 1 and "outputs in each part" or "outputs"), linear.outputs // parts // unit, group)
  end
  rawset(self, "_split", {})
  self.inputs, self.act, self.enter = linear.inputs, linear.act, o.enter
  local split = {dim = 1, parts = parts, group = group}
  take(self, linear, "weight", split, o)
  take(self, linear, "bias", split, o)
  self.outputs = self.weight:size(1)
end

--- The product, without the boundary of the region.
function ColumnLinear:product(x)
  return (core.linear(x, self.weight, self.bias, self.act))
end

function ColumnLinear:forward(x)
  if self.enter then x = self.enter(x) end
  return self:product(x)
end

function ColumnLinear:describe()
  return ("%d -> %d of %d"):format(self.inputs, self.outputs, self._split.weight.total)
end

local RowLinear = class("RowLinear", Module)

--- A linear layer of which each rank has some inputs: y = sum over the ranks of x_r W_r^T, and b.
-- @param o {group, name, leave = what brings the sums out of the region, shared = whether the
--   result is split along the sequence, seen}
function RowLinear:init(linear, o)
  divisible("tensor_parallel", o.name .. " has %d inputs", linear.inputs, o.group)
  if linear.act ~= "none" then
    fail("tensor_parallel: %s has the activation %s, which needs the sum over the ranks: apply it "
      .. "behind the layer", o.name, linear.act)
  end
  rawset(self, "_split", {})
  self.outputs, self.leave, self.shared = linear.outputs, o.leave, o.shared
  take(self, linear, "weight", {dim = 2, parts = 1, group = o.group}, o)
  if linear.bias then self.bias = self:param(linear.bias) end
  self.inputs = self.weight:size(2)
end

--- The rank's product, before the sum.
function RowLinear:product(x) return (core.linear(x, self.weight)) end

function RowLinear:forward(x)
  local y, bias = self.leave(self:product(x)), self.bias
  if not bias then return y end
  return y + (self.shared and regions.copy(bias, self._split.weight.group) or bias)
end

function RowLinear:describe()
  return ("%d of %d -> %d"):format(self.inputs, self._split.weight.total, self.outputs)
end

---------------------------------------------------------------- vocabularies

local VocabularyEmbedding = class("VocabularyEmbedding", Module)

--- An embedding of which each rank has some rows; what the ranks look up adds up.
function VocabularyEmbedding:init(embedding, o)
  if embedding.max_norm or embedding.padding then
    fail("tensor_parallel: %s has %s, which a divided embedding has not", o.name,
      embedding.max_norm and "max_norm" or "padding")
  end
  rawset(self, "_split", {})
  self.width, self.base, self.leave = embedding.width, embedding.base, o.leave
  self.first, self.rows = M.rows(embedding.rows, o.group)
  if self.rows == 0 then
    fail("tensor_parallel: rank %d: %s has %d rows, too few for %d ranks",
      o.group.ranks[o.group.rank + 1], o.name, embedding.rows, o.group.size)
  end
  take(self, embedding, "weight", {dim = 1, parts = 1, group = o.group}, o)
end

function VocabularyEmbedding:forward(index)
  local at = index - (self.first - 1 + self.base) -- from 0
  local mine = at:ge(0):logical_and(at:lt(self.rows))
  local rows = core.embedding(self.weight, at:clamp(0, self.rows - 1), {base = 0})
  return self.leave(rows * mine:unsqueeze(-1):to(rows.dtype))
end

function VocabularyEmbedding:describe()
  return ("%d of %d, %d"):format(self.rows, self._split.weight.total, self.width)
end

-- Cross entropy of logits whose classes are divided. The kernel of the operator works on the rank's
-- classes; of each position the ranks exchange its log-sum-exp and the target's logit.
local parted_cross_entropy = core.func{
  name = "parted_cross_entropy",
  forward = function(ctx, logits, target, group, first, ignore)
    local at, classes = target - first, logits:size(2)
    local mine = at:ge(0):logical_and(at:lt(classes))
    at = at:clamp(0, classes - 1)
    local y, lse, total = core.cross_entropy(logits, at, {reduction = "none", base = 0, all = true})
    local wide = lse.dtype
    mine = mine:to(wide)
    local most = group:all_reduce(lse, {reduce = "max"})
    local sums = group:all_reduce(core.stack({(lse - most):exp(), (lse - y - most) * mine}, 1))
    local rest = sums[1]:log()
    local counted = target:ne(ignore):to(wide)
    local count = counted:sum()
    ctx:save(logits, most + rest, total, at, mine, counted / count)
    return ((rest - sums[2]) * counted):sum() / count
  end,
  backward = function(ctx, dy)
    local logits, lse, total, at, mine, share = table.unpack(ctx.saved)
    share = share * dy
    local dx = core.cross_entropy_backward(share, logits, at, nil, lse, total,
      {reduction = "none", base = 0})
    -- where the target is another rank's, no 1 is subtracted
    at = at:unsqueeze(2)
    local p = (logits:gather(2, at, {base = 0}):squeeze(2):to(lse.dtype) - lse):exp()
    dx:scatter_(2, at, ((p - mine) * share):unsqueeze(2):to(dx.dtype), {base = 0})
    return dx, nil, nil, nil, nil
  end,
}

--- The mean cross entropy of logits (n, own classes) and targets (n) that count from 0.
-- @param head the ColumnLinear that made the logits @param ignore the target that is left out
function M.cross_entropy(head, logits, target, ignore)
  local split = head._split.weight
  local first = M.rows(split.total, split.group) - 1
  return parted_cross_entropy(logits, target, split.group, first, ignore or -100)
end

M.ColumnLinear, M.RowLinear, M.VocabularyEmbedding = ColumnLinear, RowLinear, VocabularyEmbedding
return M
