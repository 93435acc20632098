--- The public table: every operator and tool of the core, and the library's parts, loaded
-- when first touched. Nothing global is read or written.
--
--     local flare = require "flare"
--     local x = flare.tensor{{1, 2}, {3, 4}}
--     print(x:matmul(x))
local core = require "flare.core"

-- Errors are blamed on the nearest line that is not in a file beside this one.
if debug then core.library((debug.getinfo(1, "S").source:gsub("init%.lua$", ""))) end

-- Names and the files that they are in: parts of the library are a file each, functions written in
-- Lua are several of one.
local files = {}
for _, part in ipairs {"args", "backends", "class", "cuda", "data", "dist", "distributions", "io",
  "log", "nn", "onnx", "op", "optim", "print", "profile", "options", "checkpoint", "help", "vmap",
  "strict"} do
  files[part] = "flare." .. part
end
for file, names in next, {
  arrays = [[cartesian_prod combinations cond convolve diagonal_scatter dsplit equal gradient hsplit
    interp multi_dot polyval ravel_multi_index select_scatter slice_scatter tensor_split tensorinv
    tensorsolve tril_indices triu_indices unravel_index vecdot vsplit]],
  derivatives = "hessian hvp jacobian jvp vjp",
  einsum = "einsum tensordot",
  rearrange = "rearrange",
  stacks = [[atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors column_stack dstack
    fliplr flipud hstack meshgrid pad_sequence rot90 take_along_dim vstack]],
  statistics = [[histogramdd intersect1d nanmax nanmin nanstd nanvar pairwise_distance pdist polyfit
    setdiff1d union1d unwrap]],
} do
  for name in names:gmatch "%S+" do files[name] = "flare." .. file end
end

-- Those of them that tensors have as methods.
local there = core.methods()
for name in ([[cond diagonal_scatter dsplit equal fliplr flipud hsplit nanmax nanmin nanstd nanvar
    rearrange reduce rot90 select_scatter slice_scatter take_along_dim tensor_split tensordot vecdot
    vsplit]]):gmatch "%S+" do
  if not there[name] then
    local file = files[name] or "flare.rearrange" -- x:reduce is einops' one
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
function flare.save(path, tree, ...)
  return format_of(path).save(path, tree, ...)
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

-- What the core has for users: operators and the functions named here. Its other functions serve
-- the library's files, and are in flare.core alone.
local public = {version = core.version, memory = {}}
for name in next, core.ops do public[name] = core[name] end
for name in ([[anomaly autocast backward clock current_stream debug_streams default_generator
    default_stream device devices elementwise empty empty_like enable_grad event from_bytes
    from_dlpack full_like func generator grad grad_enabled is_tensor kernel load_backend manual_seed
    max meta min no_grad ones ones_like rand_like randn_like range reduce scope set_default_device
    spawn stream synchronize tensor threads zeros zeros_like]]):gmatch "%S+" do
  public[name] = core[name]
end
for name in ("flush holders limit reset_peak stats"):gmatch "%S+" do
  public.memory[name] = core.memory[name]
end
public.memory = require "flare.lazy"("flare.memory", public.memory, {})

return require "flare.lazy"("flare", flare, files, public)
