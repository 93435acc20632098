--- Which engine carries tensors in the host's memory, and where the MPI engine is found.
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

--- Chooses the engine for tensors in the host's memory.
-- @param found the job, as dist.env reads it
-- @param wish "host", "mpi", or "" for the one that reaches all ranks
-- @return "host" or "mpi"
function M.choose(found, wish)
  local by_mpi = found.launcher == "Open MPI" or found.launcher == "PMI"
    or found.launcher == "Slurm"
  if wish ~= "" and wish ~= "host" and wish ~= "mpi" then
    fail("dist.init: engine must be host or mpi, got '%s'", wish)
  end
  if wish == "mpi" and found.size > 1 and not by_mpi then
    fail("dist.init: MPI is started by mpirun or srun: mpirun -n %d flare script.lua", found.size)
  end
  if found.hosts == 1 then return wish == "mpi" and found.size > 1 and "mpi" or "host" end
  if wish == "host" or not by_mpi then
    fail("dist.init: the ranks are on several hosts, which the host engine cannot reach: start "
      .. "them on one, or with MPI: mpirun -n %d flare script.lua", found.size)
  end
  return "mpi"
end

-- Relative to the folder of the program or of one of its libraries: in a build folder, beside
-- core.so, in an installed tree.
local places = {"lua/flare/mpi.so", "mpi.so", "flare/mpi.so", "lua/5.4/flare/mpi.so",
  "../lib/lua/5.4/flare/mpi.so", "../lib64/lua/5.4/flare/mpi.so"}

--- Loads the MPI engine, a shared object that is built where MPI's headers are.
function M.load_mpi()
  local path, tried = package.searchpath("flare.mpi", package.cpath)
  if path then return core.comm.load(path) end
  for _, folder in ipairs(core.comm.folders()) do
    for _, place in ipairs(places) do
      local name = folder .. "/" .. place
      if core.file.exists(name) then return core.comm.load(name) end
      if not tried:find(name, 1, true) then tried = tried .. "\n\tno file '" .. name .. "'" end
    end
  end
  fail("dist.init: the MPI engine, flare/mpi.so, is missing. It is built if mpicc and MPI's "
    .. "headers are there (Debian: libopenmpi-dev), not into the portable program. Tried:%s%s",
    tried:find "^%s*\n" and "" or "\n\t", tried)
end

return M
