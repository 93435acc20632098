-- Ranks that die, hang or are out of step: who it was and where, on every rank, within seconds.
local core = require "flare.core"
local launch = require "spec.support.launch"

-- Runs 4 ranks, which may call now() when something happens; the outputs of all by rank, what the
-- launcher said, status, seconds from then to the end.
local function run(text, options, variables)
  local status, out, _, folder = launch.run(("-n 4 %s"):format(options or ""),
    "local function now() io.open('now', 'w'):write(flare.core.clock()):close() end " .. text,
    nil, variables)
  local stop, logs = core.clock(), {}
  for rank = 0, 3 do logs[rank] = launch.read(folder, ("logs/rank-%d.log"):format(rank)) end
  local file <close> = io.open(folder .. "/now")
  launch.gone(folder)
  launch.remove(folder)
  return logs, out, status, file and stop - file:read "n"
end

-- Every rank but the guilty says the same.
local function verdicts(logs, guilty, pattern)
  local first
  for rank = 0, 3 do
    if rank ~= guilty then
      local text = logs[rank]:match "(rank %d[^\n]*)"
      assert.truthy(text and text:find(pattern), ("rank %d: %s"):format(rank, logs[rank]))
      first = first or text
      assert.equal(first, text)
    end
  end
end

describe("a rank that is killed", function()
  it("is named by all others, who end within 5 seconds", function()
    local limit = launch.within(5)
    for turn = 1, 5 do
      local victim = turn % 4
      local logs, out, status, took = run(([[
        local core = flare.core
        local pid = core.net.pid()
        for k = 1, 100000 do
          if rank == %d and k == %d then -- here, or anywhere
            local how = %d > 2 and "(sleep 0.0%d; kill -KILL %%d) &" or "kill -KILL %%d"
            now()
            os.execute(how:format(pid))
          end
          dist.all_reduce(flare.ones{70000}, {reduce = "mean"})
        end
      ]]):format(victim, 20 * turn, turn, turn))
      assert.equal(137, status, out)
      assert.is_true(took < limit, took)
      verdicts(logs, victim, ("^rank %d .* died: signal 9 .*all_reduce #%%d+ .*script.lua:"):format(
        victim))
      assert.truthy(out:find(("rank %d ended by signal 9"):format(victim), 1, true), out)
      assert.truthy(out:find "rank %d %(pid %d+%): is in all_reduce #%d+ f32 %(70000%) at", out)
    end
  end)
end)

describe("a job with restarts", function()
  it("ends with the weights of an undisturbed one, bit for bit", function()
    local text = [[
      local nn, optim, data = flare.nn, flare.optim, flare.data
      local turn, kills = tonumber(os.getenv "FLARE_RESTART"), tonumber(arg[1])
      flare.manual_seed(5)
      local x = flare.randn(60, 6)
      local loader = data.Loader(data.Tensors(x, x:sum{dim = 2}), {batch = 12, shuffle = true,
        shard = dist.world})
      local model = dist.DataParallel(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.Tanh(),
        nn.Linear(16, 1)))
      local o = optim.Adam(model:parameters(), {lr = 0.01})
      local place = ("state-%d-%d.ckpt"):format(kills, size)
      local step = 0
      local saved = flare.load(place)
      if saved then
        step = saved.step
        model:load_state_dict(saved.model)
        o:load_state_dict(saved.optimizer)
        loader:load_state_dict(saved.place)
      end
      for a, b in loader:forever() do
        flare.manual_seed(1000 * step + rank) -- what dropout draws is a matter of step and rank
        local loss = (model(a):squeeze(2) - b):square():mean()
        o:zero_grad()
        loss:backward()
        o:step()
        step = step + 1
        if rank == 0 and step % 2 == 0 then
          assert(flare.save(place, {step = step, model = model:state_dict(),
            optimizer = o:state_dict(), place = loader:state_dict()}))
        end
        if turn < kills and step == 5 * turn + 4 and rank == (turn + 1) % size then
          os.execute("kill -KILL " .. flare.core.net.pid())
        end
        if step == 24 then break end
      end
      local words = {}
      for name, t in pairs(model:state_dict()) do
        words[#words + 1] = name .. flare.core.crc32c(t:detach():contiguous())
      end
      table.sort(words)
      if rank == 0 then print("weights", table.concat(words, " ")) end
    ]]
    local folder = launch.folder(text)
    local status, out = launch.shell(folder, "$J -n 4 script.lua 0")
    assert.equal(0, status, out)
    local want = out:match "weights[^\n]*"
    status, out = launch.shell(folder, "$J -n 4 --max-restarts 4 script.lua 4")
    assert.equal(0, status, out)
    assert.equal(4, select(2, out:gsub("starting again", "")))
    assert.equal(want, out:match "weights[^\n]*")
    launch.gone(folder)
    launch.remove(folder)
  end)
end)

