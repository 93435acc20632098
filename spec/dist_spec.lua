-- flare.dist beyond collectives: who we are by the environment, meshes, handles, local SGD, a
-- pipeline of two stages.
local launch = require "spec.support.launch"

local good = launch.good

describe("flare.dist", function()
  it("is rank 0 of 1 without a job", function()
    local folder = launch.folder [[
      assert(rank == 0 and size == 1)
      local x = flare.ones{2}
      assert(dist.all_reduce(x, {reduce = "mean"})[1]:item() == 1)
      assert(dist.all_gather(x, {async = true}):wait():numel() == 2)
      dist.barrier()
      assert(dist(flare.tensor{4, 5}, x):item() == 5) -- the operator of that name
      print(dist.mesh{dp = 1}.dp.size)
    ]]
    local status, out = launch.shell(folder, "$F script.lua")
    assert.equal(0, status, out)
    assert.equal("1\n", out)
    launch.remove(folder)
  end)

  it("reads the variables of torchrun, Open MPI, PMI and Slurm", function()
    local folder = launch.folder [[
      local y = dist.all_gather(flare.tensor({rank}, {dtype = "i64"})):tolist()
      if rank == 0 then print(table.concat(y, " "), dist.local_rank()) end
    ]]
    for _, names in ipairs {
      "RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost",
      "OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$r "
        .. "OMPI_COMM_WORLD_LOCAL_SIZE=2",
      "PMI_RANK=$r PMI_SIZE=2 MPI_LOCALRANKID=$r MPI_LOCALNRANKS=2",
      "SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=$r SLURM_JOB_ID=7 SLURM_STEP_ID=$$",
    } do
      local status, out = launch.shell(folder,
        ("for r in 0 1; do env %s $F script.lua & done; wait"):format(names))
      assert.equal(0, status)
      assert.equal("0 1\t0\n", out)
    end
    local failing = launch.folder [[
      if rank == 1 then error "odd" end
      dist.barrier()
    ]]
    local _, told = launch.shell(failing, "for r in 0 1; do env PMI_RANK=$r PMI_SIZE=2 "
      .. "MPI_LOCALRANKID=$r MPI_LOCALNRANKS=2 $F script.lua & done; wait")
    assert.truthy(told:find "script.lua:%d+: rank 1 failed: script.lua:4: odd", told)
    launch.remove(failing)
    local status, out = launch.shell(folder, "RANK=5 WORLD_SIZE=2 $F script.lua")
    assert.equal(1, status)
    assert.truthy(out:find("RANK is 5 and WORLD_SIZE 2", 1, true), out)
    status, out = launch.shell(folder, "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 $F script.lua")
    assert.equal(1, status)
    assert.truthy(out:find("mpirun -n 4", 1, true), out)
    launch.remove(folder)
  end)

  it("gives each rank of a host a device of its own", function()
    good(4, [[
      assert(flare.ones({2}, {device = "sim"}).device == "sim:" .. rank % 2)
      assert(flare.ones({2}, {device = "sim:0"}).device == "sim:0")
    ]])
  end)

  it("says what is wrong with a call, and goes on", function()
    good(2, [[
      local x, other = flare.ones{4}, 1 - rank
      local model, optim = flare.nn.Linear(2, 2), flare.optim
      for k, case in ipairs {
        {"options must be a table, got string", dist.all_reduce, x, "sum"},
        {"unknown option 'op'", dist.all_reduce, x, {op = "sum"}},
        {"all_reduce: algorithm nccl is for GPUs; for cpu there are ring", dist.all_reduce, x,
          {algorithm = "nccl"}},
        {"all_reduce: algorithm nccl is for GPUs", dist.all_reduce_, x, {algorithm = "nccl"}},
        {"recv: a shape or a tensor like the one that comes is expected, got string", dist.recv,
          "x", other},
        {"recv: a shape or a tensor", dist.recv, nil, other},
        {"scatter: dim 1 of x (3) must be a multiple of the 2 ranks", dist.scatter,
          rank == 0 and flare.ones{3} or nil},
        {"scatter: dim 1 of x () must be", dist.scatter, rank == 0 and flare.tensor(1) or nil},
        {"group: a list of ranks is expected, as in {0, 2}, got number", dist.group, 2},
        {"there is no rank 5 in a job of 2", dist.group, {0, 5}},
        {"rank 0 is twice in a group", dist.group, {0, 0}},
        {"share: rank " .. rank .. " has to give a string, got nil", dist.share, nil, rank},
        {"mesh: axes are a table, as in mesh{dp = 4, tp = 2}, got nil", dist.mesh},
        {"mesh: order has 'tp', which is no axis", dist.mesh, {dp = 2, order = {"tp"}}},
        {"mesh: an axis cannot be named 'at'", dist.mesh, {at = 2}},
        {"there is no dist.get_rank; it is dist.rank()", function() return dist.get_rank() end},
        {"there is no dist.bariere (did you mean 'barrier'?)", function() dist.bariere() end},
        {"units must be a list of modules, got number", dist.ZeRO, model, optim.SGD,
          {stage = 3, units = 3}},
        {"option 'recompute' must be a boolean", dist.ZeRO, model, optim.SGD, {recompute = 1}},
        {"unit 1 is number", dist.ZeRO, model, optim.SGD, {stage = 3, units = {3}}},
        {"units needs stage 3 or gather", dist.ZeRO, model, optim.SGD, {units = {model}}},
        {"got dist.ZeRO, which has clip_grad_norm_ itself", optim.clip_grad_norm_,
          dist.ZeRO(flare.nn.Linear(2, 2), optim.SGD), 1},
        {"is expected, got SGD", optim.clip_grad_norm_, optim.SGD(model), 1},
      } do
        local ok, why = pcall(table.unpack(case, 2, 5))
        assert(not ok and tostring(why):find(case[1], 1, true), k .. ": " .. tostring(why))
        assert(dist.all_reduce(x)[1]:item() == 2)
      end
    ]])
  end)

  it("makes meshes whose groups are its lines", function()
    good(4, [[
      local mesh = dist.mesh{tp = 2, dp = 2}
      assert(mesh.at.dp == rank // 2 and mesh.at.tp == rank % 2)
      local function sum(group) return group:all_reduce(flare.tensor{2 ^ rank})[1]:item() end
      assert(sum(mesh.tp) == (rank < 2 and 3 or 12))
      assert(sum(mesh.dp) == (rank % 2 == 0 and 5 or 10))
      local other = dist.mesh{x = 2, y = 2, order = {"y", "x"}}
      assert(other.at.y == rank // 2)
      local ok, why = pcall(dist.mesh, {dp = 3})
      assert(not ok and why:find("multiply to 3, but the job has 4", 1, true), why)
      local pair = dist.group{1, 3}
      assert((pair.rank ~= nil) == (rank % 2 == 1))
    ]])
  end)

  it("gives handles that wait", function()
    good(2, [[
      for _, device in ipairs {"cpu", "sim:0"} do
        local works = {}
        for k = 1, 10 do
          works[k] = dist.all_reduce((flare.ones{50000} * k):to(device), {async = true})
        end
        for k = 10, 1, -1 do
          assert(works[k]:wait():eq(2 * k):all():item())
          assert(works[k]:done())
        end
      end
      for _, device in ipairs {"cpu", "sim:0"} do
        local work = dist.send((flare.ones{3} * rank):to(device), 1 - rank, {async = true})
        local there = dist.recv({3}, 1 - rank, {device = device, async = true}):wait()
        work:wait()
        assert(there:eq(1 - rank):all():item())
      end
      local got = dist.scatter(rank == 1 and flare.arange(0, 6):view(6, 1) or nil, {root = 1})
      assert(got.shape[1] == 3 and got[1]:item() == 3 * rank)
      assert(dist.share(rank == 0 and "a word" or nil) == "a word")
    ]])
  end)

  it("is data parallel as local SGD with one step", function()
    good(2, [[
      local nn, optim = flare.nn, flare.optim
      local function make() flare.manual_seed(1) return nn.Linear(5, 3):to "f64" end
      flare.manual_seed(2)
      local x = flare.randn({8, 5}, {dtype = "f64"})
      local a = x:narrow(1, rank * 4 + 1, 4)
      local function run(model, input, step, zero)
        for _ = 1, 5 do
          zero()
          model(input):square():mean():backward()
          step()
        end
        return model.weight:detach()
      end
      local function sgd(m) return optim.SGD(m:parameters(), {lr = 0.1}) end
      local alone = make()
      local o = sgd(alone)
      local want = run(alone, x, function() o:step() end, function() o:zero_grad() end)
      for _, every in ipairs {1, 5} do
        local model = make()
        local inner = sgd(model)
        local outer = dist.LocalSGD(model, inner, {every = every})
        local got = run(model, a, function() outer:step() end, function() inner:zero_grad() end)
        if every == 1 then assert((got - want):abs():max():item() < 1e-12) end
        assert(dist.broadcast(got):eq(got):all():item(), "ranks differ")
      end
      local model = make()
      local late = dist.LocalSGD(model, sgd(model), {every = 2, async = true})
      run(model, a, function() late:step() end, function() late.optimizer:zero_grad() end)
      late:finish()
      assert(dist.broadcast(model.weight:detach()):eq(model.weight):all():item())
      model = make()
      local outer = dist.LocalSGD(model, sgd(model), {every = 2,
        outer = function(params) return optim.SGD(params, {lr = 1}) end})
      local plain = make()
      local mean = dist.LocalSGD(plain, sgd(plain), {every = 2})
      for _ = 1, 4 do
        for _, one in ipairs {outer, mean} do
          one.optimizer:zero_grad()
          local m = one == outer and model or plain
          m(a):square():mean():backward()
          one:step()
        end
      end
      assert((model.weight - plain.weight):abs():max():item() < 1e-12)
    ]])
  end)

  it("goes on from a state in the middle of local SGD's steps, bit for bit", function()
    good(2, [[
      local nn, optim = flare.nn, flare.optim
      flare.manual_seed(2 + rank)
      local x = flare.randn({8, 5}, {dtype = "f64"})
      local function outer(params) return optim.SGD(params, {lr = 0.7, momentum = 0.9}) end
      local function make(o)
        local model = nn.Linear(5, 3):to "f64"
        local inner = optim.Adam(model:parameters(), {lr = 0.1})
        return model, inner, dist.LocalSGD(model, inner, o)
      end
      local function train(model, inner, sgd, steps)
        for _ = 1, steps do
          inner:zero_grad()
          model(x):square():mean():backward()
          sgd:step()
        end
      end
      for _, o in ipairs {{every = 3}, {every = 2, async = true}, {every = 2, outer = outer}} do
        local a, b = {make(o)}, {make(o)}
        train(a[1], a[2], a[3], 5)
        local place = "state-" .. rank
        assert(flare.save(place, {a[1]:state_dict(), a[2]:state_dict(), a[3]:state_dict()}))
        for k, state in ipairs(flare.load(place)) do b[k]:load_state_dict(state) end
        train(a[1], a[2], a[3], 4)
        train(b[1], b[2], b[3], 4)
        assert(a[1].weight:eq(b[1].weight):all():item())
        local ok, why = pcall(b[3].load_state_dict, b[3], {steps = 1, outer = not o.outer or nil})
        assert(not ok and why:find(o.outer and "without an outer" or "with an outer", 1, true), why)
      end
    ]])
  end)

  it("trains a pipeline of two stages, with gradients sent back across the cut", function()
    good(2, [[
      local nn, optim = flare.nn, flare.optim
      local function stages()
        flare.manual_seed(4)
        local one = nn.Sequential(nn.Linear(4, 8), nn.Tanh()):to "f64"
        return one, nn.Linear(8, 2):to "f64"
      end
      flare.manual_seed(5)
      local x = flare.randn({6, 4}, {dtype = "f64"})
      local first, second = stages()
      local mine = rank == 0 and first or second
      local o = optim.SGD(mine:parameters(), {lr = 0.1})
      for _ = 1, 4 do
        o:zero_grad()
        local works = {}
        for k = 1, 3 do -- micro batches
          local part = x:narrow(1, 2 * k - 1, 2)
          if rank == 0 then
            local h = mine(part)
            works[k] = {h, dist.send(h:detach(), 1, {async = true})}
          else
            local h = dist.recv({2, 8}, 0, {dtype = "f64"}):requires_grad_(true)
            local loss = mine(h):square():mean() / 3
            local params = mine:parameters()
            local grads = table.pack(flare.grad(loss, {h, table.unpack(params)}))
            for i, p in ipairs(params) do
              p.grad = p.grad and p.grad + grads[i + 1] or grads[i + 1]
            end
            dist.send(grads[1], 0)
          end
        end
        for k = 1, rank == 0 and 3 or 0 do
          works[k][2]:wait()
          works[k][1]:backward(dist.recv({2, 8}, 1, {dtype = "f64"}))
        end
        o:step()
      end
      local a, b = stages()
      local whole = nn.Sequential(a, b)
      local w = optim.SGD(whole:parameters(), {lr = 0.1})
      for _ = 1, 4 do
        w:zero_grad()
        whole(x):square():mean():backward()
        w:step()
      end
      local list = (rank == 0 and a or b):parameters()
      for k, p in ipairs(mine:parameters()) do
        assert((p - list[k]):abs():max():item() < 1e-12)
      end
    ]])
  end)
end)
