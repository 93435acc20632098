--- flare kernels: the built-in CUDA kernels, compiled ahead or looked at.
--   flare kernels --check sm_90a [--quick]       registers, stack and spills of each
--   flare kernels --pack sm_80,sm_90a [--out F]  all of them in one file, flare.pack
local cuda = require "flare.cuda"

local usage = "usage: flare kernels --check ARCH [--quick] | --pack ARCH[,ARCH] [--out FILE]"

local function fail(text)
  io.stderr:write("flare: ", text, "\n")
  return 1
end

local function check(arch, quick)
  local list, why = cuda.check(arch, quick)
  if not list then return fail(why) end
  local spilling = 0
  for _, k in ipairs(list) do
    if k.spills > 0 then spilling = spilling + 1 end
    print(("%-20s %-44s %3d registers %5d stack %5d spilled  %s")
      :format(k.file, k.entry, k.registers or -1, k.stack, k.spills, k.row:sub(1, 40)))
  end
  print(("%d kernels for %s, %d spill registers"):format(#list, arch, spilling))
  return 0
end

return function(arguments)
  local o, i = {}, 1
  while arguments[i] do
    local name = arguments[i]:match "^%-%-(%a+)$"
    if name == "quick" then o.quick = true
    elseif name == "help" then
      print(usage)
      return 0
    elseif name == "check" or name == "pack" or name == "out" then
      i = i + 1
      if (arguments[i] or "-"):find "^%-" then return fail(usage) end
      o[name] = arguments[i]
    else return fail(usage) end
    i = i + 1
  end
  if o.check then return check(o.check, o.quick) end
  if not o.pack then return fail(usage) end
  local said, why = cuda.pack(o.pack, o.out or "flare.pack")
  if not said then return fail(why) end
  io.write(said)
  return 0
end
