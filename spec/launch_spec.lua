-- flare launch: ranks started, shown, logged, and ended together.
local launch = require "spec.support.launch"
local net = require("flare.core").net

-- Ranks that work until they are ended; says "going" when all are there.
local endless = [[
  dist.barrier()
  if rank == 0 then print "going" end
  while true do dist.all_reduce(flare.ones{100}) end
]]

-- Waits until the job in the folder is under way, in shell.
local under_way = "for i in $(seq 2000); do grep -q going logs/rank-0.log 2>/dev/null && break; "
  .. "sleep 0.05; done; sleep 0.1\n"

describe("flare launch", function()
  it("starts ranks that find each other, shows rank 0, keeps what all write", function()
    local status, out, _, folder = launch.run("-n 3", [[
      local y = dist.all_reduce(flare.tensor{rank})
      print(("rank %d of %d: %d %s"):format(rank, size, y[1]:item(), arg[1] or "-"))
    ]])
    assert.equal(0, status, out)
    assert.equal("rank 0 of 3: 3 -\n", out)
    for rank = 0, 2 do
      assert.equal(("rank %d of 3: 3 -\n"):format(rank),
        launch.read(folder, ("logs/rank-%d.log"):format(rank)))
    end
    status, out = launch.shell(folder, "$J -n 2 --tee 1 script.lua x")
    assert.equal(0, status)
    local first = out:match "%[0%] rank 0 of 2: 1 x\n"
    assert.truthy(first and out:find("[1] rank 1 of 2: 1 x\n", 1, true), out)
    launch.remove(folder)
  end)

  it("shows lines of several ranks whole, however long they are", function()
    local status, out, _, folder = launch.run("-n 2 --tee all", [[
      io.write(("x"):rep(300000), "\n", ("y\n"):rep(20000))
      io.write(("z"):rep(10)) -- without an end
    ]])
    launch.remove(folder)
    assert.equal(0, status)
    for rank = 0, 1 do
      local mark = ("[%d] "):format(rank)
      local x, y, z = 0, 0, 0
      for line in out:gmatch "[^\n]+" do
        if line:sub(1, 4) == mark then
          local text = line:sub(5)
          if text:find "^x+$" then x = x + #text
          elseif text == "y" then y = y + 1
          elseif text == "zzzzzzzzzz" then z = z + 1
          else error(text) end
        end
      end
      assert.same({300000, 20000, 1}, {x, y, z})
    end
  end)

  it("says what it would start, and what is wrong with its arguments", function()
    local folder = launch.folder ""
    local status, out = launch.shell(folder, "$J -n 2 --dry-run script.lua a b")
    assert.equal(0, status)
    assert.truthy(out:find "rank 1: cores .* RANK=1 WORLD_SIZE=2 flare script.lua a b")
    for wrong, message in pairs {["-n 0 script.lua"] = "at least 1",
        ["--tea script.lua"] = "unknown", [""] = "script is missing",
        ["--nnodes 2 script.lua"] = "need --rdzv",
        ["-n x script.lua"] = "expected a number", ["-n 5000 script.lua"] = "1024 at most",
        ["--nproc_per_node 2 script.lua"] = "unknown option '--nproc_per_node'; it is -n",
        ["--max_restarts=2 script.lua"] = "it is --max-restarts",
        ["-n2 --tee 1,7 script.lua"] = "--tee 7: the job has the ranks 0 to 1",
        ["--rdzv nowhere script.lua"] = "host:port", ["--rdzv :5 script.lua"] = "host:port",
        ["--rdzv a:99999 script.lua"] = "a port is at most 65535",
        ["--timeout 1e999 script.lua"] = "expected 1000000000 at most",
        ["--timeout nan script.lua"] = "a number of at least 0", ["--timeout= x"] = "needs a value",
        ["--timeout -1 script.lua"] = "a number of at least 0", ["-n -1 script.lua"] = "at least 1",
        ["-n 1.5 script.lua"] = "at least 1, without a fraction", ["-n2x script.lua"] = "-n 2x",
        ["-n 9223372036854775807 --nnodes 2 --rdzv a:1 --secret s x"] = "1024 at most",
        ["--logs '' script.lua"] = "--logs needs a value", ["nosuch.lua"] = "there is no script",
        ["--max-restarts 1e400 script.lua"] = "at least 0, without a fraction"} do
      status, out = launch.shell(folder, "$F launch " .. wrong)
      assert.equal(2, status)
      assert.truthy(out:find(message, 1, true), out)
    end
    launch.remove(folder)
  end)

  it("gives every rank its own cores", function()
    local status, out = launch.run("-n 2 --tee all", "print('threads', flare.core.threads())")
    assert.equal(0, status)
    local cores = tonumber(io.popen "nproc":read "n")
    local _, n = out:gsub("threads\t" .. math.max(1, cores // 2) .. "\n", "")
    assert.equal(2, n, out)
  end)

  it("shows the traceback of the rank that failed last, and has its status", function()
    local status, out, _, folder = launch.run("-n 3", [[
      local function broken() local none = nil return none.field end
      if rank == 1 then broken() end
      dist.barrier()
    ]])
    assert.equal(1, status)
    local last = out:match "flare launch: rank 1 ended with status 1\n(.*)$"
    assert.truthy(last and last:find "script.lua:4: attempt to index a nil value", out)
    assert.truthy(last:find("stack traceback", 1, true))
    for _, rank in ipairs {0, 2} do -- the others name it, too
      local text = launch.read(folder, ("logs/rank-%d.log"):format(rank))
      assert.truthy(text:find "rank 1 failed: script.lua:4", text)
    end
    status = launch.run("-n 2", "if rank == 1 then os.exit(7, true) end dist.barrier()")
    assert.equal(7, status)
    status, out = launch.shell(folder, [[cat >script.lua <<'END'
      if os.getenv "RANK" == "1" then os.exit(9) end
      require("flare").dist.init()
END
      $J -n 2 script.lua]])
    assert.equal(9, status)
    assert.truthy(out:find("rank 1 (it has not joined) ended with status 9", 1, true), out)
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("ends everything on Ctrl-C within 5 seconds", function()
    local folder, limit = launch.folder(endless), launch.within(5)
    local status, out = launch.shell(folder, "$J -n 2 script.lua & L=$!\n" .. under_way
      .. "date +%s.%N >began; kill -INT $L; wait $L; S=$?; date +%s.%N >ended; exit $S")
    assert.equal(130, status, out)
    local took = launch.read(folder, "ended") - launch.read(folder, "began")
    assert.is_true(took < limit, took)
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("ends all processes on Ctrl-C while its output is not read", function()
    local folder, limit = launch.folder "for k = 1, 40000 do print(k) end", launch.within(5)
    local _, slow = launch.shell(folder, "$J -n 2 script.lua | (sleep 3; tail -n 1)")
    assert.equal("40000\n", slow) -- output that is read late
    launch.shell(folder, "rm -r logs\necho \"print 'going' while true do print(1) end\" "
      .. ">script.lua")
    local status, out = launch.shell(folder, "mkfifo full; sleep 60 <full & R=$!\n"
      .. "$J -n 2 script.lua >full & L=$!\n" .. under_way .. "sleep 0.5\n"
      .. "date +%s.%N >began; kill -INT $L; wait $L; S=$?; date +%s.%N >ended; kill $R; exit $S")
    assert.equal(130, status, out)
    assert.is_true(launch.read(folder, "ended") - launch.read(folder, "began") < limit)
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("ends all processes when its output is closed", function()
    local folder = launch.folder "while true do print(dist.all_reduce(flare.ones{1}):item()) end"
    local _, out = launch.shell(folder, "{ $J -n 2 script.lua 2>&1; echo $? >status; } "
      .. "| head -n 1")
    assert.equal("2.0\n", out)
    assert.equal("141\n", launch.read(folder, "status"))
    assert.truthy(launch.read(folder, "logs/rank-1.log"):find "2.0\n") -- to the end of a line
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("goes on when what it writes to is full, and says so once for each", function()
    local folder = launch.folder "for k = 1, 3 do dist.barrier() print('line', k) end"
    local status, out = launch.shell(folder, "mkdir logs; ln -s /dev/full logs/rank-1.log\n"
      .. "$J -n 2 --tee all script.lua 2>&1 >/dev/full")
    assert.equal(0, status, out)
    for _, name in ipairs {"standard output", "logs/rank%-1.log"} do
      local _, n = out:gsub("flare launch: " .. name .. ": No space left on device; no more is "
        .. "written there\n", "")
      assert.equal(1, n, out)
    end
    assert.equal("line\t1\nline\t2\nline\t3\n", launch.read(folder, "logs/rank-0.log"))
    status, out = launch.shell(folder, "$F launch -n 2 --logs script.lua/logs script.lua")
    assert.equal(2, status)
    assert.truthy(out:find("--logs script.lua/logs: Not a directory", 1, true), out)
    launch.remove(folder)
  end)

  it("does not write over the logs of another job", function()
    local folder = launch.folder(endless)
    local status, out = launch.shell(folder, "$J -n 2 script.lua & L=$!\n" .. under_way
      .. "$J -n 1 script.lua; S=$?; kill -INT $L; wait $L; exit $S")
    assert.equal(2, status, out)
    assert.truthy(out:find("another job writes logs/rank-0.log: give this one a folder of its own, "
      .. "as in --logs logs-2", 1, true), out)
    assert.equal("going\n", launch.read(folder, "logs/rank-0.log"):match "^going\n")
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("needs no terminal, nor any of stdin, stdout and stderr", function()
    local folder = launch.folder [[
      assert(io.read() == nil)
      print(rank)
      dist.barrier()
      if rank == 0 then print "going" end
      repeat until dist.share(rank == 0 and (io.open "stop" and "stop" or "on") or nil) == "stop"
    ]]
    for _, closed in ipairs {"<&- >&- 2>&-", "<&- >&-", ">&-"} do
      local status, out = launch.shell(folder, ("rm -rf stop logs; (trap '' HUP; exec $J "
        .. "-n 2 script.lua %s) & L=$!\n"):format(closed) .. under_way
        .. "kill -HUP $L; touch stop; wait $L")
      assert.equal(0, status, out)
      assert.equal("0\ngoing\n", launch.read(folder, "logs/rank-0.log"))
      assert.equal("1\n", launch.read(folder, "logs/rank-1.log"))
    end
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("leaves no process when it is killed itself", function()
    local folder = launch.folder("local child = rank == 0 and io.popen 'sleep 60'\n" .. endless)
    launch.shell(folder, "$J -n 2 script.lua & L=$!\n" .. under_way .. "kill -KILL $L")
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("starts again after a failure, as often as it may", function()
    local status, out, _, folder = launch.run("-n 2 --max-restarts 2", [[
      local turn = tonumber(os.getenv "FLARE_RESTART")
      local place = "state.ckpt"
      local state = flare.load(place) or {step = 0}
      print("turn", turn)
      while state.step < 6 do
        state.step = state.step + dist.all_reduce(flare.ones{1})[1]:item() / size
        if rank == 0 then assert(flare.save(place, state)) end
        dist.barrier()
        if rank == 1 and state.step == 2 * turn + 2 and turn < 2 then os.exit(3, true) end
      end
      if rank == 0 then print("end at", state.step, "turn", turn) end
    ]])
    assert.equal(0, status, out)
    assert.truthy(out:find("end at\t6.0\tturn\t2", 1, true), out)
    assert.truthy(out:find("starting again (2 of 2)", 1, true), out)
    local log = launch.read(folder, "logs/rank-1.log") -- of all attempts
    assert.truthy(log:find "turn\t0\n.*turn\t1\n.*turn\t2\n", log)
    launch.remove(folder)
  end)

  it("waits longer before each further attempt", function()
    local status, out, took, folder = launch.run("-n 1 --max-restarts 2", "error 'odd'")
    launch.remove(folder)
    assert.equal(1, status)
    assert.truthy(out:find "starting again %(1 of 2%) in 1 s\n.*starting again %(2 of 2%) in 2 s\n",
      out)
    assert.is_true(took >= 3, took)
    local restart, pauses = require("flare.repl.launch.restart").new(), {}
    for k, ran in ipairs {0, 0, 0, 0, 0, 0, 0, 0, 61, 1} do pauses[k] = restart:pause(ran) end
    assert.same({1, 2, 4, 8, 16, 32, 60, 60, 1, 2}, pauses)
  end)

  it("heeds Ctrl-C between two attempts", function()
    local folder, limit = launch.folder "error 'odd'", launch.within(5)
    local status, out, took = launch.shell(folder, "$F launch -n 1 --max-restarts 20 script.lua & "
      .. "L=$!\nsleep 6; kill -INT $L; wait $L")
    assert.equal(130, status, out)
    assert.is_true(took < 6 + limit, took)
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("leaves nothing in the folder of a user who does not ask for logs", function()
    local folder = launch.folder "if arg[1] then error 'odd' end print(rank)"
    local list = "ls -A | grep -v .shell; "
    local status, out = launch.shell(folder, "mkdir t; export TMPDIR=$PWD/t\n"
      .. "$F launch -n 2 script.lua; S=$?; " .. list .. "ls t; exit $S")
    assert.equal(0, status, out)
    assert.equal("0\nscript.lua\nt\n", out)
    status, out = launch.shell(folder, "export TMPDIR=$PWD/t\n$F launch -n 2 script.lua x; S=$?; "
      .. list .. "cat t/flare-launch-*/rank-1.log; ls -ld t/flare*; exit $S")
    assert.equal(1, status, out)
    assert.truthy(out:find "the output of all ranks is in %S+/t/flare%-launch%-%w+\n", out)
    assert.truthy(out:find "\nscript.lua\nt\n.*script.lua:4: odd.*\ndrwx%-%-%-%-%-%- ", out)
    launch.remove(folder)
  end)

  it("joins launchers by a rendezvous and a secret", function()
    local folder = launch.folder [[
      local y = dist.all_gather(flare.tensor({rank}, {dtype = "i64"}))
      if rank == 0 then print(table.concat(y:tolist(), " ")) end
    ]]
    local nodes = "--nnodes 2 --rdzv 127.0.0.1:%d --secret secret -n 2 --logs %s"
    local listener, port = net.listen("127.0.0.1", 0) -- one that is free
    net.close(listener)
    local one = nodes:format(port, "logs1") .. " --node-rank 1 script.lua"
    local zero = nodes:format(port, "logs0") .. " --node-rank 0 script.lua"
    local status, out = launch.shell(folder, ("$F launch %s & $F launch %s; s=$?; wait; exit $s")
      :format(one, zero))
    assert.equal(0, status, out)
    assert.equal("0 1 2 3\n", out)
    assert.truthy(launch.read(folder, "logs1/rank-3.log"))
    -- one of the other node fails once: both begin again
    launch.shell(folder, [[cat > script.lua <<'END'
      local flare = require "flare"
      local dist = flare.dist
      local rank = dist.init()
      local turn = tonumber(os.getenv "FLARE_RESTART")
      dist.barrier()
      if rank == 3 and turn == 0 then os.exit(3, true) end
      dist.barrier()
      if rank == 0 then print("end", turn) end
END]])
    one, zero = one:gsub("script", "--max-restarts 2 script"), zero:gsub("script",
      "--max-restarts 2 script")
    status, out = launch.shell(folder, ("$F launch %s & $F launch %s; s=$?; wait $!; echo $?; "
      .. "exit $s"):format(one, zero))
    assert.equal(0, status, out)
    assert.truthy(out:find "end\t1\n", out)
    assert.truthy(out:find "\n0\n$", out)
    assert.equal(2, select(2, out:gsub("starting again %(1 of 2%)", "")))
    for _, log in ipairs {"logs0/rank-0.log", "logs0/rank-1.log", "logs1/rank-2.log"} do
      assert.truthy(launch.read(folder, log):find "rank 3 %(pid %d+%) left the job; it has done")
    end
    launch.gone(folder)
    status, out = launch.shell(folder, "chmod 644 secret; $F launch " .. zero)
    assert.equal(2, status)
    assert.truthy(out:find("chmod 600", 1, true), out)
    launch.remove(folder)
  end)

  it("lets launchers wait for each other as long as --timeout says", function()
    local folder = launch.folder ""
    local listener, port = net.listen("127.0.0.1", 0)
    net.close(listener)
    local command = ("timeout -k 1 60 $F launch --nnodes 2 --rdzv 127.0.0.1:%d --secret secret "
      .. "-n 1 --timeout 0.5 --node-rank %%d script.lua"):format(port)
    for _, case in ipairs { -- node 0 makes the secret's file
        {1, "secret: node 0 has not written the secret within 0.5 s", 2},
        {0, "flare launch: node 1 did not come within 0.5 s", 1},
        {1, "Connection refused", 1}} do
      local status, out = launch.shell(folder, command:format(case[1]))
      assert.equal(case[3], status, out)
      assert.truthy(out:find(case[2], 1, true), out)
    end
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("says why launchers do not meet, and heeds Ctrl-C meanwhile", function()
    local folder = launch.folder ""
    local listener, port = net.listen("127.0.0.1", 0)
    launch.shell(folder, "(umask 077; printf %064d 1 >right; printf %064d 2 >wrong)")
    local function node(k, nodes, secret)
      return ("timeout -k 1 60 $F launch --nnodes %d --rdzv 127.0.0.1:%d --secret %s -n 1 "
        .. "--logs l%d --node-rank %d script.lua"):format(nodes, port, secret, k, k)
    end
    local function tells(text, lines)
      local status, out = launch.shell(folder, lines)
      assert.truthy(out:find(text, 1, true), out)
      return status, out
    end
    tells("it is no launcher: it says nothing", node(1, 2, "right"))
    net.close(listener)
    assert.equal(130, (tells("flare launch: interrupted", node(1, 2, "right")
      .. " & sleep 0.5; kill -INT $(pgrep -P $!); wait $!")))
    local zero = node(0, 3, "right") .. " & Z=$!; sleep 0.3\n"
    local stop = "\nkill -INT $(pgrep -P $Z); wait $Z"
    tells("does not take our secret: --secret must be the same file everywhere",
      zero .. node(1, 3, "wrong") .. stop)
    tells("node 1 was started with --nnodes 2, node 0 with 3", zero .. node(1, 2, "right") .. stop)
    local again = node(1, 3, "right") -- it comes, leaves, and comes again
    assert.equal(0, (tells("flare launch: node 1 is here already", zero .. again .. " & A=$!\n"
      .. "sleep 0.3\n" .. again .. "\nkill -INT $(pgrep -P $A); wait $A\n" .. again
      .. " & sleep 0.1; " .. node(2, 3, "right") .. "; wait $Z")))
    launch.gone(folder)
    launch.remove(folder)
  end)

  it("has a prompt that runs texts on all ranks", function()
    local folder = launch.folder ""
    local status, out = launch.shell(folder, [==[cat > lines <<'END'
ranks[[ rank * 10 ]]
ranks[[ x = flare.ones{2} * (rank + 1) ]]
ranks[[ dist.all_reduce(x):sum():item() ]]
ranks[[ nil + 1 ]]
ranks[[ setmetatable({}, {__tostring = function() error "no words" end}) ]]
ranks(string.dump(function() end))
print("size", size)
END
$J -n 2 -i < lines]==])
    assert.equal(0, status, out)
    assert.truthy(out:find "0  0\n +1  10\n", out)
    assert.truthy(out:find "0  6.0\n +1  6.0\n", out)
    assert.truthy(out:find "0  error: ranks:1: attempt .-\n +1  error: ranks:1: attempt", out)
    assert.equal(2, select(2, out:gsub("error: ranks:1: no words", "")))
    assert.truthy(out:find("binary chunks are refused", 1, true), out)
    assert.truthy(out:find("size\t2", 1, true), out)
    launch.gone(folder)
    assert.equal(2, (launch.shell(folder, "$J -n 2 -i script.lua")))
    -- other jobs do not listen
    status, out = launch.shell(folder, [[cat > script.lua <<'END'
      require "flare.dist.prompt".lead()
END
      $J -n 2 script.lua]])
    assert.equal(1, status)
    assert.truthy(out:find("not started with -i", 1, true), out)
    launch.remove(folder)
  end)
end)
