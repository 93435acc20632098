--- The public table: every operator and tool of the core, and the library's parts, loaded
-- when first touched. Nothing global is read or written.
--
--     local flare = require "flare"
--     local x = flare.tensor{{1, 2}, {3, 4}}
--     print(x:matmul(x))
local core = require "flare.core"

-- Errors are blamed on the nearest line that is not in a file beside this one.
if debug then core.library((debug.getinfo(1, "S").source:gsub("init%.lua$", ""))) end

-- Parts of the library; the file is loaded by the first use of the name.
local parts = {
  backends = "flare.backends",
  class = "flare.class",
  cuda = "flare.cuda",
  data = "flare.data",
  dist = "flare.dist",
  distributions = "flare.distributions",
  io = "flare.io",
  log = "flare.log",
  nn = "flare.nn",
  onnx = "flare.onnx",
  op = "flare.op",
  optim = "flare.optim",
  print = "flare.print",
  profile = "flare.profile",
  options = "flare.options",
}

-- Functions that are written in Lua, by their files; `methods` are those of tensors, too.
local functions = {
  atleast_1d = "flare.stacks", atleast_2d = "flare.stacks", atleast_3d = "flare.stacks",
  broadcast_tensors = "flare.stacks", column_stack = "flare.stacks", dstack = "flare.stacks",
  checkpoint = "flare.checkpoint",
  einsum = "flare.einsum", hstack = "flare.stacks", meshgrid = "flare.stacks",
  rearrange = "flare.rearrange", tensordot = "flare.einsum", vstack = "flare.stacks",
  hessian = "flare.derivatives", hvp = "flare.derivatives", jacobian = "flare.derivatives",
  help = "flare.help",
  jvp = "flare.derivatives", vjp = "flare.derivatives", vmap = "flare.vmap",
}
for name in ("block_diag fliplr flipud pad_sequence rot90 take_along_dim"):gmatch "%S+" do
  functions[name] = "flare.stacks"
end
for name in ("cartesian_prod combinations cond convolve diagonal_scatter dsplit equal gradient "
    .. "hsplit interp multi_dot polyval ravel_multi_index select_scatter slice_scatter "
    .. "tensor_split tensorinv tensorsolve tril_indices triu_indices unravel_index vecdot vsplit"
    ):gmatch "%S+" do
  functions[name] = "flare.arrays"
end
for name in ("histogramdd intersect1d nanmax nanmin nanstd nanvar pairwise_distance pdist polyfit "
    .. "setdiff1d union1d unwrap"):gmatch "%S+" do
  functions[name] = "flare.statistics"
end
local methods = {
  dsplit = "flare.arrays", equal = "flare.arrays", hsplit = "flare.arrays",
  tensor_split = "flare.arrays", vsplit = "flare.arrays", cond = "flare.arrays",
  diagonal_scatter = "flare.arrays", select_scatter = "flare.arrays",
  slice_scatter = "flare.arrays", vecdot = "flare.arrays",
  nanmax = "flare.statistics", nanmin = "flare.statistics", nanstd = "flare.statistics",
  nanvar = "flare.statistics",
  fliplr = "flare.stacks", flipud = "flare.stacks", rot90 = "flare.stacks",
  take_along_dim = "flare.stacks",
  rearrange = "flare.rearrange", reduce = "flare.rearrange", tensordot = "flare.einsum",
}
local there = core.methods()
for name, file in next, methods do
  if not there[name] then
    core.method(name, function(...) return require(file)[name](...) end)
  end
end

if not there.cuda then core.method("cuda", function(x) return x:to "cuda" end) end

--- `flare.newaxis` between the brackets of x[...] makes a dim of size 1.
local flare = {core = core, newaxis = "new"}

-- Methods that PyTorch has as functions, too.
for name in ("chunk detach numel split t unbind"):gmatch "%S+" do
  flare[name] = function(x, ...)
    if not core.is_tensor(x) then
      require("flare.fail")("%s: a tensor is expected, got %s", name, type(x))
    end
    return x[name](x, ...)
  end
end

-- The reader and writer of a file: NumPy's by its ending, else trees.
local function format_of(path)
  local ending = type(path) == "string" and path:match "%.(np[yz])$"
  return require(ending and "flare.io." .. ending or "flare.io.tree")
end

--- Writes a tree of tables, numbers, strings and tensors to one file, atomically; a tensor if
-- the path ends in .npy, a table of tensors if it ends in .npz. `flare.load` reads it back.
-- @return true, or nil and a message
function flare.save(path, tree)
  return format_of(path).save(path, tree)
end

--- Reads what `flare.save` wrote, an .npy or .npz file of NumPy's, or a safetensors file of others;
-- checksums are verified.
-- @return the tree, tensor or table of tensors, or nil and a message
function flare.load(path)
  return format_of(path).load(path)
end

--- Whether the gradients of f(inputs) are what differences say; see flare.gradcheck.check.
-- @return true, or nil and what differs
function flare.gradcheck(f, inputs, o)
  return require("flare.gradcheck").check(f, inputs, o)
end

--- The same for the gradients of the gradients.
-- @return true, or nil and what differs
function flare.gradgradcheck(f, inputs, o)
  return require("flare.gradcheck").check_second(f, inputs, o)
end

-- All names there are, for hints and completion.
local function names()
  local all = {}
  for name in next, core do all[name] = true end
  for name in next, parts do all[name] = true end
  for name in next, functions do all[name] = true end
  for name in next, flare do all[name] = true end
  return all
end

return setmetatable(flare, {
  __name = "flare",
  __index = function(self, name)
    local value
    if parts[name] then
      value = require(parts[name])
    elseif functions[name] then
      value = require(functions[name])[name]
    else
      value = core[name]
    end
    if value == nil then
      local shown = tostring(name)
      local hint = type(name) == "string" and require("flare.options").hint(name, names()) or ""
      require("flare.fail")("there is no flare.%s%s", shown, hint)
    end
    rawset(self, name, value)
    return value
  end,
  -- pairs(flare) shows what could be loaded, too: completion and help walk it.
  __pairs = function(self)
    local all = names()
    return function(_, name)
      local key = next(all, name)
      if key ~= nil then return key, self[key] end
    end, self, nil
  end,
})
