--- Weights that are made of other parameters before every forward: their length apart from their
-- direction, or divided by their largest singular value. The names of the parts are PyTorch's.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Takes the weight out of the module's fields and lets `make(module)` put another one there.
local function replace(where, module, name, least, make)
  if not walk.is_module(module) then
    fail("%s: a layer is expected, got %s", where, options.kind(module))
  elseif not core.is_tensor(module[name]) then
    fail("%s: the layer has no tensor '%s'", where, tostring(name))
  elseif module[name]:dim() < least then
    fail("%s: '%s' has %d dims, at least %d are needed", where, name, module[name]:dim(), least)
  end
  local weight = module[name]:detach()
  module[name] = nil
  module:register_forward_pre_hook(function(layer) layer[name] = make(layer) end)
  return weight
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
  local weight = replace("weight_norm", module, o.name, 1, make)
  module[v], module[g] = module:param(weight:clone()), module:param(length(weight))
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
  local weight = replace("spectral_norm", module, o.name, 2, make)
  local shape, like = matrix(weight).shape, {dtype = weight.dtype, device = weight.device}
  module[orig] = module:param(weight:clone())
  module[left] = module:buffer(unit(core.randn({shape[1]}, like)))
  module[right] = module:buffer(unit(core.randn({shape[2]}, like)))
  iterate(module, 15)
  module[o.name] = make(module)
  return module
end

return M
