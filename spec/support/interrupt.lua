-- Presses Ctrl-C while the prompt is at work: for spec/interrupt_spec.lua and
-- spec/long/interrupt.lua.
local core = require "flare".core
local tree = require "spec.support.tree"

local interrupt = {}

--- What the prompt is busy with, by name: a line that prepares, one that never ends or
-- not soon, and what must be true afterwards.
interrupt.cases = {
  ["a Lua loop"] = {"", "while true do end"},
  ["a coroutine"] = {
    "c = coroutine.wrap(function() while true do end end);",
    "c()",
  },
  ["coroutines that switch"] = {
    "function turn() while true do coroutine.yield() end end",
    "while true do local c = coroutine.wrap(turn) for _ = 1, 9 do c() end end",
  },
  ["a pcall loop"] = {"", "while true do pcall(function() while true do end end) end"},
  ["a pcall of errors"] = {"", "while true do pcall(error, 'no') end"},
  ["a Lua loop, pressed three times"] = {"", "while true do end", times = 3},
  ["string.find"] = {"s = ('a'):rep(60);", "s:find(('a*'):rep(40) .. 'b')"},
  ["string.gmatch"] = {"s = ('a'):rep(60);", "for _ in s:gmatch(('[ab]-'):rep(40) .. 'c') do end"},
  ["string.gsub"] = {"s = ('a'):rep(60);", "s:gsub(('a?'):rep(60) .. 'b', 'c')"},
  ["a plain string.find"] = {
    "s = ('a'):rep(1e7); t = ('a'):rep(5e6) .. 'b';",
    "s:find(t, 1, true)",
  },
  ["string.rep"] = {"", "while true do ('ab'):rep(1 << 29) end"},
  ["string.upper"] = {"s = ('a'):rep(1 << 28);", "while true do s:upper() end"},
  ["table.sort"] = {
    "t = {}; for i = 1, 2e6 do t[i] = (i * 1e9 + 7) % 1999993 end;",
    "while true do table.sort(t) table.sort({table.unpack(t, 1, 1e5)}) end",
  },
  ["table.concat"] = {
    "t = {}; for i = 1, 5e6 do t[i] = i end;",
    "while true do table.concat(t, ', ') end",
  },
  ["a product"] = {
    "a = flare.ones(6000, 6000);",
    "while true do a:matmul(a) end",
  },
  ["one large product"] = {
    "a = flare.ones(9000, 9000);",
    "a:matmul(a):matmul(a):matmul(a):sum()",
  },
  ["one long row"] = {
    "a = flare.rand(40000000);",
    "while true do a:pow(1.7) end",
  },
  ["long rows in place"] = {
    "a = flare.ones(20000000);",
    "while true do a:add_(1) end",
    "a:min():eq(a:max()):item()", -- none is half done
  },
  ["one long sort"] = {
    "a = flare.rand(10000000);",
    "while true do a:sort() end",
  },
  ["one long gather"] = {
    "i = flare.randint(1, 10000000, {10000000}); a = flare.rand(#i);",
    "while true do a:gather(1, i) end",
  },
  ["long running sums"] = {
    "a = flare.rand(40000000);",
    "while true do a:cumsum(1) end",
  },
  ["many random numbers"] = {
    "",
    "while true do flare.randn(40000000) end",
  },
  ["a backward pass"] = {
    "w = flare.ones{1500, 1500, requires_grad = true};",
    "while true do local y = w for _ = 1, 20 do y = y:matmul(w) * 0 end y:sum():backward() end",
  },
  ["a singular value decomposition"] = {"a = flare.rand(2500, 2500);", "a:svd()"},
  ["an inverse"] = {"a = flare.rand(4000, 4000);", "a:inv()"},
  ["eigenvalues"] = {"a = flare.rand(1800, 1800);", "a:eig()"},
  ["a matrix exponential"] = {"a = flare.rand(2500, 2500);", "a:matrix_exp()"},
  ["many factorizations"] = {"a = flare.rand(20000, 60, 60);", "while true do a:svd() end"},
  ["the loader"] = {
    "set = flare.data.Tensors(flare.rand(4096, 16)); l = flare.data.Loader(set, {workers = 2});",
    "for x in l:forever() do n = #x end",
  },
  ["a loader that waits"] = {
    "ch = flare.core.channel(1);",
    "ch:pop()",
  },
  ["a save"] = {
    "w = flare.rand(1 << 22); path = os.tmpname();",
    "while true do assert(flare.save(path, {w = w})) end",
    "flare.load(path).w:eq(w):all():item() and os.remove(path)",
  },
  ["a training"] = {
    "m = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)); "
    .. "o = optim.Adam(m:parameters());",
    "while true do local l = m(flare.rand(128, 256)):square():mean() o:zero_grad() "
    .. "l:backward() o:step() end",
    "m(flare.rand(1, 256)):isfinite():all():item()",
  },
}

-- The seconds of processor time of each thread, from lines of /proc/PID/task/*/stat.
local function used_by(lines)
  local used = {}
  for thread, ticks in lines:gmatch "(%d+) %(.-%) %a([^\n]*)" do
    local user, system = ticks:match((" %-?%d+"):rep(10) .. " (%d+) (%d+)")
    used[thread] = (user + system) / 100 -- a tick is 10 ms for every program
  end
  return used
end

--- Lets the prompt do one of them, presses Ctrl-C and asks whether it is alive.
-- @return true, the seconds until the prompt answered, and the processor time that the busiest
-- thread used from the press to the answer, which does not depend on the load of the machine;
-- or false and what the prompt said
function interrupt.press(case, wait)
  local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
  local fifo = os.tmpname()
  os.remove(fifo)
  assert(os.execute(("mkfifo '%s'"):format(fifo)))
  -- a prompt that hangs must not hang its spec
  local pipe = assert(io.popen(("FLARE_HISTORY= timeout -s KILL 120 '%s' -i < '%s' 2>&1")
    :format(program, fifo)))
  local input = assert(io.open(fifo, "w"))
  input:setvbuf "no"
  os.remove(fifo)
  local said = {}
  local function await(pattern)
    for line in pipe:lines() do
      said[#said + 1] = line
      local found = line:match(pattern)
      if found then return found end
    end
  end
  input:write "f = io.open '/proc/self/stat'; print('pid', f:read 'n'); f:close();\n"
  local pid = await "pid%s+(%d+)"
  input:write(case[1], "\nprint 'ready'\n")
  local ready = pid and await "ready"
  if not ready then
    pipe:close()
    return false, table.concat(said, "\n")
  end
  input:write("io.write 'begun\\n' io.flush(); ", case[2], "\n")
  if not await "begun" then
    pipe:close()
    return false, table.concat(said, "\n")
  end
  os.execute(("sleep %.2f"):format(wait or 0.2))
  local start = core.clock()
  local threads = ("for f in /proc/%s/task/*/stat; do read -r line <$f; echo \"$line\"; done; ")
    :format(pid)
  -- builtins of the shell alone, so that nothing runs between the figures and the press
  local press = ("kill -INT %s; "):format(pid):rep(case.times or 1)
  local before = used_by(tree.output(threads .. press))
  local stopped = await "interrupted"
  local seconds, busiest = core.clock() - start, 0
  for thread, used in pairs(used_by(tree.output(threads))) do
    busiest = math.max(busiest, used - (before[thread] or 0))
  end
  if stopped then input:write("ok = ", case[3] or "true", "\nprint('alive', ok)\n") end
  local alive = stopped and await "alive%s+true"
  input:close()
  pipe:close()
  if not alive then return false, table.concat(said, "\n") end
  return true, seconds, busiest
end

return interrupt
