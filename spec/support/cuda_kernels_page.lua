--- What the compiler says of one specialisation of each CUDA kernel, for sm_90a.
--   build/flare spec/support/cuda_kernels_page.lua > spec/support/cuda_kernels.lua
-- writes the table that spec/cuda_kernels_spec.lua compares with. It has the families whose speed
-- depends on registers; others have a general bound, within which they are when it is written. A
-- digest of each file says which kernels are those of the table, and need not be compiled again.
local core = require "flare.core"
local cuda = require "flare.cuda"
local tree = require "spec.support.tree"

local M = {}

-- Registers for 2 blocks of 256 threads on a multiprocessor, bytes of stack and of spills.
M.bound = {128, 256, 32}

local listed = {}
for family in ([[
  attention attention_backward attention_f32 attention_f32_backward attention_plain attention_sm90
  attention_sm90_backward batch_norm conv conv_plain depthwise fft gemm gemm_sm90 grouped
  grouped_sm90 loss norm pairwise reduce rnn rnn_time scan softmax sort
]]):gmatch "%S+" do listed[family] = true end

--- Whether the table has the kernel of this name.
function M.listed(name) return listed[name:match "^%S+"] or false end

--- The version of NVRTC, or nil and why there is none.
function M.compiler()
  local report = cuda.report()
  local version = report:match "nvrtc%s+(%d+%.%d+)"
  return version, report:match "nvrtc%s+no: ([^\n]*)"
end

local function name_of(file, entry, row)
  return (("%s %s %s"):format(file, entry, row):gsub("%s+$", ""))
end

--- Without compiling: the names of all kernels, sorted, and the digests of their files: of the
-- sources, what they are specialised by, and the compiler's options.
function M.listed_kernels()
  local names, keys, digests, seen = {}, {}, {}, {}
  local options = tree.read "kernels/cuda/driver/jit.c":match "\n  const char %*options.-;"
  for file, entry, key, row in assert(core.backend_query("cuda", "check", "sm_90a quick list"))
      :gmatch "(.-)\t(.-)\t(.-)\t(.-)\n" do
    local name = name_of(file, entry, row:match "^#define ROW (.*)" or "")
    if not seen[name] then names[#names + 1] = name end
    seen[name] = true
    keys[file] = (keys[file] or options) .. key
  end
  for file, text in pairs(keys) do digests[file] = ("%08x"):format(core.crc32c(text)) end
  table.sort(names)
  return names, digests
end

--- Compiles the kernels of some files.
-- @return by name {registers, bytes of stack, of spills}
function M.compile(files)
  local found = {}
  if #files == 0 then return found end
  local query = ("sm_90a quick in %s "):format(table.concat(files, " "))
  for _, k in ipairs(assert(cuda.check(query))) do
    found[name_of(k.file, k.entry, k.row)] = {k.registers, k.stack, k.spills}
  end
  return found
end

--- Whether a kernel takes more than {registers, bytes of stack, of spills}.
function M.exceeds(now, most)
  return now[1] > most[1] or now[2] > most[2] or now[3] > most[3]
end

if arg and arg[0] and arg[0]:find "cuda_kernels_page%.lua$" then
  local names, digests = M.listed_kernels()
  local files = {}
  for file in pairs(digests) do files[#files + 1] = file end
  table.sort(files)
  local found = M.compile(files)
  for _, name in ipairs(names) do
    local now = table.concat(found[name], ", ")
    assert(M.listed(name) or not M.exceeds(found[name], M.bound), name .. ": " .. now)
  end
  print("-- Written by spec/support/cuda_kernels_page.lua: registers, bytes of stack, of spills.")
  print("return {")
  print(("  compiler = %q,"):format(M.compiler()))
  print("  digests = {")
  for _, file in ipairs(files) do print(("    %s = %q,"):format(file, digests[file])) end
  print("  },")
  for _, name in ipairs(names) do
    if M.listed(name) then
      print(("  [%q] = {%s},"):format(name, table.concat(found[name], ", ")))
    end
  end
  print("}")
end

return M
