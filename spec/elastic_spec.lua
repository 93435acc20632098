-- Elastic jobs: ranks die, leave and join, and the weights are those of a run that is replayed with
-- the same numbers of ranks.
local launch = require "spec.support.launch"

-- A step of data parallel training, and the bits of the weights at the end. The lines of `event`
-- run in step k of a rank.
local training = [[
  local nn, optim = flare.nn, flare.optim
  flare.manual_seed(1)
  local model = dist.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
  local optimizer = optim.AdamW(model:parameters(), {lr = 0.1})
  local run = dist.Elastic({model = model, optimizer = optimizer}, {folder = FOLDER})
  local function batch(k) return flare.randn({12, 6}, {generator = flare.generator(k)}) end
  for k in run:steps(STEPS) do
    local n = 12 // size
    local x = batch(k):narrow(1, rank * n + 1, n)
    optimizer:zero_grad()
    model(x):square():mean():backward()
    EVENT
    optimizer:step()
  end
  if rank == 0 then
    local words = {}
    for _, entry in ipairs(run.history) do
      words[#words + 1] = ("%d:%d"):format(entry.first, entry.size)
    end
    local sum = flare.cat({model[1].weight:detach():flatten(), model[3].weight:detach():flatten()})
    print(table.concat(words, " "), (sum:bytes():gsub(".", function(c)
      return ("%02x"):format(c:byte())
    end)))
  end
]]

local function script(event, folder, steps)
  return (training:gsub("EVENT", event):gsub("FOLDER", ("%q"):format(folder))
    :gsub("STEPS", tostring(steps)))
end

-- The last line of the output: the history and the weights.
local function last(out)
  return out:match "([%d: ]+)\t(%x+)\n"
end

describe("elastic jobs", function()
  it("go on when ranks die, leave and join, as a run with the same numbers of ranks", function()
    local folder = launch.folder(script([[
      local function once(name)
        local path = "did-" .. name
        if flare.core.file.exists(path) then return false end
        assert(flare.core.file.write_atomic(path, "x"))
        return true
      end
      if k == 4 and rank == 1 and once "die" then
        os.execute("kill -9 " .. flare.core.net.pid()) -- in the middle of a step
      end
      if k == 7 and rank == 0 and once "join" then
        assert(flare.core.file.write_atomic("ranks", "4\n"))
        os.execute "sleep 20" -- the launcher ends this rank
      end
      if k == 9 and rank == 0 and once "leave" then
        assert(flare.core.file.write_atomic("ranks", "1\n"))
        os.execute "sleep 20"
      end
    ]], "run", 11))
    local status, out = launch.shell(folder,
      "exec $J -n 3 --elastic 1:4 --ranks ranks --timeout 30 script.lua", 100)
    assert.equal(0, status, out)
    local history, weights = last(out)
    assert.equal("1:3 4:2 7:4 9:1", history, out)
    assert.truthy(out:find("2 ranks instead of 3", 1, true))
    -- the same numbers, each as a job of its own
    local replay = launch.folder ""
    for _, part in ipairs {{3, 3}, {2, 6}, {4, 8}, {1, 11}} do
      local file <close> = assert(io.open(replay .. "/script.lua", "w"))
      file:write('local flare = require "flare"\nlocal dist = flare.dist\n',
        "local rank, size = dist.init()\n", script("", "run", part[2]))
      file:close()
      status, out = launch.shell(replay, ("exec $J -n %d script.lua"):format(part[1]), 60)
      assert.equal(0, status, out)
    end
    local _, again = last(out)
    assert.equal(weights, again)
    launch.remove(folder)
    launch.remove(replay)
  end)

  it("end when too few ranks are left, and say what is wrong with options", function()
    local folder = launch.folder [[
      if rank == 1 then os.execute("kill -9 " .. flare.core.net.pid()) end
      dist.barrier()
    ]]
    local status, out = launch.shell(folder, "exec $J -n 2 --elastic 2:2 script.lua", 60)
    assert.equal(137, status, out)
    assert.truthy(out:find("1 ranks are left, fewer than the 2 of --elastic", 1, true), out)
    for line, message in pairs {
      ["-n 2 --elastic 3"] = "expected the smallest and the largest number of ranks, as in 2:8",
      ["-n 5 --elastic 2:4"] = "-n 5 is not within --elastic 2:4",
      ["-n 2 --ranks f"] = "--ranks needs --elastic MIN:MAX",
      ["-n 2 --elastic 1:2 -i"] = "--elastic is for one node and a script"} do
      status, out = launch.shell(folder, "exec $J " .. line .. (line:find "-i" and "" or
        " script.lua"))
      assert.equal(2, status)
      assert.truthy(out:find(message, 1, true), out)
    end
    launch.remove(folder)
    local flare = require "flare"
    local ok, why = pcall(flare.dist.Elastic, {})
    assert.truthy(not ok and why:find("a table of objects with state_dict is expected", 1, true))
    ok, why = pcall(flare.dist.Elastic, {model = 3})
    assert.truthy(not ok and why:find("'model' has no state_dict and load_state_dict", 1, true))
  end)
end)
