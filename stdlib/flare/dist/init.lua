--- Training with several processes. Each process is a rank of a job and runs the same script.
--
--     local dist = flare.dist
--     local rank, size = dist.init()       -- joins the job; without a launcher rank 0 of 1
--     x = dist.all_reduce(x, {reduce = "mean"})
local core = require "flare.core"
local engine = require "flare.dist.engine"
local env = require "flare.dist.env"
local fail = require "flare.fail"
local Group = require "flare.dist.group"
local options = require "flare.options"

local dist = {Group = Group}

-- Names in other libraries and what takes their place here.
local elsewhere = {get_rank = "dist.rank()", get_world_size = "dist.size()",
  init_process_group = "dist.init()", destroy_process_group = "dist.close()",
  is_initialized = "dist.init(), which may be called again", new_group = "dist.group(ranks)",
  init_device_mesh = "dist.mesh{dp = 2, tp = 2}", DistributedDataParallel = "dist.DataParallel",
  DDP = "dist.DataParallel", FullyShardedDataParallel = "dist.ZeRO", FSDP = "dist.ZeRO",
  ZeroRedundancyOptimizer = "dist.ZeRO", isend = "dist.send(x, peer, {async = true})",
  irecv = "dist.recv(shape, peer, {async = true})", all_gather_into_tensor = "dist.all_gather",
  reduce_scatter_tensor = "dist.reduce_scatter", all_to_all_single = "dist.all_to_all",
  broadcast_object_list = "dist.share(text, root)", ReduceOp = "{reduce = \"sum\"}"}

local MOST = 1000000000 -- seconds of a time-out

local job

-- Whether a variable of the environment is set, and not to 0.
local function flag(name)
  local value = os.getenv(name)
  return value ~= nil and value ~= "0" and value ~= ""
end

-- The number that a variable of the environment holds; `default` if it is not set.
local function seconds(name, default)
  local text = os.getenv(name)
  if text == nil or text == "" then return default end
  local number = tonumber(text)
  if not number or number < 0 or number > MOST then
    fail("dist.init: %s must be a number of seconds from 0 to %d, got '%s'", name, MOST, text)
  end
  return number
end

local function check_seconds(name, value)
  if not (value >= 0 and value <= MOST) then -- NaN is neither
    fail("dist.init: %s must be a number of seconds from 0 to %d, got %s", name, MOST,
      value == value and ("%g"):format(value) or "NaN")
  end
end

--- Joins the job that the launcher describes in the environment. Without a launcher the process is
-- alone: rank 0 of 1. Afterwards "cuda" is this rank's GPU, and dist.world the group of all ranks.
-- Later calls return the same numbers.
-- @param o.timeout seconds that a rank waits for the others in a collective, 0 for no limit;
--   default the variable FLARE_DIST_TIMEOUT, or 120
-- @param o.first the same for the first call of a group; default, and for 0, 5 * timeout,
--   or timeout at the prompt of `flare launch -i`
-- @param o.check true: compares the lines of the script that call collectives, and collectives of
--   GPU tensors as well; default the variable FLARE_DIST_CHECK
-- @param o.engine "host" or "mpi", which carries tensors in the host's memory; default the one that
--   reaches all ranks
-- @return rank, size
function dist.init(o)
  o = options.check("dist.init", o, {timeout = options.none, first = options.none,
    check = flag "FLARE_DIST_CHECK", engine = ""})
  for _, name in ipairs {"timeout", "first"} do
    if o[name] ~= nil and type(o[name]) ~= "number" then
      fail("dist.init: option '%s' must be a number, got %s", name, options.kind(o[name]))
    end
    if o[name] then check_seconds(name, o[name]) end
  end
  if job then return job.rank, job.size end
  local timeout = o.timeout or seconds("FLARE_DIST_TIMEOUT", 120)
  local found, message = env.read()
  if not found then fail("dist.init: %s", message) end
  local chosen = engine.choose(found, o.engine)
  if found.size > 1 then
    local slack = os.getenv "FLARE_PROMPT" and 1 or 5 -- a prompt's ranks have nothing to load
    local first = o.first and o.first > 0 and o.first or slack * timeout
    core.comm.open{key = found.key, rank = found.rank, size = found.size, here = found.here,
      timeout = timeout, first = first, check = o.check}
  end
  job = found
  Group.engine = chosen
  if chosen == "mpi" then engine.load_mpi() end
  dist.world = Group(nil, 0)
  if found.size > 1 then dist.world:attach "cpu" end
  return job.rank, job.size
