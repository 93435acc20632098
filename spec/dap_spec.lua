-- flare dap, by a client that checks each message against the protocol's schema.
local Client = require "spec.support.dap"
local core = require "flare.core"
local tree = require "spec.support.tree"
local written = tree.written

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

-- Runs f(client, path) with a script.
local function session(script, f)
  local client, path = Client.open(), written(script)
  local ok, problem = pcall(f, client, path)
  client:close()
  os.remove(path)
  if not ok then error(problem, 0) end
end

local loop = [[
local flare = require "flare"
local rate = 0.5
local function loss(x, w, ...)
  -- a comment
  local y = x:matmul(w)
  return (y * rate):sum()
end
local settings = {name = "m", sizes = {4, 8, {16}}}
local total = 0
for i = 1, 6 do
  local x, w = flare.ones(2, 3), flare.full({3, 2}, i)
  local l = loss(x, w, "more", settings)
  total = total + l:item()
end
print("total", total)
io.stderr:write "to stderr\n"
]]

describe("flare dap", function()
  it("stops at breakpoints, shows the stack and its variables, and goes on", function()
    session(loop, function(c, path)
      local answers = c:launch {program = path, breakpoints = {[path] = {{line = 4}, {line = 99}}}}
      assert.equal(5, answers[path][1].line) -- the first line with code
      assert.is_true(answers[path][1].verified)
      assert.is_false(answers[path][2].verified)
      local stop, stack = c:stopped()
      assert.equal("breakpoint", stop.reason)
      assert.same({answers[path][1].id}, stop.hitBreakpointIds)
      assert.same({5, 12}, {stack[1].line, stack[2].line})
      assert.same({"function 'loss'", "main chunk"}, {stack[1].name, stack[2].name})
      assert.equal(path, stack[1].source.path)
      local locals = c:variables(stack[1], "Locals")
      assert.equal("f32 (2, 3) cpu", locals.x.value)
      assert.equal("tensor f32", locals.w.type)
      assert.equal('"more"', c:children(locals["..."])["[1]"].value)
      assert.equal("0.5", c:variables(stack[1], "Upvalues").rate.value)
      local settings = c:variables(stack[2], "Locals").settings
      local inside = c:children(settings)
      assert.equal('"m"', inside.name.value)
      assert.equal("16", c:children(c:children(inside.sizes)["[3]"])["[1]"].value)
      assert(c:ask("setBreakpoints", {source = {path = path}}))
      assert(c:ask("continue", {threadId = 1}).allThreadsContinued)
      assert.equal(0, c:event "exited".exitCode)
      c:event "terminated"
      assert.equal("total\t126.0\n", c:output "stdout")
      assert.equal("to stderr\n", c:output "stderr")
      assert(c:ask "disconnect")
    end)
  end)

  it("expands tensors, page by page, and says what they are", function()
    session([[
      local flare = require "flare"
      local x = flare.arange(5000):to("f32"):reshape(2500, 2)
      x.requires_grad = true
      local s = flare.tensor(3.5)
      print(x, s)]], function(c, path)
      c:launch {program = path, breakpoints = {[path] = {{line = 5}}}}
      local _, stack = c:stopped()
      local locals = c:variables(stack[1], "Locals")
      local x = locals.x
      assert.equal(2500, x.indexedVariables)
      local facts = c:children(x, {filter = "named"})
      assert.equal('"(2500, 2)"', facts.shape.value)
      assert.equal("true", facts.requires_grad.value)
      assert.match(":2\"$", facts.made.value)
      local page = c:children(x, {filter = "indexed", start = 2000, count = 2})
      assert.is_nil(page["[2000]"])
      assert.is_nil(page["[2003]"])
      assert.equal("4003.0", c:children(page["[2002]"], {filter = "indexed"})["[2]"].value)
      assert.equal("3.5 (f32 ())", locals.s.value)
      local _, problem = c:ask("variables", {variablesReference = 999})
      assert.match("before the script went on", problem)
    end)
  end)

  it("evaluates and assigns in a frame", function()
    session(loop, function(c, path)
      c:launch {program = path, breakpoints = {[path] = {{line = 5}}}}
      local _, stack = c:stopped()
      local function evaluate(text, frame, context)
        return c:ask("evaluate", {expression = text, frameId = frame or stack[1].id,
                                  context = context or "repl"})
      end
      assert.equal("9.0", evaluate("(x * rate * 3):sum():item()").result)
      assert.equal("more\ttable", (evaluate("...").result:gsub(": .*", "")))
      assert.equal("1", evaluate("i", stack[2].id).result)
      assert.is_true(evaluate("x", nil, "hover").variablesReference > 0)
      evaluate "w = flare.ones(3, 2)"
      evaluate "rate = 100"
      assert.equal("(3, 2)", evaluate("w.shape").result)
      local _, problem = evaluate "x:matmul(x)"
      assert.match("inner sizes 3 and 2 differ", problem)
      _, problem = evaluate "1 +"
      assert.match("unexpected symbol", problem)
      local scope = c:ask("scopes", {frameId = stack[2].id}).scopes[1]
      local set = c:ask("setVariable", {variablesReference = scope.variablesReference,
                                        name = "total", value = "1000 + i"})
      assert.equal("1001", set.value)
      local targets = c:ask("completions", {frameId = stack[1].id, text = "ra", column = 3}).targets
      assert.equal("rate", targets[1].label)
      c:ask("setBreakpoints", {source = {path = path}})
      c:ask("continue", {threadId = 1})
      c:event "exited"
      -- 1001, then 3 * 4 * 100, then twice to six times 3 * 4 * 100
      assert.equal("total\t26201.0\n", c:output "stdout")
    end)
  end)

  it("heeds conditions, counts of hits, and log points", function()
    session(loop, function(c, path)
      c:launch {program = path, breakpoints = {[path] = {
        {line = 13, condition = "i == 2"}, {line = 12, hitCondition = "> 4"},
        {line = 11, logMessage = "i = {i}, {nope.x}"}}}}
      local stop, stack = c:stopped()
      assert.equal(13, stack[1].line)
      assert.equal("2", c:variables(stack[1], "Locals").i.value)
      assert.equal("breakpoint", stop.reason)
      c:ask("continue", {threadId = 1})
      stop, stack = c:stopped()
      assert.same({"breakpoint", 12, "5"}, {stop.reason, stack[1].line,
        c:variables(stack[1], "Locals").i.value})
      assert.match("^i = 1, {attempt to index a nil value.-}\ni = 2, .*i = 5", c:output "console")
      local bad = c:ask("setBreakpoints", {source = {path = path}, breakpoints = {
        {line = 13, condition = "i =="}, {line = 13, hitCondition = "many"}}}).breakpoints
      assert.same({false, false}, {bad[1].verified, bad[2].verified})
      assert.match("no expression", bad[1].message)
    end)
  end)

  it("steps over, into and out of functions", function()
    session(loop, function(c, path)
      c:launch {program = path, stopOnEntry = true}
      local stop, stack = c:stopped()
      assert.same({"entry", 1}, {stop.reason, stack[1].line})
      local function go(command)
        assert(c:ask(command, {threadId = 1}))
        stop, stack = c:stopped()
        assert.equal("step", stop.reason)
        return stack[1].line
      end
      local lines = {}
      for i = 1, 7 do lines[i] = go "next" end
      assert.same({2, 7, 8, 9, 10, 11, 12}, lines)
      assert.same({5, 6}, {go "stepIn", go "stepIn"})
      assert.equal(13, go "stepOut")
    end)
  end)

  it("stops at errors, caught ones only if asked, and says what they are", function()
    local script = [[
      local flare = require "flare"
      local ok = pcall(function() return flare.ones(2):matmul(flare.ones(3)) end)
      local y = flare.tensor{1, -1}:sqrt()
      local t = nil
      print(t.x)]]
    session(script, function(c, path)
      c:launch {program = path, filters = {"uncaught"}}
      local stop, stack = c:stopped()
      assert.same({"exception", 5}, {stop.reason, stack[1].line})
      assert.match("attempt to index a nil value %(local 't'%)", stop.text)
      local info = c:ask("exceptionInfo", {threadId = 1})
      assert.equal("unhandled", info.breakMode)
      assert.equal("true", c:ask("evaluate", {expression = "t == nil", frameId = 1}).result)
      c:ask("continue", {threadId = 1})
      assert.equal(1, c:event "exited".exitCode)
      local text = c:output "stderr"
      assert.match("attempt to index a nil value", text)
      assert.is_nil(text:find("debugger/", 1, true))
    end)
    session("local x = require 'flare'.ones(3)\nx:view(2)", function(c, path)
      c:launch {program = path, filters = {"uncaught"}}
      c:stopped()
      local info = c:ask("exceptionInfo", {threadId = 1})
      assert.match("view: shape %(3%) has 3 elements.*\nf32 %(3%) cpu, made at .*:1$",
                   info.description)
      c:ask("continue", {threadId = 1})
    end)
    session(script, function(c, path)
      c:launch {program = path, filters = {"all", "nan"}}
      local stop, stack = c:stopped()
      assert.same({"exception", 2}, {stop.reason, stack[1].line})
      assert.match("matmul", stop.text)
      c:ask("continue", {threadId = 1})
      stop, stack = c:stopped()
      assert.same({"exception", 3}, {stop.reason, stack[1].line})
      assert.match("sqrt gave NaN", stop.text)
    end)
  end)

  it("pauses a loop that calls nothing, and ends it", function()
    session("local n = 0\nprint 'on'\nwhile true do\n  n = n + 1\nend", function(c, path)
      c:launch {program = path}
      c:event "output"
      local _, problem = c:ask("stackTrace", {threadId = 1})
      assert.equal("the script runs", problem)
      assert(c:ask("pause", {threadId = 1}))
      local stop, stack = c:stopped()
      assert.equal("pause", stop.reason)
      assert.is_true(stack[1].line >= 3 and stack[1].line <= 5)
      assert.equal("number", type(tonumber(c:variables(stack[1], "Locals").n.value)))
      -- a breakpoint that is set while it runs
      c:ask("continue", {threadId = 1})
      c:ask("setBreakpoints", {source = {path = path}, breakpoints = {{line = 4}}})
      assert.equal("breakpoint", c:stopped().reason)
      c:ask("continue", {threadId = 1})
      assert(c:ask "disconnect")
      c:event "terminated"
    end)
  end)

  it("runs without stopping if that is asked for, with arguments and environment", function()
    local script = [[print(table.concat({...}, "\t"), os.getenv "PWD", os.getenv "FLARE_SEEN")]]
    session(script, function(c, path)
      c:launch {program = path, noDebug = true, args = {"a b", "c"}, cwd = "/",
                env = {FLARE_SEEN = "yes"}, breakpoints = {[path] = {{line = 1}}}}
      assert.equal(0, c:event "exited".exitCode)
      assert.equal("a b\tc\t/\tyes\n", c:output "stdout")
    end)
  end)

  it("refuses what it cannot do, in words", function()
    session("print 1", function(c)
      local _, problem = c:ask("threads")
      assert.match("first request is initialize", problem)
      c:ask("initialize", {adapterID = "flare"})
      _, problem = c:ask("launch", {program = "/nowhere.lua"})
      assert.match("there is no /nowhere.lua", problem)
      _, problem = c:ask("launch", {})
      assert.match("the path of the script is missing", problem)
      _, problem = c:ask("evaluate", {expression = "1"})
      assert.match("no script runs", problem)
      assert.same({{id = 1, name = "main"}}, c:ask("threads").threads)
      assert(c:ask "disconnect")
    end)
  end)

  it("listens on a port", function()
    local server = assert(io.popen(("echo $$; exec timeout 30 '%s' dap --port 0"):format(program)))
    local pid, port = server:read "l", math.tointeger(server:read "l":match ":(%d+)$")
    local path = written "print 'over TCP'"
    for _ = 1, 2 do
      local c = Client.connect(port)
      c:launch {program = path}
      c:event "exited"
      assert.equal("over TCP\n", c:output "stdout")
      c:ask "disconnect"
      c:close()
    end
    os.execute("kill " .. pid)
    server:close()
    os.remove(path)
  end)

  it("explains its options", function()
    assert.match("flare dap %[options%]", tree.output(("'%s' dap --help"):format(program)))
    local out = tree.output(("'%s' dap --prot 1 2>&1"):format(program))
    assert.match("did you mean %-%-port", out)
    assert.is_nil(core.json.decode(out))
  end)
end)
