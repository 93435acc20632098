-- flare attach: prompts inside of scripts that run.
local Session = require "spec.support.session"
local Wire = require "flare.repl.dap.wire"
local alert = require "flare.repl.alert"
local attach = require "flare.repl.attach"
local again = require "spec.support.attach"
local core = require "flare.core"
local tree = require "spec.support.tree"
local written = tree.written

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

-- Runs f(pid, path) beside a script, which prints its number first and runs until f is over;
-- returns what it printed then.
local function beside(script, f, settings)
  local path = written('print((require "flare.core".net.pid())) io.stdout:flush()\n' .. script)
  local command = ("%s exec timeout 20 '%s' '%s' 2>&1"):format(settings or "", program, path)
  local job = assert(io.popen(command))
  local ok, problem = pcall(f, math.tointeger(job:read "n"), path)
  job:read "l"
  if not ok then
    error(tostring(problem) .. "\n" .. job:read "a", 0)
  end
  local out = job:read "a"
  job:close()
  os.remove(path)
  return out
end

-- What flare attach shows for these lines.
local function attached(pid, lines, settings)
  local input = written(table.concat(lines, "\n") .. "\n")
  local out = tree.output(("FLARE_HISTORY= %s timeout 30 '%s' attach %d < '%s' 2>&1"):format(
    settings or "", program, pid, input))
  os.remove(input)
  return (out:gsub(pid .. "> ", ""):gsub("%f[>]>> ", ""))
end

local function has(text, part)
  if not text:find(part, 1, true) then
    error(("there is no %q in\n%s"):format(part, text), 2)
  end
end

local loop = [[
local flare = require "flare"
local w = flare.ones(3, {requires_grad = true})
local optimizer = flare.optim.SGD({w}, {lr = 0})
local steps, done = 0, false
local function step()
  optimizer:zero_grad();
  (w * w):sum():backward()
  optimizer:step()
  steps = steps + 1
end
while not done do step() end
print("w", w:sum():item() < 3, steps > 0)
]]

