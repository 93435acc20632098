--- Jobs of several processes (ranks): the same script on each, working together.
--
--     local dist = flare.dist
--     dist.init()                          -- says who we are; alone without a launcher
--     x = dist.all_reduce(x, {reduce = "mean"})
local core = require "flare.core"
local env = require "flare.dist.env"
local fail = require "flare.fail"
local Group = require "flare.dist.group"
local options = require "flare.options"

local dist = {Group = Group}

-- Names that others have for what there is.
local elsewhere = {get_rank = "dist.rank()", get_world_size = "dist.size()",
  init_process_group = "dist.init()", destroy_process_group = "dist.close()",
  is_initialized = "dist.init(), which may be called again", new_group = "dist.group(ranks)",
  init_device_mesh = "dist.mesh{dp = 2, tp = 2}", DistributedDataParallel = "dist.DataParallel",
  DDP = "dist.DataParallel", FullyShardedDataParallel = "dist.ZeRO", FSDP = "dist.ZeRO",
  ZeroRedundancyOptimizer = "dist.ZeRO", isend = "dist.send(x, peer, {async = true})",
  irecv = "dist.recv(shape, peer, {async = true})", all_gather_into_tensor = "dist.all_gather",
  reduce_scatter_tensor = "dist.reduce_scatter", all_to_all_single = "dist.all_to_all",
  broadcast_object_list = "dist.share(text, root)", ReduceOp = "{reduce = \"sum\"}"}

local job

local function flag(name)
  local value = os.getenv(name)
  return value ~= nil and value ~= "0" and value ~= ""
end

-- What carries tensors in the host's memory.
local function choose(found, wish)
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

-- From the folder of the program or of a library of ours: a build folder, the folder of core.so,
-- an installed tree.
local places = {"lua/flare/mpi.so", "mpi.so", "flare/mpi.so", "lua/5.4/flare/mpi.so",
  "../lib/lua/5.4/flare/mpi.so", "../lib64/lua/5.4/flare/mpi.so"}

-- Loads the MPI engine, a shared object that is built where MPI's headers are.
local function load_mpi()
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

--- Joins the job that the environment tells of. Without one this process is alone: rank 0 of 1.
-- Options: timeout, the seconds that ranks wait for each other (120); first, for the first call of
-- a group (five times that); check, compare the script's lines, too (or FLARE_DIST_CHECK=1). From
-- now on "cuda" is this rank's GPU.
-- @return rank, size
function dist.init(o)
  o = options.check("dist.init", o, {timeout = tonumber(os.getenv "FLARE_DIST_TIMEOUT") or 120,
    first = 0, check = flag "FLARE_DIST_CHECK", engine = ""})
  if job then return job.rank, job.size end
  local found, message = env.read()
  if not found then fail("dist.init: %s", message) end
  local engine = choose(found, o.engine)
  if found.size > 1 then
    core.comm.open{key = found.key, rank = found.rank, size = found.size, here = found.here,
      timeout = o.timeout, first = o.first > 0 and o.first or 5 * o.timeout, check = o.check}
  end
  job = found
  Group.engine = engine
  if engine == "mpi" then load_mpi() end
  dist.world = Group(nil, 0)
  if found.size > 1 then dist.world:attach "cpu" end
  return job.rank, job.size
end

local function here()
  if not job then dist.init() end
  return job
end

--- This process's number, from 0.
function dist.rank() return here().rank end

--- How many processes there are.
function dist.size() return here().size end

--- The number among those of this host, and of the GPU that "cuda" is.
function dist.local_rank() return here().here end

--- A group of some ranks. All ranks of the job make it, members or not.
function dist.group(ranks)
  here()
  return Group(ranks)
end

--- The ranks as a grid: dist.mesh{dp = 4, tp = 2}; see flare.dist.mesh.
function dist.mesh(axes)
  return require "flare.dist.mesh"(axes, here().rank, here().size)
end

--- Why the job has failed and where each rank was, "" if it has not.
function dist.verdict() return core.comm.verdict() end

--- Leaves the job.
function dist.close()
  core.comm.close()
  job, dist.world = nil, nil
end

-- dist.all_reduce(x, {group = g}) is g:all_reduce(x), of all ranks without a group.
local function taking(o, name)
  if o == nil then return dist.world, nil end
  if type(o) ~= "table" then fail("%s: options must be a table, got %s", name, type(o)) end
  if o.group == nil then return dist.world, o end
  local rest = {}
  for key, value in pairs(o) do rest[key] = value end
  rest.group = nil
  return Group.of(name, o.group), rest
end

for name in ("all_reduce reduce broadcast all_gather gather reduce_scatter all_to_all scatter "
    .. "all_reduce_ reduce_ broadcast_ all_gather_"):gmatch "%S+" do
  dist[name] = function(x, o)
    here()
    local group, rest = taking(o, name)
    return group[name](group, x, rest)
  end
end

function dist.send(x, peer, o)
  here()
  local group, rest = taking(o, "send")
  return group:send(x, peer, rest)
end

function dist.recv(shape, peer, o)
  here()
  local group, rest = taking(o, "recv")
  return group:recv(shape, peer, rest)
end

function dist.barrier(o)
  here()
  return (taking(o, "barrier")):barrier()
end

--- A string of root's on every rank.
function dist.share(text, root)
  here()
  return dist.world:share(text, root)
end

require "flare.lazy"("dist", dist, {
  DataParallel = "flare.dist.data_parallel", LocalSGD = "flare.dist.local_sgd",
  ZeRO = "flare.dist.zero",
})
local meta = getmetatable(dist)
local find = meta.__index
meta.__call = function(_, ...) return core.dist(...) end -- the operator's name
meta.__index = function(self, name)
  if elsewhere[name] then fail("there is no dist.%s; it is %s", name, elsewhere[name]) end
  return find(self, name)
end

return dist
