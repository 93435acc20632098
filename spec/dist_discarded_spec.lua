-- Collectives whose result is lost: users of other libraries expect them to change their argument.
local launch = require "spec.support.launch"

local function warnings(text)
  local status, out, _, folder = launch.run("-n 2 --tee 1", text)
  launch.remove(folder)
  assert.equal(0, status, out)
  local list = {}
  for rank, line in out:gmatch "%[(%d)%] flare: (script.lua:%d+: the result of [%w_]+)" do
    list[#list + 1] = rank .. " " .. line
  end
  table.sort(list)
  return list, out
end

describe("a collective that is called as a statement", function()
  it("is named once, with the line, by the ranks that lose its result", function()
    local list, out = warnings [[
      local x, g = flare.ones(4), dist.world
      for _ = 1, 3 do dist.all_reduce(x) end
      dist.all_reduce(x, {async = true})
      g:all_gather(x)
      dist.broadcast(x, {root = 1})
      dist.reduce(x)
      if rank == 0 then dist.send(x, 1) else dist.recv(x, 0) end
    ]]
    assert.same({"0 script.lua:5: the result of all_reduce",
      "0 script.lua:7: the result of all_gather", "0 script.lua:8: the result of broadcast",
      "0 script.lua:9: the result of reduce", "1 script.lua:10: the result of recv",
      "1 script.lua:5: the result of all_reduce", "1 script.lua:7: the result of all_gather"},
      list, out)
    assert.truthy(out:find("dist.all_reduce_(x), which writes over x", 1, true), out)
  end)

  it("is the only one: no other use is named", function()
    local list, out = warnings [[
      local x, g, y = flare.ones(4), dist.world, nil
      y = dist.all_reduce(x)
      dist.all_reduce_(x)
      dist.all_gather(x, {async = true}):wait()
      local list = {dist.all_gather(x), n = g:all_gather(x)}
      print(#list, dist.reduce(x):sum():item())
      local function f() return dist.all_reduce(x) end
      y = f()
      pcall(dist.all_reduce, x)
      select("#", dist.reduce_scatter(x))
      assert(dist.all_to_all(x))
      dist.barrier()
      local k = rank == 0 and dist.gather(x) or dist.gather(x)
      y = coroutine.wrap(function() return (dist.scatter(x)) end)()
      flare.nn.Linear(2, 2)
      local model = dist.DataParallel(flare.nn.Linear(4, 1))
      model(x):sum():backward()
      local zero = dist.ZeRO(flare.nn.Linear(4, 1), function(p) return flare.optim.SGD(p,
        {lr = 0.1}) end, {stage = 2, find_unused = true})
      zero(x):sum():backward()
      zero:step()
    ]]
    assert.same({}, list, out)
  end)
end)
