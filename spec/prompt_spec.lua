-- The program and its prompt, driven through pipes.
local Session = require "spec.support.session"
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

-- What `flare arguments` prints (both streams) for an input, and its exit status.
local function flare(arguments, input)
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write(input or "")
  file:close()
  local pipe = assert(io.popen(("FLARE_HISTORY= '%s' %s < '%s' 2>&1; echo status $?"):format(
    program, arguments, name)))
  local text = pipe:read "a"
  pipe:close()
  os.remove(name)
  local out, status = text:match "^(.*)status (%d+)\n$"
  return out, tonumber(status)
end

local function prompt(lines)
  local out = flare("-i", table.concat(lines, "\n") .. "\n")
  return (out:gsub(">+ ", ""))
end

-- What a terminal shows when these keys are pressed before the prompt is there; nil without
-- pseudo-terminals, which a folder made into a machine may lack.
local function typed(locale, keys, history)
  local s = Session.open {wait = false, arguments = "",
    setup = ("export LC_ALL=%s FLARE_HISTORY='%s'"):format(locale, history or "")}
  if not s then return nil end
  s.terminal:write(keys .. "exit\n")
  s:wait(function() return s.ended end)
  s:close()
  return (s.raw:gsub("\27%[[%d;?]*[%a]", "")) -- colours, movements
end

describe("the program", function()
  it("runs texts, files and the standard input", function()
    assert.equal("3\n", (flare "-e 'print(1 + 2)'"))
    assert.equal("7\n", (flare("-", "print(3 + 4)")))
    assert.equal("8\n", (flare("", "print(4 + 4)")))
    assert.equal("9\n", (flare("-", "#!/usr/bin/env flare\nprint(4 + 5)")))
  end)

  it("knows its commands, and suggests the nearest", function()
    assert.truthy((flare "doctr"):find("cannot open doctr", 1, true))
    assert.truthy((flare "doctr"):find("did you mean the command doctor?", 1, true))
    assert.is_nil((flare "doctr.lua"):find("did you mean", 1, true))
    assert.match("there are: .*compare, .*peers", (flare "bench nothing"))
    local names = "attach bench dap doctor eval help kernels launch record serve simulate"
    for name in names:gmatch "%S+" do
      assert.match("\n  " .. name .. " ", (flare "--help"))
    end
  end)

  it("gives scripts their arguments", function()
    local name = os.tmpname()
    local file = assert(io.open(name, "w"))
    file:write "print(#arg, arg[0] ~= nil, ...)"
    file:close()
    assert.equal("2\ttrue\ta\tb\n", (flare(name .. " a b")))
    os.remove(name)
  end)

  it("loads libraries into globals", function()
    assert.equal("table\ttable\n", (flare "-l flare -l f=flare -e 'print(type(flare), type(f))'"))
  end)

  it("ends with a traceback of Lua lines and status 1", function()
    local out, status = flare [[-e "local function deep() error('no') end deep()"]]
    assert.equal(1, status)
    assert.truthy(out:find("no", 1, true))
    assert.truthy(out:find("stack traceback", 1, true))
    assert.falsy(out:find("main.lua", 1, true)) -- none of the program's own
    assert.match("^flare: module 'nosuch' not found:\n", (flare "-l nosuch"))
  end)

  it("gives a hint with errors of Lua's own", function()
    local out, status = flare [[-e "x = 1 x += 1"]]
    assert.equal("flare: (command line):1: syntax error near '+' (Lua has no += or ++: "
                 .. "x = x + 1, or x:add_(1))\n", out)
    assert.equal(1, status)
    assert.match("near '!' %(Lua writes not x, and not equal as ~=",
                 (flare("-", "if 1 != 2 then end")))
    assert.match("^flare: [^\n]*a length is #x%)\nstack traceback", (flare "-e 'len(3)'"))
    local lines = prompt {"x = 1", "x += 1", "len(x)"}
    assert.match("x:add_%(1%)", lines)
    assert.match("a length is #x", lines)
  end)

  it("says what is wrong with its options", function()
    local out, status = flare "-x"
    assert.equal(1, status)
    assert.truthy(out:find("unrecognized option '-x'\n", 1, true))
    out = flare "--hlp"
    assert.truthy(out:find("unrecognized option '--hlp' (did you mean '--help'?)\n", 1, true))
    assert.truthy(out:find("usage:", 1, true))
  end)
end)

