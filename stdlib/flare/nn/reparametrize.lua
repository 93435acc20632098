--- Reparametrization: weights that are computed from other parameters before every forward, by any
-- function, by weight normalization or by spectral normalization. The parameters have the names
-- that they have in PyTorch.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

--- Removes the weight from the module's fields; before each forward, `make(module)` computes it.
-- `parts`: by the suffixes of the parameters' names, their names in PyTorch below
-- "parametrizations", or false for the same name. The module keeps make and parts for
-- remove_parametrization and nn.to_pytorch.
function M.replace(where, module, name, least, parts, make)
  if not walk.is_module(module) then
    fail("%s: a layer is expected, got %s", where, options.kind(module))
  end
  local made = rawget(module, "_made") or {}
  if made[name] then
    fail("%s: '%s' is made of other parameters; nn.remove_parametrization ends that", where, name)
  elseif not core.is_tensor(module[name]) then
    fail("%s: the layer has no tensor '%s'", where, tostring(name))
  elseif module[name]:dim() < least then
    fail("%s: '%s' has %d dims, at least %d are needed", where, name, module[name]:dim(), least)
  end
  local weight = module[name]:detach()
  -- `_made[name].last` is what the hook assigned, in a clone its copy
  local function hook(layer)
    local entry, value = layer._made[name], rawget(layer, name)
    if value ~= nil and entry.last and not rawequal(value, entry.last) then
      fail("%s: '%s' is computed from other parameters before each forward, and what was assigned "
        .. "would be lost; nn.remove_parametrization makes it a parameter", where, name)
    end
    entry.last = make(layer)
    layer[name] = entry.last
  end
  made[name] = {hook = hook, parts = parts}
  rawset(module, "_made", made)
  module[name] = nil
  module:register_forward_pre_hook(hook)
  return weight
end

--- Undoes weight_norm, spectral_norm, parametrize or prune: the weight, with its current value, is
-- a parameter again.
-- @param module a layer
-- @param opts {name = "weight"}
-- @return the layer
function M.remove_parametrization(module, opts)
  local name = options.check("remove_parametrization", opts, {name = "weight"}).name
  local made = walk.is_module(module) and rawget(module, "_made")
  if not made or not made[name] then
    fail("remove_parametrization: '%s' is not made of other parameters", tostring(name))
  end
  local hook, parts = made[name].hook, made[name].parts
  core.no_grad(function() hook(module) end)
  require("flare.nn.hooks").remove(module, "before", hook)
  for part in pairs(parts) do module[name .. "_" .. part] = nil end
  made[name] = nil
  local weight = module[name]:detach():clone()
  module[name] = nil -- the computed one
  module[name] = module:param(weight)
  return module
end

--- Parametrizes a weight: before each forward it is computed as f(<name>_orig), where <name>_orig
-- is the parameter.
-- @param module a layer
-- @param f a function or a module, which becomes the field <name>_map
-- @param opts {name = "weight"}
-- @return the layer
function M.parametrize(module, f, opts)
  local name = options.check("parametrize", opts, {name = "weight"}).name
  local orig, map = name .. "_orig", name .. "_map"
  if type(f) ~= "function" and not walk.is_module(f) then
    fail("parametrize: a function or a module is expected, got %s", options.kind(f))
  end
  local function make(layer)
    local weight = (layer[map] or f)(layer[orig])
    options.tensor("parametrize", "what the function returns", weight)
    if tostring(weight.shape) ~= tostring(layer[orig].shape) then
      fail("parametrize: the function turns %s %s into %s", name, tostring(layer[orig].shape),
           tostring(weight.shape))
    end
    return weight
  end
  local weight = M.replace("parametrize", module, name, 0, {orig = "original", map = false},
                           make)
  if type(f) ~= "function" then module[map] = f end
  module[orig] = module:param(weight:clone())
  module[name] = make(module)
  return module
end

-- All dims but one; all of them for `false`.
local function others(weight, dim)
  local dims = {}
  for d = 1, weight:dim() do
    if d ~= dim then dims[#dims + 1] = d end
  end
  return dims
end

--- Weight normalization (arXiv:1602.07868): the weight is g * v / |v|, with the parameters
-- <name>_g, the norm, and <name>_v, the direction.
-- @param module a layer
-- @param opts {name = "weight", dim = 1}: one norm for each position of dim; dim = false: one norm
--   for the whole weight
-- @return the layer
function M.weight_norm(module, opts)
  local o = options.check("weight_norm", opts, {name = "weight", dim = options.none})
  local dim = o.dim
  if dim == nil then dim = 1 end
  local g, v = o.name .. "_g", o.name .. "_v"
  local function length(x) return x:norm{dims = others(x, dim), keepdim = true} end
  local function make(layer) return layer[v] * (layer[g] / length(layer[v])) end
  local weight = M.replace("weight_norm", module, o.name, 1,
                           {g = "original0", v = "original1"}, make)
  module[g] = module:param(length(weight))
  module[v] = module:param(weight:clone())
  module[o.name] = make(module)
  return module
end

--- Spectral normalization (arXiv:1802.05957): divides a layer's weight by its largest singular
-- value. In training, each forward refines the estimate of it by power iteration. The parameter is
-- <name>_orig, the singular vectors are the buffers <name>_u and <name>_v.
-- @param module a layer
-- @param opts {name = "weight", dim = 1 (2 for transposed convolutions), iterations = 1,
--   eps = 1e-12}: the matrix has a row for each position of dim
-- @return the layer
function M.spectral_norm(module, opts)
  local o = options.check("spectral_norm", opts,
                          {name = "weight", dim = options.none, iterations = 1, eps = 1e-12})
  local transposed = tostring(getmetatable(module) and getmetatable(module).__name)
  local dim = o.dim or transposed:find "^ConvTranspose" and 2 or 1
  local orig, left, right = o.name .. "_orig", o.name .. "_u", o.name .. "_v"
  local function matrix(w) return w:movedim(dim, 1):flatten(2) end
  local function unit(x) return x / x:norm():clamp(o.eps) end
  local function iterate(layer, times)
    local _ <close> = core.no_grad()
    local w = matrix(layer[orig])
    for _ = 1, times do
      layer[right]:copy_(unit(w:t():matmul(layer[left])))
      layer[left]:copy_(unit(w:matmul(layer[right])))
    end
  end
  local function make(layer)
    if layer.training then iterate(layer, o.iterations) end
    -- copies, since the next forward writes what this one's gradient needs
    local u, v = layer[left]:clone(), layer[right]:clone()
    return layer[orig] / u:dot(matrix(layer[orig]):matmul(v))
  end
  local weight = M.replace("spectral_norm", module, o.name, 2,
                           {orig = "original", u = "0._u", v = "0._v"}, make)
  local shape, like = matrix(weight).shape, {dtype = weight.dtype, device = weight.device}
  module[orig] = module:param(weight:clone())
  module[left] = module:buffer(unit(core.randn({shape[1]}, like)))
  module[right] = module:buffer(unit(core.randn({shape[2]}, like)))
  iterate(module, 15)
  module[o.name] = make(module)
  return module
end

return M
