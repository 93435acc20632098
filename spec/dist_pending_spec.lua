-- Asynchronous calls: far more of them are in flight than a buffer of fixed size holds.
local launch = require "spec.support.launch"
local ranks = require "spec.support.ranks"

-- Fails unless the job of two ranks ends well.
local function good(text, options)
  local status, out, _, folder = launch.run("-n 2 --timeout 30 " .. (options or ""), text, 240)
  launch.gone(folder)
  launch.remove(folder)
  assert.equal(0, status, out)
  return out
end

describe("asynchronous calls in flight", function()
  for _, device in ipairs {"cpu", "sim"} do
    for _, n in ipairs {130, 1000, 10000} do
      it(("end with the right values: %d collectives on %s"):format(n, device), function()
        local out = good(([[
          local n, device, works = %d, %q, {}
          for k = 1, n do
            works[k] = dist.all_reduce(flare.full({3}, k + rank, {device = device}), {async = true})
          end
          for k = 1, n do
            local v = works[k]:wait()[1]:item()
            assert(v == 2 * k + 1, ("call %%d gave %%g"):format(k, v))
          end
          assert(dist.all_reduce(flare.ones(1)):item() == 2)
          if rank == 0 then print "done" end
        ]]):format(n, device))
        assert.equal("done\n", out)
      end)
    end
  end

  it("may be of several kinds and groups at once", function()
    good [[
      local groups, works, peer = {dist.world, dist.group{0, 1}, dist.group{1, 0}}, {}, 1 - rank
      for k = 1, 600 do
        local g = groups[k % 3 + 1]
        works[#works + 1] = {2 * k + 1, g:all_reduce(flare.full({2}, k + rank), {async = true})}
        works[#works + 1] = {k, g:broadcast(flare.full({2}, k + rank), {async = true,
          root = g.rank == rank and 0 or 1})}
        works[#works + 1] = {k + peer, dist.recv({2}, peer, {async = true})}
        dist.send(flare.full({2}, k + rank), peer, {async = true})
      end
      for k, w in ipairs(works) do
        local v = w[2]:wait()[2]:item()
        assert(v == w[1], ("work %d gave %g for %g"):format(k, v, w[1]))
      end
    ]]
  end)

  it("keep the line of their own call for a verdict", function()
    local status, out, took, folder = launch.run("-n 2 --timeout 2", [[
      dist.barrier()
      local works = {}
      for k = 1, 400 do
        if k <= 200 or rank == 0 then
          works[k] = dist.all_reduce(flare.ones(k), {async = true})
        end
      end
      if rank == 1 then flare.core.net.poll({}, {}, 60000) end
      for k = 1, 400 do works[k]:wait() end
    ]], 120)
    launch.gone(folder)
    launch.remove(folder)
    assert.equal(1, status, out)
    assert.truthy(out:find("did not come to all_reduce #202 f32 (201) at script.lua:8 within 2 s",
      1, true), out)
    assert.is_true(took < launch.within(12), took)
  end)
end)

describe("what sends many tensors", function()
  it("ZeRO with find_unused and 300 parameters", function()
    good [[
      local list = {}
      for k = 1, 150 do list[k] = flare.nn.Linear(2, 2) end
      local model = flare.nn.Sequential(table.unpack(list))
      for _, stage in ipairs {1, 2} do
        local zero = dist.ZeRO(model, function(p) return flare.optim.SGD(p, {lr = 0.1}) end,
          {stage = stage, find_unused = true})
        zero:zero_grad()
        zero(flare.ones(1, 2)):sum():backward()
        zero:step()
        zero:zero_grad()
        zero(flare.ones(1, 2)):sum():backward()
        zero:step()
      end
    ]]
  end)

  it("DataParallel with a bucket for each of 300 parameters", function()
    good [[
      local list = {}
      for k = 1, 150 do list[k] = flare.nn.Linear(2, 2) end
      local model = dist.DataParallel(flare.nn.Sequential(table.unpack(list)),
        {bucket_mb = 0.000001})
      for _ = 1, 2 do
        model:zero_grad()
        model(flare.ones(1, 2)):sum():backward()
      end
    ]]
  end)

  it("all_reduce_ of every gradient, in the threads of several groups", function()
    ranks.good(3, [[
      comm.group{0, 1, 2}
      comm.attach(1, "host", "cpu")
      local grads = {}
      for k = 1, 500 do
        grads[k] = flare.full({17}, k)
        grads[k]:comm_all_reduce_{group = k % 2, async = true}
      end
      flare.core.comm_barrier{group = 0}
      flare.core.comm_barrier{group = 1}
      for k = 1, 500 do assert(grads[k][17]:item() == 3 * k, k) end
    ]], {seconds = 120})
  end)
end)