describe("a rank that hangs", function()
  it("is named when the time is over, whether it works or was stopped", function()
    local limit = launch.within(3 + 5)
    for _, how in ipairs {"while true do end",
        "os.execute('kill -STOP ' .. flare.core.net.pid())"} do
      local logs, out, status, took = run(([[
        dist.barrier()
        for k = 1, 100 do
          if rank == 2 and k == 30 then now() %s end
          dist.all_reduce(flare.ones{10})
        end
      ]]):format(how), "--timeout 3")
      assert.equal(1, status, out)
      assert.is_true(took < limit, took)
      verdicts(logs, 2, "^rank 2 .* did not come to all_reduce #31 f32 %(10%) at script.lua:7 "
        .. "within 3 s; it has done all_reduce #30")
    end
  end)

  it("is named when it sends nothing, or has never come", function()
    local logs = run([[
      if rank == 1 then dist.recv({3}, 3) elseif rank ~= 3 then dist.recv({3}, 1) end
      if rank == 3 then dist.recv({3}, 0) end
    ]], "--timeout 3")
    verdicts(run("if rank == 2 then while true do end end dist.barrier()", "--timeout 1"), 2,
      "^rank 2 .* did not come to barrier #1 at script.lua:4 within 5 s; it has called no "
      .. "collective")
    verdicts(logs, -1, "^rank %d .* did not come to recv #1 f32 %(3%) from rank %d at script.lua:")
  end)
end)

describe("a rank that has done its part and left", function()
  it("is no fault to one that slept meanwhile", function()
    local _, out, status = run [[
      local pair, pid = dist.group{1, 2}, flare.core.net.pid()
      local pause = "(sleep 0.2; kill -STOP %d; sleep 0.6; kill -CONT %d) >pauses 2>&1 &"
      if rank == 1 then os.execute(pause:format(pid, pid)) end
      if rank == 0 then os.execute "sleep 0.5" end
      dist.barrier()
      if pair.rank then pair:barrier() end
    ]]
    assert.equal(0, status, out)
  end)
end)

describe("a rank out of step", function()
  -- what rank 2 does, what the others do, the message on all ranks
  local cases = {
    {"calls another operator", "dist.broadcast(x)", "dist.all_reduce(x)",
      "rank 2 called broadcast #2 f32 %(4%) root 0 at script.lua:5, but ranks 0, 1, 3 called "
      .. "all_reduce #2 f32 %(4%) sum at script.lua:5"},
    {"has another shape", "dist.all_reduce(flare.ones{5})", "dist.all_reduce(x)",
      "rank 2 called all_reduce #2 f32 %(5%) sum at script.lua:5"},
    {"has as many elements in another shape", "dist.all_reduce(x:view(2, 2))",
      "dist.all_reduce(x)", "rank 2 called all_reduce #2 f32 %(2, 2%) sum at script.lua:5"},
    {"has another dtype", "dist.all_reduce(x:to 'f64')", "dist.all_reduce(x)",
      "rank 2 called all_reduce #2 f64 %(4%) sum at script.lua:5"},
    {"reduces otherwise", "dist.all_reduce(x, {reduce = 'max'})", "dist.all_reduce(x)",
      "rank 2 called all_reduce #2 f32 %(4%) max at script.lua:5"},
    {"has another root", "dist.broadcast(x, {root = 1})", "dist.broadcast(x)",
      "rank 2 called broadcast #2 f32 %(4%) root 1 at script.lua:5"},
    {"calls in another order", "dist.barrier() dist.all_reduce(x)",
      "dist.all_reduce(x) dist.barrier()", "rank 2 called barrier #2 at script.lua:5"},
    {"leaves one call out", "", "dist.all_reduce(x)",
      "rank 2 called all_reduce #2 f32 %(4%) sum at script.lua:6, but ranks 0, 1, 3 called "
      .. "all_reduce #2 f32 %(4%) sum at script.lua:5", "FLARE_DIST_CHECK=1"},
    {"has a batch too few and leaves", "os.exit(0, true)", "dist.all_reduce(x)",
      "rank 2 %(pid %d+%) left the job; it has done barrier #1 at script.lua:4"},
  }
  for _, case in ipairs(cases) do
    it("gets an error when it " .. case[1], function()
      local logs, out, status = run(([[local x = flare.ones{4} dist.barrier()
        if rank == 2 then %s else %s end
        dist.all_reduce(x)
      ]]):format(case[2], case[3]), "", case[5])
      assert.not_equal(0, status, out)
      verdicts(logs, 2, case[4])
    end)
  end

  it("gets an error when it receives what no rank sends, or makes another group", function()
    local logs = run([[
      if rank == 1 then dist.send(flare.ones{2, 3}, 2) end
      if rank == 2 then dist.recv({3, 2}, 1) end
      dist.barrier()
    ]])
    verdicts(logs, -1, "^rank 1 called send #1 f32 %(2, 3%) at script.lua:4, but rank 2 called "
      .. "recv #1 f32 %(3, 2%) at script.lua:5")
    logs = run [[
      local g = dist.group(rank == 2 and {0, 2} or {2, 0})
      if g.rank then g:barrier() end
    ]]
    for _, rank in ipairs {0, 2} do
      assert.truthy(logs[rank]:find("made group 1 of the ranks [02] [02], but rank [02] of [02] "
        .. "[02]: all ranks of the job make all groups, the same in the same order"), logs[rank])
    end
  end)
end)
