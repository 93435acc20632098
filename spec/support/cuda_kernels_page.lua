--- What the compiler says of one specialisation of each CUDA kernel, for sm_90a.
--   build/flare spec/support/cuda_kernels_page.lua > spec/support/cuda_kernels.lua
-- writes the table that spec/cuda_kernels_spec.lua compares with. It has the families whose speed
-- depends on registers; others have a general bound.
local cuda = require "flare.cuda"

local M = {}

local listed = {}
for family in ([[
  attention attention_backward attention_f32 attention_f32_backward attention_plain attention_sm90
  attention_sm90_backward batch_norm conv conv_plain fft gemm gemm_sm90 loss norm pairwise reduce
  rnn rnn_time scan softmax sort
]]):gmatch "%S+" do listed[family] = true end

--- Whether the table has the kernel of this name.
function M.listed(name) return listed[name:match "^%S+"] or false end

--- The version of NVRTC, or nil and why there is none.
function M.compiler()
  local report = cuda.report()
  local version = report:match "nvrtc%s+(%d+%.%d+)"
  return version, report:match "nvrtc%s+no: ([^\n]*)"
end

--- Each kernel by name: {registers, bytes of stack, bytes of spills}.
function M.kernels()
  local found, names = {}, {}
  for _, k in ipairs(assert(cuda.check("sm_90a", true))) do
    local name = ("%s %s %s"):format(k.file, k.entry, k.row):gsub("%s+$", "")
    if not found[name] then names[#names + 1] = name end
    found[name] = {k.registers, k.stack, k.spills}
  end
  table.sort(names)
  return found, names
end

if arg and arg[0] and arg[0]:find "cuda_kernels_page%.lua$" then
  local found, names = M.kernels()
  print("-- Written by spec/support/cuda_kernels_page.lua: registers, bytes of stack, of spills.")
  print("return {")
  print(("  compiler = %q,"):format(M.compiler()))
  for _, name in ipairs(names) do
    if M.listed(name) then
      print(("  [%q] = {%s},"):format(name, table.concat(found[name], ", ")))
    end
  end
  print("}")
end

return M
