--- Fakes of NVIDIA's libraries, built from spec/support/fake_cuda, and the program run with them.
local tree = require "spec.support.tree"

local fakes = {}

--- A shared library of `sources`, names with spaces between, in a folder.
function fakes.build(folder, name, sources, defines)
  local list = {}
  for source in sources:gmatch "%S+" do
    list[#list + 1] = ("spec/support/fake_cuda/%s.c"):format(source)
  end
  local said = tree.output(("mkdir -p '%s' && %s -std=gnu11 -shared -fPIC -I'%s/generated' %s "
    .. "-o '%s/%s' %s 2>&1"):format(folder, os.getenv "CC" or "cc", tree.build, defines, folder,
    name, table.concat(list, " ")))
  assert(said == "", said)
end

--- A folder with a driver whose kernels do nothing (machine.c), a compiler for them, and
-- libraries that do nothing either.
function fakes.machine(folder)
  fakes.build(folder, "libcublas.so.13", "all handles", "-D CUBLAS")
  fakes.build(folder, "libcusolver.so.12", "all handles", "-D CUSOLVER")
  fakes.build(folder, "libcufft.so.12", "all", "-D CUFFT")
  fakes.build(folder, "libcuda.so.1", "all machine", "-D DRIVER")
  fakes.build(folder, "libnvrtc.so.13", "all compiler", "-D COMPILER")
end

--- The same with cuBLASLt and cuDNN, whose candidates take the time that FAKE_TIMES says.
function fakes.tuning(folder)
  fakes.machine(folder)
  fakes.build(folder, "libcublasLt.so.13", "all tuning", "-D BLAS")
  fakes.build(folder, "libcudnn.so.9", "all tuning", "-D DNN")
end

--- A variable for what runs with a fake driver, which keeps what it is asked for.
fakes.leaks = 'ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"'

--- The command that runs the program on that machine. Plans wait for their kernels.
-- @param settings variables of the environment, as a shell writes them
function fakes.command(folder, settings, arguments)
  return ("%s FLARE_CUDA_PATH='%s' FLARE_CUDA_HIDE=libcublasLt,libcudnn FLARE_PACK=none "
    .. "FLARE_COMPILE=wait %s '%s/flare' %s"):format(fakes.leaks, folder, settings, tree.build,
    arguments)
end

--- Runs a script there, given as text.
-- @return what it prints and says, and its exit status
function fakes.run(folder, settings, script)
  local path = folder .. "/script.lua"
  local file = assert(io.open(path, "w"))
  file:write(script)
  file:close()
  local said = tree.output(fakes.command(folder, settings, path) .. " 2>&1; echo status=$?")
  local text, status = said:match "^(.*)status=(%d+)\n$"
  return text:gsub(path:gsub("%p", "%%%0"), "script.lua"), tonumber(status)
end

return fakes
