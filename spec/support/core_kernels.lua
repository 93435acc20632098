--- The kernels that a GPT's first training step asks for, the slowest to compile first: what
-- kernels/cuda/driver/core.def lists, which threads compile ahead.
--   build/flare spec/support/core_kernels.lua > kernels/cuda/driver/core.def
package.path = "./?.lua;" .. package.path
local fakes = require "spec.support.fakes"

local M = {}

-- by how long NVRTC takes; the others after them
local slow = {"gemm_sm90", "attention_sm90", "attention_sm90_backward", "gemm", "reduce", "loss",
              "norm", "optim", "index", "map"}
for i, file in ipairs(slow) do slow[file] = i end

--- Runs the example on a GPU that is not there.
-- @return a list of {key, name}
function M.list()
  local place = os.tmpname() .. ".d"
  fakes.machine(place)
  local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_MEMORY=16000000000", [[
    arg = {[0] = "examples/gpt2.lua", "--layers", "1", "--steps", "2", "--batch", "16"}
    dofile "examples/gpt2.lua"
    print(require "flare.core".backend_query("cuda", "loaded"))]])
  os.execute("rm -rf " .. place)
  assert(status == 0, said)
  local list = {}
  for key, name in said:gmatch "(0x%x+) (%g+ [^\n]+)" do list[#list + 1] = {key, name} end
  table.sort(list, function(a, b)
    local i, j = slow[a[2]:match "%g+"] or 99, slow[b[2]:match "%g+"] or 99
    if i ~= j then return i < j end
    return a[2] .. a[1] < b[2] .. b[1]
  end)
  return list
end

--- The text of core.def.
function M.page()
  local lines = {"/* Written by spec/support/core_kernels.lua: what a GPT's first training step",
                 " * asks for in bf16, the slowest to compile first (precompile.c). */"}
  for _, k in ipairs(M.list()) do
    lines[#lines + 1] = ("CORE(%s) /* %s */"):format(k[1], k[2])
  end
  lines[#lines + 1] = "#undef CORE\n"
  return table.concat(lines, "\n")
end

if arg and arg[0] and arg[0]:find "core_kernels%.lua$" then io.write(M.page()) end

return M
