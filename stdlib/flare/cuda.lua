--- NVIDIA's GPUs: whether CUDA is available, kernels from source, compilation ahead of time.
-- Tensors are made there with device = "cuda" or moved by x:to "cuda"; "cuda:1" is the second GPU.
local core = require "flare.core"
local options = require "flare.options"

local cuda = {}

--- Makes a kernel from CUDA source: flare.cuda.kernel{source = ..., name = ..., ...}.
cuda.kernel = require "flare.cuda.kernel"

--- Captures the launches of a function as a CUDA graph: flare.cuda.graph(f, inputs...).
cuda.graph = require "flare.cuda.graph"

--- Whether CUDA is available. The first call loads NVIDIA's driver.
-- @return true, or false and the reason
function cuda.available()
  local ok, why = core.backend_query("cuda", "available")
  if ok then return true end
  return false, why
end

--- The number of GPUs.
function cuda.count()
  local n = 0
  for _, name in ipairs(core.devices()) do
    if name:find "^cuda" then n = n + 1 end
  end
  return n
end

--- The report that `flare doctor` prints: driver, libraries and GPUs that were found, and what is
-- missing.
function cuda.report() return core.backend_query("cuda", "doctor") end

--- Compiles every built-in kernel for an architecture, without a GPU: a list of
-- {file=, entry=, row=, registers=, stack=, spills=}; stack and spills in bytes. With `quick` it
-- compiles one specialisation of each kernel.
-- @return the list, or nil and a message
function cuda.check(arch, quick)
  options.text("cuda.check", "arch", arch)
  local text, why = core.backend_query("cuda", "check", arch .. (quick and " quick" or ""))
  if not text then return nil, why end
  local list = {}
  for line in text:gmatch "[^\n]+" do
    local file, entry, note, row = line:match "^(.-)\t(.-)\t(.-)\t(.*)$"
    list[#list + 1] = {
      file = file, entry = entry, row = row:match "^#define ROW (.*)" or "",
      registers = tonumber(note:match "Used (%d+) registers"),
      stack = tonumber(note:match "(%d+) bytes stack frame") or 0,
      spills = tonumber(note:match "(%d+) bytes spill stores") or 0,
    }
  end
  return list
end

--- Compiles every built-in kernel into one file, a pack, for architectures like "sm_80,sm_90a".
-- @return a text about what was written, or nil and a message
function cuda.pack(archs, path)
  options.text("cuda.pack", "archs", archs)
  options.text("cuda.pack", "path", path)
  return core.backend_query("cuda", "pack", archs .. " " .. path)
end

return require "flare.lazy"("flare.cuda", cuda, {})
