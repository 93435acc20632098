--- The public table: every operator and function of the core, and the parts of the library, each
-- loaded at its first use. No global is read or written.
--
--     local flare = require "flare"
--     local x = flare.tensor{{1, 2}, {3, 4}}
--     print(x:matmul(x))
local core = require "flare.core"
local options = require "flare.options"

-- Errors name the nearest line that is not in a file of this folder.
if debug then core.library((debug.getinfo(1, "S").source:gsub("init%.lua$", ""))) end

-- Names and their files: a part of the library is a file, functions written in Lua share files.
local files = {}
for _, part in ipairs {"args", "backends", "class", "cuda", "data", "dist", "distributions", "fpga",
  "io", "log", "metrics", "models", "monitor", "nn", "onnx", "op", "optim", "print", "profile",
  "options", "checkpoint", "help", "session", "text", "train", "vmap", "strict"} do
  files[part] = "flare." .. part
end
for file, names in next, {
  arrays = [[cartesian_prod combinations cond convolve diagonal_scatter dsplit equal gradient hsplit
    interp multi_dot polyval ravel_multi_index select_scatter slice_scatter tensor_split tensorinv
    tensorsolve tril_indices triu_indices unravel_index vecdot vsplit]],
  compile = "compile compile_stats",
  dataflow = "dataflow",
  ["dataflow.fits"] = "fits",
  ["dataflow.record"] = "record",
  ["dataflow.simulate"] = "simulate",
  ["dist.parallel.shard"] = "shard",
  debugger = "breakpoint",
  derivatives = "hessian hvp jacobian jvp vjp",
  describe = "describe",
  einsum = "einsum tensordot",
  explain = "explain",
  plan = "plan",
  print = "printing",
  rearrange = "rearrange",
  stacks = [[atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors column_stack dstack
    fliplr flipud hstack meshgrid pad_sequence rot90 take_along_dim vstack]],
  statistics = [[histogramdd intersect1d nanmax nanmin nanstd nanvar pairwise_distance pdist polyfit
    setdiff1d union1d unwrap]],
} do
  for name in names:gmatch "%S+" do files[name] = "flare." .. file end
end

-- The functions that are methods of tensors as well.
local there = core.methods()
for name in ([[cond describe diagonal_scatter dsplit equal fliplr flipud hsplit nanmax nanmin nanstd
    nanvar rearrange reduce rot90 select_scatter slice_scatter take_along_dim tensor_split tensordot
    vecdot vsplit]]):gmatch "%S+" do
  if not there[name] then
    local file = files[name] or "flare.rearrange" -- x:reduce is that of einops
    core.method(name, core.framed(function(...) return require(file)[name](...) end))
  end
end

for name in ("heat hist image plot"):gmatch "%S+" do
  if not there[name] then
    core.method(name, core.framed(function(...) return require "flare.plot"[name](...) end))
  end
end

if not there.cuda then core.method("cuda", function(x) return x:to "cuda" end) end

--- `flare.newaxis` between the brackets of x[...] makes a dim of size 1.
local flare = {core = core, newaxis = "new"}

-- Methods that are functions in PyTorch as well.
for name in ("chunk detach numel split t unbind"):gmatch "%S+" do
  flare[name] = function(x, ...)
    if not core.is_tensor(x) then
      require("flare.fail")("%s: a tensor is expected, got %s", name, options.kind(x))
    end
    return x[name](x, ...)
  end
end

local by_ending = {npy = "npy", npz = "npz", pt = "pt", pth = "pt", gguf = "gguf", t7 = "t7"}

-- The module that reads a file, by its extension, or io.tree.
local function format_of(path)
  local ending = type(path) == "string" and path:match "%.(%w+)$"
  return require("flare.io." .. (by_ending[ending] or "tree"))
end

--- Saves a tree of tables, numbers, strings and tensors to one file, atomically: a tensor if the
-- path ends in .npy, a table of tensors if it ends in .npz. `flare.load` reads it.
-- @return true, or nil and a message
function flare.save(path, tree, ...)
  local format = format_of(path)
  if not format.save then
    require("flare.fail")("save: %s files are read, but not written; flare.io.safetensors.save "
      .. "writes what PyTorch reads", path:match "%.%w+$")
  end
  return format.save(path, tree, ...)
end

--- Loads a file that `flare.save` wrote, an .npy or .npz file of NumPy, a safetensors file, or, by
-- their extensions, files of PyTorch (.pt, .pth), llama.cpp (.gguf) and Torch7 (.t7).
-- Checksums are verified.
-- @return the tree, tensor or table of tensors, or nil and a message
function flare.load(path)
  return format_of(path).load(path)
end

--- Compares the gradients of f(inputs) with central differences; see flare.gradcheck.check.
-- @return true, or nil and a message about the first difference
function flare.gradcheck(f, inputs, o)
  return require("flare.gradcheck").check(f, inputs, o)
end

--- Compares the second derivatives of f(inputs) with central differences.
-- @return true, or nil and a message about the first difference
function flare.gradgradcheck(f, inputs, o)
  return require("flare.gradcheck").check_second(f, inputs, o)
end

-- The public functions of the core: operators and the names below. Its other functions are for the
-- library's files and exist in flare.core only.
local public = {version = core.version, memory = {}}
for name in next, core.ops do public[name] = core[name] end
for name in ([[anomaly autocast backward clock current_stream debug_streams default_generator
    default_stream device devices elementwise empty empty_like enable_grad event from_bytes
    from_dlpack full_like func generator grad grad_enabled is_tensor kernel load_backend manual_seed
    max meta min no_grad ones ones_like provenance rand_like randn_like range reduce scope
    set_default_device spawn stream synchronize tensor threads zeros zeros_like]]):gmatch "%S+" do
  public[name] = core[name]
end
for name in ("flush holders limit reset_peak stats"):gmatch "%S+" do
  public.memory[name] = core.memory[name]
end
public.memory = require "flare.lazy"("flare.memory", public.memory, {})

if os and os.getenv "FLARE_COMPILE" then require "flare.compile" end -- for its setting "all"

return require "flare.lazy"("flare", flare, files, public)
