--- Pruning: holds a part of the weights at zero.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local reparametrize = require "flare.nn.reparametrize"
local walk = require "flare.nn.walk"

local none = options.none

-- The number of weights of n: `amount` itself, or that fraction of n.
local function count(amount, n)
  if math.type(amount) == "float" and amount >= 0 and amount <= 1 then
    return math.floor(amount * n + 0.5)
  elseif math.type(amount) == "integer" and amount >= 0 and amount <= n then
    return amount
  end
  fail("prune: amount must be a fraction from 0.0 to 1.0 or a number of up to %d, got %s", n,
       tostring(amount))
end

-- The importance of each element, or of each slice along o.dim.
local function worth(o, weight)
  if o.dim then
    local n, dims = weight:dim(), {}
    local dim = math.type(o.dim) == "integer" and o.dim < 0 and n + 1 + o.dim or o.dim
    for d = 1, n do
      if d ~= dim then dims[#dims + 1] = d end
    end
    if #dims == n then fail("prune: dim %s is not among 1 to %d", tostring(o.dim), n) end
    weight = weight:norm{p = o.p, dims = dims, keepdim = true}
  end
  return o.by == "random" and core.rand(weight.shape, {device = weight.device}) or weight:abs()
end

--- Prunes the weights with the smallest magnitude: they stay zero in training. As in PyTorch,
-- <name>_orig is the parameter and <name>_mask a buffer. Another call prunes its amount of the
-- remaining weights. nn.remove_parametrization makes the product a plain parameter again.
-- @param layers a layer, or a list of layers, whose weights are compared with each other
-- @param amount a fraction from 0.0 to 1.0, or a number of weights
-- @param opts {name = "weight", by = "size" or "random", dim = prune whole slices along it by
--   their norm, p = 2 for the p-norm}
-- @return layers
return function(layers, amount, opts)
  local o = options.check("prune", opts, {name = "weight", by = "size", dim = none, p = 2})
  if o.by ~= "size" and o.by ~= "random" then
    fail("prune: by is 'size' or 'random', got '%s'", o.by)
  end
  local list = walk.is_module(layers) and {layers} or layers
  if type(list) ~= "table" or #list == 0 then
    fail("prune: a layer or a list of them is expected, got %s", options.kind(layers))
  end
  local orig, mask = o.name .. "_orig", o.name .. "_mask"
  local function make(layer) return layer[orig] * layer[mask] end
  local _ <close> = core.no_grad()
  for _, layer in ipairs(list) do
    if not (walk.is_module(layer) and layer[mask]) then
      local weight = reparametrize.replace("prune", layer, o.name, 1, {orig = false, mask = false},
                                           make)
      layer[orig] = layer:param(weight:clone())
      layer[mask] = layer:buffer(core.ones_like(weight))
    end
  end
  local scores, left = {}, 0
  for i, layer in ipairs(list) do
    local each = worth(o, layer[orig])
    local open = worth({dim = o.dim, p = 1}, layer[mask])
    scores[i] = {shape = each.shape, each:masked_fill(open:eq(0), math.huge):reshape(-1)}
    left = left + open:count_nonzero():item()
  end
  local all = {}
  for i, each in ipairs(scores) do all[i] = each[1] end
  all = core.cat(all, 1)
  local gone = all:argsort():narrow(1, 1, count(amount, left))
  local keep, at = core.ones_like(all):index_fill(1, gone, 0), 1
  for i, layer in ipairs(list) do
    local n = scores[i][1]:numel()
    layer[mask]:mul_(keep:narrow(1, at, n):view(scores[i].shape))
    at = at + n
    layer[o.name] = make(layer)
  end
  return layers
end
