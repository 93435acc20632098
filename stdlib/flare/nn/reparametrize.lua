--- Weights that are made of other parameters before every forward: by a function, of a length and a
-- direction, or divided by their largest singular value. The names of the parts are PyTorch's.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

--- Takes the weight out of the module's fields and lets `make(module)` put another one there before
-- each forward. `parts`: for each end of the names of what it is made of, what PyTorch calls it
-- below "parametrizations", false for the same. The module keeps make and parts, by which
-- remove_parametrization and nn.to_pytorch go.
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
  local function hook(layer) layer[name] = make(layer) end
  made[name] = {hook = hook, parts = parts}
  rawset(module, "_made", made)
  module[name] = nil
  module:register_forward_pre_hook(hook)
  return weight
end

--- Ends what weight_norm, spectral_norm, parametrize or prune began: the weight as it is now is a
-- parameter again.
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

--- Lets a layer use f of what it learns: <name>_orig is learned, f makes the weight of it before
-- each forward.
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
    if tostring(weight.shape) ~= tostring(layer[orig].shape) then
      fail("parametrize: of %s %s the function makes %s", name, tostring(layer[orig].shape),
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

--- Lets a layer learn the length and the direction of its weight apart: <name>_g and <name>_v
-- (arXiv:1602.07868).
-- @param module a layer
-- @param opts {name = "weight", dim = 1}: each position of dim has a length, all together one with
--   dim = false
-- @return the layer
function M.weight_norm(module, opts)
  opts = opts or {}
  local dim = opts.dim
  if dim == nil then dim = 1 end
  local o = options.check("weight_norm", opts, {name = "weight", dim = options.none})
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

--- Divides a layer's weight by its largest singular value, which each forward while training
-- estimates anew by power iteration (arXiv:1802.05957). The weight that is learned is <name>_orig,
-- the vectors are <name>_u and <name>_v.
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
