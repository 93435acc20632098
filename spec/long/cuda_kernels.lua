-- Every built-in CUDA kernel, compiled for sm_80 and sm_90a with NVRTC, without a GPU: how many
-- there are and what they spill. limit: 60 min
local flare = require "flare"
local cuda = flare.cuda

-- Registers that a processor's file has for a thread of the least block, 128 threads or more.
local most, failed = 255, false

for _, arch in ipairs {"sm_80", "sm_90a"} do
  local start = os.time()
  local list, why = cuda.check(arch)
  if not list then
    print(("figure: %s: %s: FAILED"):format(arch, why))
    os.exit(false)
  end
  local spilling, bytes, worst, files = 0, 0, nil, {}
  for _, k in ipairs(list) do
    files[k.file] = true
    if k.spills > 0 then
      spilling, bytes = spilling + 1, bytes + k.spills
      if not worst or k.spills > worst.spills then worst = k end
      print(("%s %s %s: %d registers, %d bytes of spills"):format(k.file, k.entry, k.row,
        k.registers, k.spills))
    end
    failed = failed or not k.registers or k.registers > most
  end
  local n = 0
  for _ in pairs(files) do n = n + 1 end
  print(("figure: %s: %d kernels of %d files compile in %d s; %d spill, %d bytes in all%s")
    :format(arch, #list, n, os.time() - start, spilling, bytes, worst
    and (", %s %s the most: %d"):format(worst.file, worst.entry, worst.spills) or ""))
end

os.exit(not failed)