describe("flare attach", function()
  it("looks into a script at its next line, changes it, and leaves it running", function()
    local saved = os.tmpname() .. ".npy"
    local out = beside(loop, function(pid, path)
      local text = attached(pid, {"optimizer.groups[1].lr", "optimizer.groups[1].lr = 0.25",
        ("flare.save(%q, w:detach())"):format(saved), ":break 12", ":clear"})
      has(text, "->")
      has(text, path .. ":")
      has(text, "\n0")
      has(text, "stops at " .. path .. ":12\n")
      text = attached(pid, {"optimizer.groups[1].lr", ":where", "nothing.x", "error 'mine'"})
      has(text, "0.25\n")
      has(text, "in main chunk\n")
      has(text, "attempt to index a nil value (global 'nothing')")
      has(text, "mine\n")
      attached(pid, {":break 12", ":c", "steps = steps + 1e6; done = true"})
    end)
    assert.equal("w\ttrue\ttrue\n", out)
    assert.equal("f32", require "flare".load(saved).dtype)
    os.remove(saved)
  end)

  it("reads a module again, whose objects get its new methods", function()
    local folder = os.tmpname() .. ".d"
    os.execute("mkdir " .. folder)
    local function module_is(value)
      local file = assert(io.open(folder .. "/answers.lua", "w"))
      file:write("local M = {}\nfunction M.get() return " .. value .. " end\nreturn M\n")
      file:close()
    end
    module_is "false"
    local out = beside([[
      package.path = os.getenv "FOLDER" .. "/?.lua"
      local answers = require "answers"
      while not answers.get() do end
      print(answers.get())]], function(pid)
      attached(pid, {":break 4", ":c"}) -- the module was read
      module_is "'new'"
      has(attached(pid, {":reload answers"}), "reloaded answers\n")
    end, "FOLDER=" .. folder)
    assert.equal("new\n", out)
    os.execute("rm -r " .. folder)
  end)

  it("has no hook in a script to which nothing is attached, before and afterwards", function()
    local out = beside("print(debug.gethook()) done = false while not done do end "
      .. "local hook = debug.gethook()\nprint(hook)", function(pid)
        attached(pid, {"done = true"})
      end)
    assert.equal("nil\nnil\n", out)
  end)

  it("stops in a coroutine that calls flare, and leaves no hook there", function()
    local out = beside([[
      local flare = require "flare"
      local done, hook = false, "none"
      local train = coroutine.wrap(function()
        local w = flare.ones(3)
        while not done do
          w:add_(1)
        end
        hook = debug.gethook()
      end)
      train()
      print(hook, debug.gethook())]], function(pid)
        local text = attached(pid, {"w.shape[1]", ":where", "done = true"})
        has(text, "\n3\n")
        has(text, "in function")
      end)
    assert.equal("nil\tnil\n", out)
  end)

  it("goes on by lines, and at breaks while it is attached", function()
    local out = beside([[
      local n, done = 0, false
      local function add()
        n = n + 1
        return n
      end
      while not done do
        add()
      end
      print "over"]], function(pid)
      local text = attached(pid, {":break 4", ":c", "n = 7", ":step", "n", ":finish", ":clear",
                                  "done = true"})
      has(text, "stopped at a breakpoint\n")
      has(text, "\n8\n")
    end)
    assert.equal("over\n", out)
  end)

  it("is not kept by a client that ends, or that asks for nothing", function()
    local out = beside("done = false while not done do end print 'over'", function(pid)
      local function connect() return Wire.new(assert(alert.connect((attach.path(pid))))) end
      local silent = connect()
      core.net.close(silent.reads)
      local one = connect()
      one:send {stop = true}
      repeat local message = assert(one:wait()) until message.ready
      local other = connect()
      other:send {stop = true}
      -- the script is stopped: it hears of the second one when it goes on, and of both ends
      core.net.close(one.reads)
      repeat local message = assert(other:wait()) until message.refused or message.ready
      core.net.close(other.reads)
      attached(pid, {"done = true"})
    end)
    assert.equal("over\n", out)
  end)

  it("opens only what its user started, and not with FLARE_ATTACH=0", function()
    local out = beside("done = false while not done do end", function(pid)
      local path, folder = attach.path(pid)
      local stat = tree.output(("stat -c %%a '%s' '%s'"):format(folder, path))
      assert.equal("700\n600\n", stat)
      attached(pid, {"done = true"})
    end)
    assert.equal("", out)
    beside("print 'on' io.read 'a'", function(pid)
      has(attached(pid, {"1"}), "is no script of flare's that this user runs")
    end, "FLARE_ATTACH=0")
    -- a folder that others can enter is not used
    local open = os.tmpname() .. ".d"
    os.execute(("mkdir -p '%s/flare' && chmod 755 '%s/flare'"):format(open, open))
    beside("", function(pid)
      has(attached(pid, {"1"}, "XDG_RUNTIME_DIR=" .. open), "is no script of flare's")
    end, "XDG_RUNTIME_DIR=" .. open)
    os.execute("rm -r " .. open)
    has(tree.output(("'%s' attach 0x 2>&1"):format(program)), "the number of a process is expected")
  end)

  it("opens all ranks of a launcher, whose results stay what they are", function()
    local path = written [[
      local flare = require "flare"
      local dist = flare.dist
      dist.init()
      flare.manual_seed(1)
      local w = flare.ones(50)
      go = arg[1] == "go"
      while not go do end
      for step = 1, 100 do
        local g = flare.randn(50) * (dist.rank() + step % 7)
        dist.all_reduce_(g)
        w:sub_(g * 0.01)
      end
      if dist.rank() == 0 then print(("%.9f"):format(w:sum():item())) end]]
    local command = ("echo $$; exec timeout 30 '%s' launch -n 2 '%s' "):format(program, path)
    local alone = tree.output(command .. "go 2>&1"):match "\n(.*)$"
    assert.match("^%-?%d+%.%d+\n$", alone)
    local job = assert(io.popen(command .. "2>&1"))
    local guard = job:read "n"
    local children = ("/proc/%d/task/%d/children"):format(guard, guard)
    local pid, text
    repeat -- until both ranks run
      pid = (core.file.read(children) or ""):match "%d+"
      text = pid and attached(pid, {"go"}) or ""
    until select(2, text:gsub("%] false\n", "")) == 2
    text = attached(pid, {":break 11 if step == 50", "go = true", ":c", "step", "w:sum():item()",
                          ":clear"})
    assert.equal(2, select(2, text:gsub("%] 50\n", "")))
    local first, second = text:match "%] (%-?%d+%.%d+)\n[^\n]*%] (%-?%d+%.%d+)\n"
    assert.equal(first, second) -- before and after the same sum
    job:read "l"
    assert.equal(alone, job:read "a")
    job:close()
    os.remove(path)
  end)

  it("changes nothing in a job of four ranks that is looked at while it trains", function()
    local disturbed, alone, steps, seen, visits, together = again.campaign(100)
    assert.equal(alone, disturbed) -- weights and random numbers of all ranks
    assert.equal(4, select(2, alone:gsub("\n", "")))
    assert.is_true(seen[1] < seen[100] and seen[100] <= steps)
    assert.equal(visits, together) -- all four were stopped, each time
  end)

  it("refuses another user, at both ends of the socket", function()
    if alert.ids() ~= 0 or not os.execute "setpriv --version >/dev/null 2>&1 && perl -e 1" then
      return pending "the administrator, setpriv and perl are needed to be another user"
    end
    local stranger = "setpriv --reuid=65534 --clear-groups perl -MSocket -e"
    local open = tree.output "mktemp -d":gsub("\n", "")
    os.execute(("mkdir -m 700 %s/flare && chmod 755 %s"):format(open, open))
    finally(function() os.execute("rm -r " .. open) end)
    local ask = [[socket(S, 1, 1, 0); connect(S, sockaddr_un(shift)) or die $!;
      print "answer ", sysread(S, $b, 1)]]
    local function answer(user, path)
      return tree.output(("timeout 10 %s '%s' %s 2>&1"):format(user, ask, path))
    end
    beside("done = false while not done do end", function(pid)
      local path = ("%s/flare/%d"):format(open, pid)
      -- opened to all, so that only the question who it is can refuse
      os.execute(("chmod 755 %s/flare; chmod 666 %s"):format(open, path))
      assert.equal("answer 0", answer(stranger, path)) -- closed, while the script goes on
      os.execute(("chmod 700 %s/flare"):format(open))
      attached(pid, {"done = true"}, "XDG_RUNTIME_DIR=" .. open)
    end, "XDG_RUNTIME_DIR=" .. open)
    os.execute("chmod 777 " .. open)
    local job = io.popen(("exec timeout 20 %s 'socket(S, 1, 1, 0); bind(S, sockaddr_un(shift)); "
      .. "listen(S, 1); $| = 1; print \"ready\\n\"; accept(C, S)' %s/theirs"):format(stranger,
      open))
    assert.equal("ready", job:read "l")
    local file, problem = alert.connect(open .. "/theirs")
    job:close()
    assert.same({nil, "the socket is another user's"}, {file, problem})
  end)

  it("completes the script's variables in a terminal", function()
    local out = beside("local answered = false while not answered do end print 'over'",
      function(pid)
        local s = Session.open {arguments = "attach " .. pid}
        if not s then
          attached(pid, {"answered = true"})
          return pending "there is no pseudo-terminal"
        end
        s:keys("answ\t")
        has(s.screen:text(), pid .. "> answered")
        s:enter " = true"
        s.terminal:write "\4"
        s:wait(function() return s.ended end, "the end")
        s:close()
      end)
    assert.equal("over\n", out)
  end)
end)
