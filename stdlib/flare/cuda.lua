--- NVIDIA's GPUs: whether there are any, and why not. Tensors get there by device = "cuda" or
-- x:to "cuda"; "cuda:1" is the second one.
local core = require "flare.core"

local cuda = {}

--- Makes a kernel from CUDA source: flare.cuda.kernel{source = ..., name = ..., ...}.
cuda.kernel = require "flare.cuda.kernel"

--- Whether CUDA can be used here; NVIDIA's driver is looked for when this is first asked.
-- @return true, or false and the reason
function cuda.available()
  local ok, why = core.backend_query("cuda", "available")
  if ok then return true end
  return false, why
end

--- How many GPUs there are.
function cuda.count()
  local n = 0
  for _, name in ipairs(core.devices()) do
    if name:find "^cuda" then n = n + 1 end
  end
  return n
end

--- What there is and what is missing, as `flare doctor` prints it.
function cuda.report() return core.backend_query("cuda", "doctor") end

--- Compiles every built-in kernel for an architecture, without a GPU: a list of
-- {file=, entry=, row=, registers=, stack=, spills=}; stack and spills in bytes. quick takes one
-- specialisation of each kernel.
-- @return the list, or nil and a message
function cuda.check(arch, quick)
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

--- Compiles every built-in kernel ahead into one file, for architectures like "sm_80,sm_90a".
-- @return what was written, in words, or nil and a message
function cuda.pack(archs, path) return core.backend_query("cuda", "pack", archs .. " " .. path) end

return require "flare.lazy"("flare.cuda", cuda, {})
