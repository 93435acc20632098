-- The program and its prompt, driven through pipes.
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

-- What a terminal shows when these keys, written for printf, are pressed; nil without script(1) or
-- pseudo-terminals, which a folder made into a machine may lack.
local function typed(locale, keys, history)
  if not os.execute "script -qec true /dev/null >/dev/null 2>&1" then return nil end
  local pipe = assert(io.popen(([[printf '%sexit\n' |
    LC_ALL=%s FLARE_HISTORY='%s' script -qec '%s' /dev/null]])
    :format(keys:gsub("'", "'\\''"), locale, history or "", program)))
  local out = pipe:read "a"
  pipe:close()
  return out
end

describe("the program", function()
  it("runs texts, files and the standard input", function()
    assert.equal("3\n", (flare "-e 'print(1 + 2)'"))
    assert.equal("7\n", (flare("-", "print(3 + 4)")))
    assert.equal("8\n", (flare("", "print(4 + 4)")))
    assert.equal("9\n", (flare("-", "#!/usr/bin/env flare\nprint(4 + 5)")))
  end)

  it("knows its commands, and what is nearly one", function()
    assert.truthy((flare "doctr"):find("cannot open doctr", 1, true))
    assert.truthy((flare "doctr"):find("did you mean the command doctor?", 1, true))
    assert.is_nil((flare "doctr.lua"):find("did you mean", 1, true))
    assert.match("there are: .*compare, .*peers", (flare "bench nothing"))
    for _, name in ipairs {"bench", "doctor", "help", "kernels", "launch"} do
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
    assert.match("near '!' %(Lua writes not equal as ~=", (flare("-", "if 1 != 2 then end")))
    assert.match("^flare: [^\n]*a length is #x%)\nstack traceback", (flare "-e 'len(3)'"))
    local lines = prompt {"x = 1", "x += 1", "len(x)"}
    assert.match("x:add_%(1%)", lines)
    assert.match("a length is #x", lines)
  end)

  it("says what is wrong with its options", function()
    local out, status = flare "-x"
    assert.equal(1, status)
    assert.truthy(out:find("unrecognized option '-x'", 1, true))
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

  it("shows what is in plain tables", function()
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

  it("helps with operators", function()
    assert.truthy(prompt {"?softmax"}:find("divided by their sum", 1, true))
    assert.truthy(prompt {"softmx?"}:find("do you mean softmax?", 1, true))
    assert.truthy(prompt {"?"}:find(":time expression", 1, true))
    assert.same({"there is no softmx: do you mean softmax?\n", 1}, {flare "help softmx"})
  end)

  it("takes letters outside of ASCII on a terminal, whatever the locale", function()
    for _, locale in ipairs {"C", "C.UTF-8"} do
      local out = typed(locale, [[print("\303\251 \346\227\245")\n]])
      if not out then return pending "there is no pseudo-terminal by script(1)" end
      assert.match("\u{e9} \u{65e5}\r?\n", out) -- printed, not echoed
    end
  end)

  it("brings back what was typed in another session", function()
    local name = os.tmpname()
    local file = assert(io.open(name, "w"))
    file:write "print('of ' .. 'old')\n"
    file:close()
    local out = typed("C", [[\033[A\n]], name)
    os.remove(name)
    if not out then return pending "there is no pseudo-terminal by script(1)" end
    if not flare "doctor":find "yes +libedit" then return pending "libedit is not here" end
    assert.match("of old\r?\n", out)
  end)

  it("stops a Lua loop at an interrupt and goes on", function()
    local name = os.tmpname()
    local text = [[
(printf 'while true do end\n'; sleep 1; printf '"alive"\n') |
  sh -c 'echo $$ >"%s"; FLARE_HISTORY= exec "%s" -i' 2>&1 & sleep 0.6; kill -INT $(cat '%s'); wait]]
    local pipe = assert(io.popen(text:format(name, program, name)))
    local out = pipe:read "a"
    pipe:close()
    os.remove(name)
    assert.truthy(out:find("interrupted!", 1, true))
    assert.truthy(out:find("alive", 1, true))
  end)
end)

describe("completion", function()
  local complete = dofile "repl/complete.lua"
  local ones = require("flare").ones

  it("finds names, fields and methods", function()
    local env = {number = 1, x = ones(2), t = {inner = {one = 1}}}
    assert.same({"number"}, complete.words(env, "numb", 0, 4))
    assert.same({"t.inner.one"}, complete.words(env, "t.inner.o", 0, 9))
    local methods = complete.words(env, "x:softm", 0, 7)
    assert.same({"x:softmax", "x:softmax_"}, {methods[1], methods[#methods]})
    assert.same({}, complete.words(env, "nothing.a", 0, 9))
    local rows = {f = {relu = 1, relu_backward = 2, softshrink_backward2 = 3}}
    assert.same({"f.relu"}, complete.words(rows, "f.", 0, 2))
    assert.same({"f.relu_backward"}, complete.words(rows, "f.relu_back", 0, 11))
  end)

  it("finds files inside strings", function()
    assert.same({"repl/main.c"}, complete.words({}, "load 'repl/main.c", 6, 17))
  end)
end)
