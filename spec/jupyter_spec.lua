-- flare jupyter: the kernel by a client over core.zmq, and by jupyter_client where it is installed.
local flare = require "flare"
local messages = require "spec.support.jupyter_messages"
local tree = require "spec.support.tree"
local core = flare.core

local PROGRAM = tree.output("realpath " .. tree.build .. "/flare"):gsub("\n", "")

-- The modules of the program, which the library does not have.
local function module(path) return dofile("repl/" .. path .. ".lua") end

local function library()
  local net, problem = core.zmq()
  if net then net:close() end
  return net ~= nil, problem
end

local function write(path, text)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

local wire = module "jupyter/wire"

-- A free port of this machine.
local function port()
  local file, number = core.net.listen("127.0.0.1", 0)
  core.net.close(file)
  return number
end

local Client = {}
Client.__index = Client

-- @param before words before the program, as `exec` or variables
local function start(folder, before)
  local self = setmetatable({key = "a secret", session = wire.id(), kinds = {}}, Client)
  local c = {transport = "tcp", ip = "127.0.0.1", key = self.key,
             signature_scheme = "hmac-sha256"}
  for _, name in ipairs {"shell", "control", "stdin", "iopub", "hb"} do
    c[name .. "_port"] = port()
  end
  write(folder .. "/connection.json", core.json.encode(c))
  self.pid = tree.output(("%s %s jupyter kernel %s/connection.json >%s/log 2>&1 & echo $!")
    :format(before or "exec", PROGRAM, folder, folder)):match "%d+"
  self.net = assert(core.zmq())
  local function connect(kind, name)
    return (assert(self.net:socket(kind, ("tcp://127.0.0.1:%d"):format(c[name .. "_port"]))))
  end
  self.shell, self.control = connect("dealer", "shell"), connect("dealer", "control")
  self.iopub, self.hb = connect("sub", "iopub"), connect("req", "hb")
  return self
end

function Client:__close() os.execute("kill -9 " .. self.pid .. " 2>/dev/null") end

-- A subscriber hears what is published once the kernel knows it: asks until then.
-- @return what the kernel is
function Client:meet()
  local info
  repeat
    self:ask(self.shell, "kernel_info_request", {})
    info = assert(self:read(self.shell), "the kernel does not start").content
  until self:read(self.iopub, 0.2)
  repeat until not self:read(self.iopub, 0.2)
  return info
end

-- Sends a request; returns its header's id.
function Client:ask(socket, kind, content, key)
  local frames = wire.write({}, {key = key or self.key, session = self.session, kind = kind,
    content = content})
  assert(self.net:send(socket, frames))
  return core.json.decode(frames[3]).msg_id
end