describe("the prompt", function()
  it("prints expressions without return, and not after a ;", function()
    assert.equal("3\n", prompt {"1 + 2", "1 + 3;"})
    assert.equal("a\n2\n", prompt {"'a', 2"})
  end)

  it("reads on where a line is no whole statement", function()
    assert.equal("42\n", prompt {"x = 20 +", "1", "x * 2"})
    assert.equal("6\n7\n", prompt {"local y =", "6", "y", "y +", "1"})
    assert.equal("3\n", prompt {"for k = 3, 3 do", "print(k)", "end"})
  end)

  it("shows modules in plain tables", function()
    assert.equal('{1, "a", {2, {3, {...}}}, b = true, ["c d"] = f32 (2, 3)}\n',
                 prompt {"{1, 'a', {2, {3, {4}}}, b = true, ['c d'] = flare.ones(2, 3)}"})
    assert.equal("{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...}\n{}\n",
                 prompt {"local t = {} for i = 1, 99 do t[i] = i end", "t", "{}"})
  end)

  it("is left by exit and quit, unless they are something", function()
    assert.equal("1\n", prompt {"1", "exit", "2"})
    assert.equal("1\n", prompt {"1", "quit()", "2"})
    assert.equal("3\n2\n", prompt {"exit = 3", "exit", "2"})
  end)

  it("leaves its own lines and the library's out of tracebacks", function()
    assert.equal("prompt:1: there is no flare.soft (did you mean 'sort'?)\n", prompt {"flare.soft"})
  end)

  it("refuses unknown names in strict mode, and knows all that have a value", function()
    assert.equal("prompt:1: there is no variable 'learnrate' (did you mean 'learn_rate'?)\n"
      .. "prompt:1: there is no variable 'flar' (did you mean 'flare'?)\n"
      .. "prompt:1: there is no variable 'kpet' (did you mean 'kept'?)\n"
      .. "nil\nnil\ntrue\nnil\nnil\n",
      prompt {"learn_rate = 0.1; local kept, empty = 1", "flare.strict()", "learnrate", "flar.ones",
              "kpet + 1", "given = nil", "given", "empty", "nn ~= nil", "flare.strict(false)",
              "learnrate", "rawget(_G, 'learnrate')"})
    assert.equal("prompt:1: there is no variable 'widht' (did you mean 'width'?)\n"
      .. "  prompt:1: in function 'area'\n  prompt:1: in main chunk\n",
      prompt {"flare.strict()", "function area(width) return widht end", "area(1)"})
    assert.is_nil(prompt {"flare.strict()", "?nothing"}:find("no variable", 1, true))
  end)

  it("keeps top-level locals", function()
    assert.equal("6\n7\n", prompt {"local a = 5", "a + 1", "a = 6", "a + 1"})
    assert.equal("nil\n", prompt {"do local b = 1 end", "b"})
  end)

  it("reads on until a chunk is whole", function()
    assert.equal("1\n2\n", prompt {"for i = 1, 2 do", "print(i)", "end"})
  end)

  it("goes on after errors", function()
    local out = prompt {"error 'one'", "1 +", "", "(", ")", "'two'"}
    assert.truthy(out:find("one", 1, true))
    assert.truthy(out:find("two", 1, true))
  end)

  it("knows flare, nn and optim, and remembers the last value", function()
    assert.equal("true\ntrue\n", prompt {"nn and optim and data ~= nil", "_"})
    assert.truthy(prompt {"flare.ones(2)"}:find("flare.tensor f32 [2] cpu", 1, true))
  end)

  it("shows its own lines again, shows tables in errors, and names the line typed", function()
    assert.equal("3\n7\n", prompt {"> 3", "x = 5 +", ">> 2", "x"})
    assert.equal('{code = 2}\n', prompt {"error({code = 2})"})
    assert.equal("prompt:1: summary: give the shape of the input, like {32, 784}\n",
      prompt {"nn.Linear(2, 2):summary()"})
    assert.equal("4\n2\n", prompt {"(function() return 4, 2 end)() -- both"})
  end)

  it("helps by name", function()
    local help = prompt {"help"}
    assert.equal(help, prompt {"help()"})
    assert.match(":time expression", help)
    assert.equal(prompt {"?zeros"}, prompt {'help "zeros"'})
    assert.match(":time expression", prompt {":time"})
    assert.equal("5\n", prompt {"help = 5", "help"})
  end)

  it("lists operators in groups where no name is given, on one screen", function()
    local out = flare "help"
    assert.match("several inputs, by element:\n  add ", out)
    assert.match("\n  .*%f[%w_]softmax%f[^%w_]", out)
    for inner in ("gamma_daa comm_all_reduce lstm_cell adam_step _backward"):gmatch "%S+" do
      assert.is_nil(out:find(inner, 1, true), inner)
    end
    assert(select(2, out:gsub("\n", "")) < 60)
  end)

  it("helps with operators", function()
    assert.truthy(prompt {"?softmax"}:find("divided by their sum", 1, true))
    assert.truthy(prompt {"softmx?"}:find("do you mean softmax?", 1, true))
    assert.truthy(prompt {"?"}:find(":time expression", 1, true))
    assert.same({"there is no softmx: do you mean softmax?\n", 1}, {flare "help softmx"})
  end)

  it("takes letters outside of ASCII on a terminal, whatever the locale", function()
    for _, locale in ipairs {"C", "C.UTF-8"} do
      local out = typed(locale, 'print("\u{e9} \u{65e5}")\n')
      if not out then return pending "there is no pseudo-terminal" end
      assert.match("\u{e9} \u{65e5}\r?\n", out) -- printed, not echoed
    end
  end)

  it("takes a method on the next line as part of the expression or assignment", function()
    assert.equal("6.0\n", prompt {"z = flare.ones(3)", "  :mul(2)", "  :sum()", "z:item()"})
    assert.equal("12.0\n", prompt {"z = flare.ones(3)", ":mul(2)", ":mul(2)", "z:sum():item()"})
    assert.equal("ab\n", prompt {"local s = 'a'", "  .. 'b'", "s"})
    assert.equal(":z() continues the line before, which has no value\n",
                 prompt {"do end", ":z()"})
    -- typed later, when the line before has run
    local out = typed("C", "z = flare.ones(3)\n:mul(4)\nz:sum():item()\n")
    if not out then return pending "there is no pseudo-terminal" end
    assert.match("\n12.0\r?\n", out)
  end)

  it("takes a bracketed paste whole and stops at its first error", function()
    local out = typed("C", "\27[200~local a = 6\nfunction f(x)\n  return x * a\nend\nprint(f(7))\n"
      .. "z = flare.ones(3)\n  :mul(2)\n  :sum()\nz:item()\n\27[201~\n")
    if not out then return pending "there is no pseudo-terminal" end
    assert.match("\n42\r?\n6.0\r?\n", out)
    out = typed("C", "\27[200~print(40 + 1)\nnosuch()\nprint(40 + 2)\n\27[201~\nprint(40 + 3)\n")
    assert.match("\n41\r?\nprompt:2: ", out)
    assert.is_nil(out:find("\n42\r?\n"))
    assert.match("\n43\r?\n", out)
    out = typed("C", "\27[200~40 + 1\nnosuch()\n40 + 2\n\27[201~\n40 + 3\n") -- not a file's text
    assert.match("\n41\r?\n.*the rest of the paste was not run", out)
    assert.is_nil(out:find("\n42\r?\n"))
    assert.match("\n43\r?\n", out)
  end)

  it("keeps constants, and values to be closed until they are replaced", function()
    assert.equal("4\n", prompt {"local c <const> = 3", "c + 1"})
    assert.match("attempt to assign to const variable 'c'", prompt {"local c <const> = 3", "c = 4"})
    local guard = "setmetatable({}, {__close = function() print(%q) end})"
    local function open(name, said)
      return ("local %s <close> = %s"):format(name, guard:format(said))
    end
    assert.equal("1\nclosed\n2\n", prompt {open("g", "closed"), "1", "g = nil", "2"})
    assert.equal("old\n1\nnew\n", prompt {open("g", "old"), open("g", "new"), "1"})
    assert.equal("closed\n1\n", prompt {open("g", "closed"), ":close g", "1"})
    assert.equal("1\nb\na\n", prompt {open("a", "a"), open("b", "b"), "1"})
    assert.equal("b\na\n1\n", prompt {open("a", "a"), open("b", "b"), "end", "1"})
    assert.equal("inner\n1\nouter\n2\n", prompt {open("g", "outer"), "do", open("g", "inner"),
      "end", "1", "end", "2"})
    assert.equal("false\ntrue\n", prompt {"local _ <close> = flare.no_grad()",
      "flare.grad_enabled()", ":close", "flare.grad_enabled()"})
    local out = prompt {open("g", "closed") .. " error 'oops'", "g == nil"}
    assert.match("closed\n.*oops\n", out)
    assert.match("\ntrue\n$", out)
    assert.equal("inner\n1\n", prompt {"do " .. open("g", "inner") .. " end", "1"})
    assert.match("no local h is declared <close>", prompt {":close h"})
  end)

  it("prints what return and = give, and the last expression of a line", function()
    assert.equal("5\n", prompt {"return 5"})
    assert.equal("7\n", prompt {"x = 7;", "= x"})
    assert.equal("3\n", prompt {"x = 3; x"})
    assert.equal("4\n5\n", prompt {"local a, b = 4, 5; a", "b"})
  end)

  it("runs commands of the shell and names unknown commands", function()
    assert.equal("from sh\n", prompt {":!echo from sh"})
    assert.match("exit status 3", prompt {":! exit 3"})
    assert.match("there is no command :xyzzyx; :help lists them", prompt {":xyzzyx"})
    assert.match("there is no command :quitt %(did you mean :quit%?%)", prompt {":quitt"})
    assert.match("the file is missing: :watch file", prompt {":watch"})
    assert.equal(prompt {"?softmax"}, prompt {":help softmax"})
  end)

  it("describes the values of the script", function()
    local out = prompt {"x = flare.ones(2, 3)", "?x"}
    assert.match("^x: a tensor, f32 %(2, 3%) on cpu", out)
    out = prompt {"-- Adds one.", "function f(a, b) return a + 1 end", "?f"}
    assert.equal("f(a, b)  prompt:1\n  Adds one.\n    function f(a, b) return a + 1 end\n", out)
    assert.match("^m: a module, Linear, 9 parameters\n", prompt {"m = nn.Linear(2, 3)", "?m"})
    assert.match("^m.fc.weight: a tensor, f32 %(3, 2%)",
                 prompt {"m = {fc = nn.Linear(2, 3)}", "?m.fc.weight"})
    assert.match("^t: a table of 2 entries\n  a  number\n", prompt {"t = {1, a = 2}", "t?"})
    assert.match("^s: a string, \"a\"", prompt {"local s = 'a'", "?s"})
    assert.equal(prompt {"?nn.Linear"}, prompt {"nn = flare.nn", "?nn.Linear"})
  end)

  it("goes on whatever a chunk does to the globals", function()
    assert.match("divided by their sum", prompt {"print = nil", "?softmax"})
    assert.equal("4\n", prompt {"print, type, tostring, pcall, table, io = nil", "4"})
    assert.equal("ReLU()\n4\n", prompt {
      "os, io, debug, string, math, next, ipairs, pairs, load, select, error, coroutine = 1",
      "nn.ReLU()", "2 + 2"})
  end)

  it("lets scripts assign to Lua's globals", function()
    local name = os.tmpname()
    local file <close> = assert(io.open(name, "w"))
    file:write [[
      debug, type, next, string, select, error, math = true, "f32", 5, "x", 1, false, {}
      os, pairs, ipairs, load, setmetatable, table, rawget, tostring = 1, 2, 3, 4, 5, 6, 7, 8
      local flare = require "flare"
      local nn = flare.nn
      local model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
      local optimizer = flare.optim.Adam(model, {lr = 0.1})
      model(flare.ones(3, 2)):sum():backward()
      optimizer:step()
      print(model[1], pcall(nn.Linear, 2))
      for x in flare.data.Loader(flare.data.Tensors(flare.ones(4, 2)), {batch = 4}):epoch() do
        print(x.shape, type, debug)
      end
    ]]
    file:close()
    assert.equal("Linear(2 -> 2)\tfalse\t" .. name .. ":9: nn.Linear: outputs must be an integer "
      .. "of at least 1, got nil\n(4, 2)\tf32\ttrue\n", (flare(name)))
    os.remove(name)
  end)

  it("opens after a script that failed, with its globals", function()
    local name = os.tmpname()
    local file = assert(io.open(name, "w"))
    file:write "value = 41\nerror 'stopped here'\n"
    file:close()
    local out, status = flare("-i " .. name, "value + 1\n")
    os.remove(name)
    assert.match("stopped here", out)
    assert.match("42\n", out)
    assert.equal(1, status)
  end)

  it("survives Alt-x with an open quote", function()
    local out = typed("C", "\27x} \" =\nprint(6 * 7)\n")
    if not out then return pending "there is no pseudo-terminal" end
    assert.match("\n42\r?\n", out)
  end)

  it("recalls lines of another session", function()
    local name = os.tmpname()
    local file = assert(io.open(name, "w"))
    file:write "print('of ' .. 'old')\n"
    file:close()
    local out = typed("C", "\27[A\n", name)
    os.remove(name)
    if not out then return pending "there is no pseudo-terminal" end
    assert.match("of old\r?\n", out)
  end)

  it("stops a Lua loop at an interrupt and goes on", function()
    local name = os.tmpname()
    -- the loop says by the file that it has begun; the next line comes when it has ended
    local loop = ("file = io.open('%s', 'w'); file:write((require('flare').core.net.pid())); "
      .. "file:close(); while true do end"):format(name)
    local out = tree.output(([[
      (echo "%s"; for i in $(seq 2000); do grep -q . '%s' && break; sleep 0.02; done; sleep 0.1
       kill -INT $(cat '%s'); echo '"alive"') | FLARE_HISTORY= timeout 120 '%s' -i 2>&1]])
      :format(loop, name, name, program))
    os.remove(name)
    assert.truthy(out:find("interrupted!", 1, true))
    assert.truthy(out:find("alive", 1, true))
  end)
end)