end

-- The job, which the first use of flare.dist joins.
local function joined()
  if not job then dist.init() end
  return job
end

--- The number of this process in the job, from 0.
-- @return an integer
function dist.rank() return joined().rank end

--- The number of processes in the job.
-- @return an integer
function dist.size() return joined().size end

--- The number of this process among those of its host, from 0. It is also the number of the GPU
-- that "cuda" is.
-- @return an integer
function dist.local_rank() return joined().here end

--- Makes a process group. All ranks of the job call it with the same ranks and in the same order,
-- members or not.
-- @param ranks a list of ranks, as in {0, 2}
-- @return a dist.Group
function dist.group(ranks)
  joined()
  return Group(ranks)
end

--- Arranges the ranks as a grid with named axes: dist.mesh{dp = 4, tp = 2}. All ranks call it.
-- @param axes sizes by name, which multiply to dist.size(). Ranks that are neighbours along the
--   last axis have successive numbers; the order is pp, dp, ep, cp, tp, or that of the list
--   `axes.order`, as in {tp = 2, dp = 4, order = {"tp", "dp"}}
-- @return a table: mesh.dp is the group of this rank along dp, mesh.at.dp its place in it, from 0,
--   and mesh.axes the list of names
function dist.mesh(axes)
  return require "flare.dist.mesh"(axes, joined().rank, joined().size)
end

--- Why the job has failed, and what each rank was doing.
-- @return a text, "" if the job has not failed
function dist.verdict() return core.comm.verdict() end

--- Leaves the job.
function dist.close()
  core.comm.close()
  job, dist.world = nil, nil
end

-- The group of a call, and its options without that: dist.all_reduce(x, {group = g}) is
-- g:all_reduce(x).
local function split(o, name)
  if o == nil then return dist.world, nil end
  if type(o) ~= "table" then fail("%s: options must be a table, got %s", name, options.kind(o)) end
  if o.group == nil then return dist.world, o end
  local rest = {}
  for key, value in pairs(o) do rest[key] = value end
  rest.group = nil
  return Group.of(name, o.group), rest
end

-- A method of groups that runs in the call of dist's own function, whose lost result it reports.
local function method(name) return core.unframed(Group[name]) end

local function call(name, x, o)
  joined()
  local group, rest = split(o, name)
  return method(name)(group, x, rest)
end

local function exchange(name, x, peer, o)
  joined()
  local group, rest = split(o, name)
  return method(name)(group, x, peer, rest)
end

--- Combines the tensors of all ranks: y = dist.all_reduce(x, {reduce = "sum"}).
-- @param x a tensor of any dtype and device, of the same shape on all ranks; it is not changed
-- @param o.reduce "sum" (the default), "mean", "min" or "max"
-- @param o.algorithm "auto" (the default), "one_shot", "two_shot", "ring", on GPUs also "nccl"
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns at once a handle, whose wait() returns the result and whose done()
--   tells whether wait() would return at once
-- @return the result, on every rank
function dist.all_reduce(x, o) return call("all_reduce", x, o) end

--- As all_reduce, and writes the result over x.
-- @param x a tensor, contiguous if `async`
-- @param o.reduce "sum" (the default), "mean", "min" or "max"
-- @param o.algorithm as of all_reduce
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return x
function dist.all_reduce_(x, o) return call("all_reduce_", x, o) end

--- Combines the tensors of all ranks on one: y = dist.reduce(x, {root = 0, reduce = "sum"}).
-- @param x a tensor, of the same shape on all ranks
-- @param o.root the rank of the group that gets the result, default 0
-- @param o.reduce "sum" (the default), "mean", "min" or "max"
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return the result on root, x on the other ranks
function dist.reduce(x, o) return call("reduce", x, o) end

--- As reduce, and writes the result over root's x.
-- @param x a tensor, contiguous if `async`
-- @param o.root the rank of the group that gets the result, default 0
-- @param o.reduce "sum" (the default), "mean", "min" or "max"
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return x
function dist.reduce_(x, o) return call("reduce_", x, o) end

--- Sends root's tensor to all ranks: y = dist.broadcast(x, {root = 0}).
-- @param x a tensor, of the same shape and dtype on all ranks
-- @param o.root the rank of the group whose x is sent, default 0
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return root's x, on every rank
function dist.broadcast(x, o) return call("broadcast", x, o) end

