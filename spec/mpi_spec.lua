-- The MPI engine, under mpirun with 2 and 3 ranks, where MPI is; each line against a value.
local launch = require "spec.support.launch"
local tree = require "spec.support.tree"

local there = tree.exists(tree.build .. "/lua/flare/mpi.so")
  and tree.output "command -v mpirun" ~= ""
local try = there and it or pending

-- @param program a copy in another place, with its libraries
local function run(n, text, options, program)
  local folder = launch.folder ""
  local file <close> = assert(io.open(folder .. "/script.lua", "w"))
  file:write('local flare = require "flare"\nlocal dist = flare.dist\n',
    'local rank, size = dist.init{engine = "mpi"}\n', text)
  file:close()
  local status, out = launch.shell(folder, ([[unset LUA_CPATH LUA_CPATH_5_4
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    F=%s
    export LD_LIBRARY_PATH=${F%%/*}:$LD_LIBRARY_PATH
    %s $F script.lua]]):format(program or launch.program,
    options or ("mpirun --oversubscribe -n %d"):format(n)))
  launch.remove(folder)
  return status, out
end

describe("the MPI engine", function()
  for _, n in ipairs {2, 3} do
    try("carries every collective, with " .. n .. " ranks", function()
      local status, out = run(n, [[
        local function ramp(m, dtype) return flare.arange(0, m, {dtype = dtype}) + rank end
        local total = size * (size - 1) // 2
        for _, dtype in ipairs {"f64", "f32", "bf16", "i64", "i8"} do
          local y = dist.all_reduce(ramp(5, dtype))
          assert(y:eq(flare.arange(0, 5, {dtype = dtype}) * size + total):all():item(), dtype)
          y = dist.all_reduce(ramp(5, dtype), {reduce = "max"})
          assert(y:eq(ramp(5, dtype) - rank + size - 1):all():item())
        end
        local big = flare.ones({300000}, {dtype = "f64"}) * (rank + 1)
        assert(dist.all_reduce(big, {reduce = "mean"}):eq((size + 1) / 2):all():item())
        assert(dist.all_reduce_(big):eq(size * (size + 1) / 2):all():item())
        local all = dist.all_gather(ramp(3, "i64"))
        assert(all.shape[1] == 3 * size and all:sum():item() == 3 * size + 3 * total)
        assert(all[3 * size]:item() == 2 + size - 1)
        local got = dist.gather(ramp(3, "i64"), {root = 1})
        assert(got:numel() == (rank == 1 and 3 * size or 0))
        assert(rank ~= 1 or got:eq(all):all():item())
        assert(dist.broadcast(ramp(3, "f32"), {root = 1})[1]:item() == 1)
        local sum = dist.reduce(ramp(3, "f32"), {root = 1})
        assert(sum[1]:item() == (rank == 1 and total or rank))
        local part = dist.reduce_scatter(flare.arange(0, 2 * size, {dtype = "f64"}) + rank)
        assert(part[1]:item() == 2 * rank * size + total)
        local swapped = dist.all_to_all(flare.arange(0, size, {dtype = "i64"}) + 100 * rank)
        for k = 1, size do assert(swapped[k]:item() == 100 * (k - 1) + rank) end
        local mine = dist.scatter(rank == 0 and flare.arange(0, 4 * size, {dtype = "i64"}) or nil)
        assert(mine[1]:item() == 4 * rank)
        local next_one, last = (rank + 1) % size, (rank + size - 1) % size
        local work = dist.send(flare.ones{200000} * rank, next_one, {async = true})
        assert(dist.recv({200000}, last):eq(last):all():item())
        work:wait()
        dist.barrier()
        assert(dist.share(rank == 1 and "words" or nil, 1) == "words")
        local group = dist.group{1, 0}
        if group.rank then
          local pair = group:all_gather(flare.tensor({rank}, {dtype = "i64"}))
          assert(pair[1]:item() == 1 and pair[2]:item() == 0)
        end
        local x = flare.ones({4}, {dtype = "f64"}):requires_grad_(true)
        local g = flare.grad((dist.all_reduce(x) * (rank + 1)):sum(), {x})
        assert(g:eq(size * (size + 1) / 2):all():item())
        if rank == 0 then print "well" end
      ]])
      assert.equal(0, status, out)
      assert.truthy(out:find("well", 1, true), out)
    end)
  end

  try("trains in parallel as one process", function()
    local status, out = run(2, [[
      local nn, optim = flare.nn, flare.optim
      local function make() flare.manual_seed(1) return nn.Linear(5, 3):to "f64" end
      flare.manual_seed(2)
      local x = flare.randn({8, 5}, {dtype = "f64"})
      local function train(model, input)
        local o = optim.SGD(model:parameters(), {lr = 0.1})
        for _ = 1, 5 do
          o:zero_grad()
          model(input):square():mean():backward()
          o:step()
        end
        return model.weight:detach()
      end
      local want = train(make(), x)
      local got = train(dist.DataParallel(make()), x:narrow(1, 4 * rank + 1, 4))
      assert((got - want):abs():max():item() < 1e-12)
      if rank == 0 then print "well" end
    ]])
    assert.equal(0, status, out)
    assert.truthy(out:find("well", 1, true), out)
  end)

  try("ends the job when a rank has failed", function()
    local status, out = run(3, [[
      local pair = dist.group{0, 1}
      dist.barrier()
      if rank == 1 then error "odd" end
      dist.barrier()
    ]], "timeout 60 mpirun --oversubscribe -n 3")
    assert.equal(1, status, out)
    assert.truthy(out:find("script.lua:6: odd", 1, true), out)
  end)

  try("keeps ten thousand sends in flight", function()
    local status, out = run(2, [[
      local works, n = {}, 10000
      if rank == 0 then
        for k = 1, n do works[k] = dist.send(flare.full({100}, k), 1, {async = true}) end
        for k = n, 1, -1 do works[k]:wait() end
      else
        for k = 1, n do assert(dist.recv({100}, 0)[100]:item() == k) end
      end
      dist.barrier()
      for k = 1, 1000 do works[k] = dist.all_reduce(flare.full({3}, k), {async = true}) end
      for k = 1, 1000 do assert(works[k]:wait()[3]:item() == 2 * k) end
    ]], "timeout 60 mpirun --oversubscribe -n 2")
    assert.equal(0, status, out)
  end)

  try("is found where the program is, and asked for by name where it is not", function()
    local folder = launch.folder ""
    launch.shell(folder, "mkdir -p a/bin b/bin a/lib/lua/5.4/flare\n"
      .. "B=$(dirname $F)\n"
      .. "for d in a/bin b/bin; do cp $F $B/libflare.so.0 $B/libflarelua.so.0 $d; done\n"
      .. "cp $B/lua/flare/mpi.so a/lib/lua/5.4/flare")
    local status, out = run(2, "dist.barrier() print 'well'", nil, folder .. "/a/bin/flare")
    assert.equal(0, status, out)
    assert.equal("well\nwell\n", out)
    status, out = run(2, "", nil, folder .. "/b/bin/flare")
    launch.remove(folder)
    assert.not_equal(0, status)
    assert.truthy(out:find("dist.init: the MPI engine, flare/mpi.so, is missing", 1, true), out)
    assert.truthy(out:find("/b/bin/lua/flare/mpi.so", 1, true), out)
  end)

  it("is started by mpirun or srun only", function()
    local status, out = run(2, "", "env RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2")
    assert.equal(1, status)
    assert.truthy(out:find("mpirun -n 2 flare", 1, true), out)
  end)
end)