-- The next message of a socket, which is checked, or nil after so many seconds.
function Client:read(socket, seconds)
  local stop = core.clock() + (seconds or 60)
  repeat
    local frames = self.net:receive(socket)
    if frames then
      local message, kind = messages.check(assert(wire.read(frames, self.key)), frames[#frames])
      self.kinds[kind] = true
      return message
    end
    self.net:poll(50)
  until core.clock() > stop
end

-- Runs a request: the reply's content, and {kind, content} of what was published until idle.
function Client:run(kind, content, socket)
  local id, heard = self:ask(socket or self.shell, kind, content), {}
  local reply = assert(self:read(socket or self.shell), "no reply")
  assert.equal(id, reply.parent.msg_id)
  while true do
    local message = assert(self:read(self.iopub), "nothing is published")
    if message.parent.msg_id == id then
      if message.content.execution_state == "idle" then return reply.content, heard end
      if message.header.msg_type ~= "status" then
        heard[#heard + 1] = {message.header.msg_type, message.content}
      end
    end
  end
end

local function execute(client, code)
  return client:run("execute_request", {code = code, silent = false})
end

describe("flare jupyter", function()
  local here, problem = library()
  local folder
  before_each(function() folder = tree.output "mktemp -d":gsub("\n", "") end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  it("writes the file by which Jupyter finds the kernel", function()
    if not here then return pending(problem) end
    local said = tree.output(("%s jupyter install --prefix %s --name f5 2>&1"):format(PROGRAM,
                                                                                     folder))
    assert.equal(("installed %s/share/jupyter/kernels/f5\n"):format(folder), said)
    local file = flare.core.file.read(folder .. "/share/jupyter/kernels/f5/kernel.json")
    local spec = core.json.decode(file)
    assert.same({PROGRAM, "jupyter", "kernel", "{connection_file}"}, spec.argv)
    assert.equal("lua", spec.language)
    local out = tree.output(("JUPYTER_DATA_DIR=%s/data %s jupyter install 2>&1"):format(folder,
                                                                                       PROGRAM))
    assert.match("/data/kernels/flare\n", out)
    assert.match("unknown word 'now'", tree.output(PROGRAM .. " jupyter install now 2>&1"))
  end)

  it("answers a client", function()
    if not here then return pending(problem) end
    local c <close> = start(folder)
    local info = c:meet()
    assert.equal("lua", info.language_info.name)
    local reply, heard = execute(c, "local x = 6\nprint('one', x)\nx * 7")
    assert.equal("ok", reply.status)
    assert.equal(1, reply.execution_count)
    assert.same({"execute_input", {code = "local x = 6\nprint('one', x)\nx * 7",
                                   execution_count = 1}}, heard[1])
    assert.same({"stream", {name = "stdout", text = "one\t6\n"}}, heard[2])
    assert.equal("42", heard[3][2].data["text/plain"])
    reply, heard = execute(c, "flare.tensor{{x, 2}}")
    assert.equal("ok", reply.status)
    assert.match("<td>6</td><td>2</td>", heard[2][2].data["text/html"])
    reply, heard = execute(c, "error 'on purpose'")
    assert.same({"error", "prompt:1: on purpose"}, {reply.status, reply.evalue})
    assert.equal("error", heard[2][1])
    reply = execute(c, "setmetatable({}, {__mime = function() return {a = print} end})")
    assert.equal("error", reply.status) -- no JSON
    heard = select(2, execute(c, "print('\\xff')"))
    assert.equal("\u{FFFD}\n", heard[2][2].text)
    heard = select(2, execute(c, ":!echo from the shell; echo 2 >&2"))
    assert.equal("from the shell\n2\n", heard[2][2].text)
    -- all cells are one block, which `end` ends
    execute(c, "local mark <close> = setmetatable({}, {__close = function() print 'closed' end})")
    assert.equal("complete", c:run("is_complete_request", {code = "end"}).status)
    heard = select(2, execute(c, "print 'open'\nend"))
    local texts = {} -- one message, or more where writing takes long
    for k = 2, #heard do texts[k - 1] = heard[k][2].text end
    assert.equal("open\nclosed\n", table.concat(texts))
    assert.equal("'end' has nothing to end: no local is declared <close>",
                 execute(c, "end -- again").evalue)
    reply = c:run("complete_request", {code = "flare.softm", cursor_pos = 11})
    assert.same({"softmax"}, reply.matches)
    assert.equal(6, reply.cursor_start)
    for code, name in pairs {["nn.Linear(2, {bi"] = "flare.nn.Linear\n",
                             ["x:softmax("] = "softmax%(x",
                             ["print"] = "print%(%.%.%.%): a function of Lua"} do
      reply = c:run("inspect_request", {code = code, cursor_pos = #code, detail_level = 0})
      assert.match("^" .. name, reply.data["text/plain"])
    end
    assert.equal(2, #select(2, execute(c, "display(1)"))) -- once, and the input
    for _, command in ipairs {"plot", "hist", "heat", "image"} do
      heard = select(2, execute(c, ":" .. command .. " flare.rand(4, 4)"))
      assert.equal("display_data", heard[2][1], command)
      assert.match("^<svg", heard[2][2].data["image/svg+xml"])
      heard = select(2, execute(c, ("flare.rand(4, 4):%s()"):format(command)))
      assert.equal("execute_result", heard[2][1], command)
      assert.match("^<svg", heard[2][2].data["image/svg+xml"])
    end
    -- a request that another key has signed is not run
    c:ask(c.shell, "execute_request", {code = "x = 'stolen'"}, "another secret")
    heard = select(2, execute(c, "x"))
    assert.equal("6", heard[2][2].data["text/plain"])
    c.net:send(c.hb, {"ping"})
    c.net:poll(5000)
    assert.same({"ping"}, c.net:receive(c.hb))
    reply = c:run("shutdown_request", {restart = false}, c.control)
    assert.equal("ok", reply.status)
    for _ = 1, 100 do
      if not os.execute("kill -0 " .. c.pid .. " 2>/dev/null") then break end
      os.execute "sleep 0.05"
    end
    assert.is_nil((os.execute("kill -0 " .. c.pid .. " 2>/dev/null")))
    assert.equal("", flare.core.file.read(folder .. "/log"))
    c.net:close()
  end)

  it("sends every message as the protocol describes it", function()
    if not here then return pending(problem) end
    local c <close> = start(folder)
    c:meet()
    execute(c, "print 'one'; local h = display(1); h:update(2); 3")
    execute(c, "error 'on purpose'")
    c:run("execute_request", {code = "1", user_expressions = {a = "1 + 1", b = "no.such"}})
    c:run("complete_request", {code = "no_such_name", cursor_pos = 12})
    for code in ("print no_such_name flare.nn.Linear"):gmatch "%S+" do
      c:run("inspect_request", {code = code, cursor_pos = #code, detail_level = 0})
    end
    for _, code in ipairs {"x = 1", "for i = 1, 3 do", "x = = 2"} do
      c:run("is_complete_request", {code = code})
    end
    for _, output in ipairs {false, true} do
      c:run("history_request", {output = output, raw = true, hist_access_type = "tail", n = 5})
    end
    c:run("comm_info_request", {})
    c:run("interrupt_request", {}, c.control)
    c:run("shutdown_request", {restart = true}, c.control)
    for _, kind in ipairs(messages.names) do -- jupyter_client below is asked for input
      assert(c.kinds[kind] or kind == "input_request", kind)
    end
    -- the check refuses other fields and values
    local head = {}
    for name in ("msg_id session username"):gmatch "%S+" do head[name] = "a" end
    head.date, head.version, head.msg_type = "2026-01-02T03:04:05Z", "5.3", "stream"
    for wrong, content in pairs {["stream has no text"] = {name = "stdout"},
        ["stream.name is \"out\""] = {name = "out", text = ""},
        ["stream has a field more"] = {name = "stderr", text = "", more = 1}} do
      assert.has_error(function()
        messages.check {header = head, parent = head, metadata = {}, content = content}
      end, wrong)
    end
  end)

  it("answers with an error what an interrupt ends", function()
    if not here then return pending(problem) end
    local c <close> = start(folder, "exec setsid") -- a group of its own, as from jupyter_client
    c:meet()
    for _, code in ipairs {"('a'):rep(60):find(('a*'):rep(40) .. 'b')", "os.execute 'sleep 100'",
        "io.popen('sleep 100'):read 'a'", ":!sleep 100", "while true do os.execute 'sleep 0.3' end",
        "flare.rand(2000, 2000):svd()"} do
      local id = c:ask(c.shell, "execute_request", {code = code})
      repeat until assert(c:read(c.iopub), "it does not run").header.msg_type == "execute_input"
      os.execute "sleep 0.3"
      os.execute("kill -INT -" .. c.pid)
      local reply = assert(c:read(c.shell, 20), code)
      assert.equal(id, reply.parent.msg_id)
      assert.same({"error", "Interrupt"}, {reply.content.status, reply.content.ename}, code)
      assert.matches("interrupted!", reply.content.evalue)
      local out = select(2, execute(c, "20 + 1"))
      assert.equal("21", out[2][2].data["text/plain"])
    end
  end)

  it("ends with the program that started it, also while it waits for an answer", function()
    if not here then return pending(problem) end
    local parent = tree.output "sleep 60 >/dev/null 2>&1 & echo $!":match "%d+"
    local c <close> = start(folder, ("JPY_PARENT_PID=%s exec"):format(parent))
    c:meet()
    c:ask(c.shell, "execute_request", {code = "print 'asks' x = io.read()", allow_stdin = true})
    repeat until assert(c:read(c.iopub), "it does not run").header.msg_type == "stream"
    os.execute("kill " .. parent)
    for _ = 1, 400 do
      if not os.execute("kill -0 " .. c.pid .. " 2>/dev/null") then break end
      os.execute "sleep 0.05"
    end
    assert.is_nil((os.execute("kill -0 " .. c.pid .. " 2>/dev/null")))
  end)

  it("runs the notebook among the examples, with its pictures", function()
    if not here then return pending(problem) end
    local notebook = core.json.decode(flare.core.file.read "examples/tour.ipynb")
    local c <close> = start(folder)
    c:meet()
    local counts = {}
    for _, cell in ipairs(notebook.cells) do
      if cell.cell_type == "code" then
        assert.same({}, cell.outputs)
        local reply, heard = execute(c, cell.source)
        assert.equal("ok", reply.status, cell.source .. "\n" .. tostring(reply.evalue))
        for _, message in ipairs(heard) do
          for mime in pairs(message[2].data or {}) do counts[mime] = (counts[mime] or 0) + 1 end
        end
      end
    end
    assert.equal(2, counts["image/png"])
    assert.equal(7, counts["image/svg+xml"]) -- a curve, and that of the loss six times
    assert.equal(4, counts["text/html"])
  end)

  it("says what is wrong with its arguments", function()
    write(folder .. "/wrong", "{}")
    for words, message in pairs {[""] = "usage: flare jupyter install", ["kernel"] = "usage",
      ["kernel /no/file"] = "No such file", ["kernel " .. folder .. "/wrong"] = "no connection"} do
      assert.match(message, tree.output(("%s jupyter %s 2>&1"):format(PROGRAM, words)))
    end
  end)

  it("is driven by jupyter_client", function()
    local python = os.getenv "PYTHON" or "python3"
    if not here then return pending(problem) end
    if not os.execute(python .. " -c 'import jupyter_client' 2>/dev/null") then
      return pending(python .. " has no jupyter_client (PYTHON names another)")
    end
    os.execute(("%s jupyter install --prefix %s >/dev/null"):format(PROGRAM, folder))
    local text = tree.output(("timeout 120 %s spec/support/jupyter_drive.py %s 2>%s/log"):format(
      python, folder .. "/share/jupyter/kernels", folder))
    local out = core.json.decode(text)
    assert(type(out) == "table", flare.core.file.read(folder .. "/log"))
    local function data(name, k, mime) return out[name][2][k][2].data[mime or "text/plain"] end
    assert.equal("42", data("value", 1))
    assert.equal("20", data("kept", 1))
    assert.same({"a\t1\n", "b", "c"}, {out.print[2][1][2].text, out.print[2][2][2].text,
                                       out.print[2][3][2].text})
    assert.same({"display_data", "1", "execute_result", "2"},
      {out.units[2][1][1], data("units", 1), out.units[2][2][1], data("units", 2)})
    assert.match("^<table>", data("tensor", 1, "text/html"))
    assert.match("<svg", data("svg", 1, "image/svg+xml"))
    assert.match("^iVBORw0KGgo", data("image", 1, "image/png"))
    assert.same({"display_data", "update_display_data"}, {out.display[2][1][1],
                                                          out.display[2][2][1]})
    assert.equal(out.display[2][1][2].transient.display_id,
                 out.display[2][2][2].transient.display_id)
    assert.same({"prompt:1: broken", "  prompt:1: in local 'f'", "  prompt:2: in main chunk"},
                out.error[1].traceback)
    assert.match("unexpected symbol", out.syntax[1].evalue)
    assert.equal("hello you\n", out.input[2][1][2].text)
    assert.match("^softmax%(", out.help[2][1][2].text)
    assert.equal("10", out.expressions[1].user_expressions.a.data["text/plain"])
    assert.equal("error", out.expressions[1].user_expressions.b.status)
    assert.equal(0, #out.silent[2])
    for _, name in ipairs {"interrupt", "interrupt_call", "interrupt_input", "interrupt_pattern",
        "interrupt_command", "interrupt_pipe"} do
      assert.same({"error", "Interrupt"}, {out[name][1].status, out[name][1].ename}, name)
    end
    assert.equal("20", data("after", 1))
    assert.same({"error", "aborted"}, {out.aborted[1].status, out.aborted[2].status})
    assert.same({{"softmax"}, 11, 16}, {out.complete.matches, out.complete.cursor_start,
                                        out.complete.cursor_end})
    assert.match("^flare.nn.Linear\n", out.inspect.data["text/plain"])
    assert.is_false(out.nothing.found)
    assert.same({"complete", "incomplete", "invalid", "incomplete", "complete"}, out.whole)
    assert.equal("os.execute 'sleep 0.5'; error 'stop'", out.history.history[3][3])
    assert.is_true(out.alive and out.ended)
    assert.equal("nil", out.restarted[2][1][2].data["text/plain"])
    assert(#out.messages > 100, #out.messages)
    local asked
    for _, message in ipairs(out.messages) do
      local _, kind = messages.check(message)
      asked = asked or kind == "input_request"
    end
    assert.is_true(asked)
  end)
end)