--- As broadcast, and writes root's tensor over x.
-- @param x a tensor, contiguous if `async`
-- @param o.root the rank of the group whose x is sent, default 0
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return x
function dist.broadcast_(x, o) return call("broadcast_", x, o) end

--- Concatenates the tensors of all ranks along dim 1, in the order of the ranks.
-- @param x a tensor, of the same shape on all ranks
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return the result, on every rank
function dist.all_gather(x, o) return call("all_gather", x, o) end

--- As all_gather, and fills x. The part of x along dim 1 that belongs to this rank is sent.
-- @param x a tensor with as many equal parts along dim 1 as there are ranks
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return x
function dist.all_gather_(x, o) return call("all_gather_", x, o) end

--- Concatenates the tensors of all ranks along dim 1 on one rank.
-- @param x a tensor, of the same shape on all ranks
-- @param o.root the rank of the group that gets the result, default 0
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return the result on root, an empty tensor on the other ranks
function dist.gather(x, o) return call("gather", x, o) end

--- Combines the tensors of all ranks and gives each rank its part along dim 1.
-- @param x a tensor with as many equal parts along dim 1 as there are ranks
-- @param o.reduce "sum" (the default), "mean", "min" or "max"
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return this rank's part of the result
function dist.reduce_scatter(x, o) return call("reduce_scatter", x, o) end

--- Sends part k of x along dim 1 to rank k of the group.
-- @param x a tensor with as many equal parts along dim 1 as there are ranks
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return the parts that all ranks sent to this one, in the order of the ranks
function dist.all_to_all(x, o) return call("all_to_all", x, o) end

--- Divides root's tensor along dim 1 into equal parts and sends one to each rank.
-- @param x on root a tensor with as many equal parts along dim 1 as there are ranks; the other
--   ranks pass nil
-- @param o.root the rank of the group whose x is divided, default 0
-- @param o.device where the other ranks get their parts; default the kind of device of root's x
-- @param o.group the ranks that take part, default dist.world
-- @param o.async true: returns a handle
-- @return this rank's part
function dist.scatter(x, o) return call("scatter", x, o) end

--- Sends a tensor to one rank, which calls recv. The call may return before or after that.
-- @param x a tensor
-- @param peer the rank of the group that receives it
-- @param o.group the group, default dist.world
-- @param o.async true: returns a handle
function dist.send(x, peer, o) return exchange("send", x, peer, o) end

--- Receives a tensor that one rank sends.
-- @param shape of the tensor, or a tensor of the same shape, dtype and device
-- @param peer the rank of the group that sends it
-- @param o.dtype its dtype, default "f32"
-- @param o.device where it is put, default "cpu"
-- @param o.group the group, default dist.world
-- @param o.async true: returns a handle
-- @return a new tensor
function dist.recv(shape, peer, o) return exchange("recv", shape, peer, o) end

--- Waits until every rank of the group has called barrier.
-- @param o.group the ranks that take part, default dist.world
function dist.barrier(o)
  joined()
  return (split(o, "barrier")):barrier()
end

--- Sends a string of one rank to all.
-- @param text a string on root; ignored on the other ranks
-- @param root the rank that sends it, default 0
-- @return root's text, on every rank
function dist.share(text, root)
  joined()
  return dist.world:share(text, root)
end

require "flare.lazy"("dist", dist, {
  DataParallel = "flare.dist.data_parallel", Elastic = "flare.dist.elastic",
  LocalSGD = "flare.dist.local_sgd",
  ZeRO = "flare.dist.zero", tensor_parallel = "flare.dist.parallel.tensor",
  Pipeline = "flare.dist.parallel.pipeline", Ring = "flare.dist.parallel.ring",
  state_dict = "flare.dist.parallel.state",
  load_state_dict = "flare.dist.parallel.state", shares = "flare.dist.parallel.balance",
  expert_parallel = "flare.dist.parallel.expert", average_gradients = "flare.dist.parallel.expert",
  clip_grad_norm_ = "flare.dist.parallel.clip",
  context_parallel = "flare.dist.parallel.context", Context = "flare.dist.parallel.context",
})
local meta = getmetatable(dist)
local find = meta.__index
meta.__call = function(_, ...) return core.dist(...) end -- dist is an operator as well
meta.__index = function(self, name)
  if elsewhere[name] then fail("there is no dist.%s; it is %s", name, elsewhere[name]) end
  local value = find(self, name) -- no tail call: errors look for the frame of __index
  return value
end

return dist
