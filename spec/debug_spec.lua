-- The debugger at the prompt: stacks after errors and at breakpoints, through pipes, and once
-- through a terminal.
local Session = require "spec.support.session"
local tree = require "spec.support.tree"
local written = tree.written

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

-- What `flare options script` prints for these lines of input, without prompts; the script's name
-- is FILE.
local function debugged(options, script, lines)
  local file, input = written(script), written(table.concat(lines, "\n") .. "\n")
  local command = "FLARE_HISTORY= '%s' %s '%s' < '%s' 2>&1; echo status $?"
  local out = tree.output(command:format(program, options:gsub("FILE", file), file, input))
  os.remove(file)
  os.remove(input)
  return (out:gsub(file:gsub("%p", "%%%0"), "FILE"):gsub("%f[%w>]debug> ", ""):gsub("%f[>]>> ", ""))
end

local function at_prompt(lines)
  local input = written(table.concat(lines, "\n") .. "\n")
  local out = tree.output(("FLARE_HISTORY= '%s' -i < '%s' 2>&1"):format(program, input))
  os.remove(input)
  return (out:gsub("debug> ", ""):gsub("%f[>]>+ ", ""))
end

local function has(text, part)
  if not text:find(part, 1, true) then
    error(("there is no %q in\n%s"):format(part, text), 2)
  end
end

local function has_not(text, part)
  if text:find(part, 1, true) then error(("there is %q in\n%s"):format(part, text), 2) end
end

local layers = [[
local flare = require "flare"
local rate = 0.5
local function loss(x, w)
  local y = x:matmul(w)
  return (y * rate):sum()
end
local function train(name, ...)
  local x, w = flare.ones(2, 3), flare.zeros(4, 2)
  local total = 0
  for i = 1, 2 do
    total = total + loss(x, w):item()
  end
  return total
end
print("total", train("run", 7, 8))
]]

describe(":debug after an error at the prompt", function()
  it("shows the functions, their variables, and the lines that made tensors", function()
    local out = at_prompt {
      "function f(x, k) local y = x * k; local z = y:matmul(x) return z end",
      "function g(n) local a = flare.ones(2, n) return (f(a, 3)) end", "g(3)", ":debug",
      ":where", "y:sum():item()", ":up", "n", ":locals", ":tensors", ":quit", "1 + 1"}
    has(out, "matmul: (2, 3) x (2, 3): inner sizes 3 and 2 differ")
    has(out, "* 1  prompt:1 in function 'f'\n  2  prompt:1 in function 'g'\n")
    has(out, "18.0\n")
    has(out, "\n3\n")
    has(out, "  n  3\n  a  tensor f32 (2, 3)\n")
    assert.match("1  x +f32 %(2, 3%) cpu, made at prompt:1\n", out)
    assert.match("1  y +f32 %(2, 3%) cpu, made at prompt:1\n", out)
    assert.match("\n2\n", out)
  end)

  it("assigns variables, also those that closures share", function()
    local out = at_prompt {"local count = 1", "function f() local t = {} count = count + 1 "
      .. "return t.a.b end", "f()", ":debug", "t.a = {b = 5}", "t.a.b", "count = 40", "t = 9", "t",
      ":quit", "count"}
    has(out, "5\n")
    has(out, "\n9\n")
    assert.match("40\n$", out)
  end)

  it("keeps the variables until it is left, and no longer", function()
    local out = at_prompt {"function f() local x = flare.ones(1 << 20) error 'no' end", "f()",
      "collectgarbage(); collectgarbage(); flare.memory.stats().live >= 4 << 20", ":debug", ":quit",
      "collectgarbage(); collectgarbage(); flare.memory.stats().live < 1 << 20", ":debug"}
    has(out, "true\n")
    assert.match("true\nthere is no error to look at\n$", (out:gsub("^.-true\n", "", 1)))
  end)

  it("gives the memory back when a device runs short of it", function()
    local out = at_prompt {"flare.memory.limit(8 << 20, 'cpu');",
      "function f() local x = flare.ones(1 << 20) error 'no' end", "f()",
      "y = flare.ones(3 << 19);", "y:sum():item()", ":debug"}
    has(out, "1572864.0\n")
    has(out, "there is no error to look at\n")
  end)

  it("shows the script that failed before the prompt opened", function()
    local out = debugged("-i", "local function f(n) local m = n * 2 error 'no' end\nf(21)",
                         {":debug", "m", ":up", ":quit"})
    has(out, "FILE:1 in function 'f'\n")
    has(out, "42\n")
    has(out, "FILE:2 in main chunk\n")
  end)

  it("says what cannot be done with functions that have ended", function()
    local out = at_prompt {":debug", "error 'one'", ":debug", ":step", ":quit"}
    has(out, "there is no error to look at\n")
    has(out, "an error ended these functions; :quit leaves them\n")
  end)
end)

describe("flare -d", function()
  it("takes the name of a command for a global value of that name", function()
    local out = debugged("-d", "step = 41\nnext = next\nfinish = function() end\nerror 'here'",
                         {"step", "step = 42", "step", ":c"})
    has(out, "41\n")
    has(out, "42\n")
  end)

  it("stops where an error is raised, and goes on with a value in its place", function()
    local out = debugged("-d", layers, {":where", "rate = 3", ":up", "i, ...", "w.shape",
                                        ":continue flare.ones(2, 2)", ":continue flare.ones(2, 2)"})
    has(out, "FILE:4: matmul: (2, 3) x (4, 2): inner sizes 3 and 4 differ\n"
             .. "  f32 (2, 3) cpu, made at FILE:8\n  f32 (4, 2) cpu, made at FILE:8\n"
             .. "FILE:4 in function 'loss'\n")
    has(out, "->    4    local y = x:matmul(w)\n")
    has(out, "* 1  FILE:4 in function 'loss'\n  2  FILE:11 in function 'train'\n"
             .. "  3  FILE:15 in main chunk\n")
    has(out, "1\n7\n8\n")
    has(out, "(4, 2)\n")
    has(out, "total\t24.0\n")
    has(out, "status 0\n")
  end)

  it("ends as without it when nothing is given", function()
    local out = debugged("-d", layers, {":continue"})
    has(out, "flare: FILE:4: matmul")
    has(out, "status 1\n")
    assert.equal(1, select(2, out:gsub("\nFILE:4 in function 'loss'\n", "")))
    out = debugged("-d", layers, {":quit"})
    has(out, "flare: ended in the debugger\nstatus 1\n")
  end)

  it("leaves errors alone that the script catches", function()
    local out = debugged("-d", [[
      local flare = require "flare"
      print(pcall(flare.ones(2).matmul, flare.ones(2), flare.ones(3)))
      print(pcall(error, "mine"))
      print(select("#", pcall(function() local t = nil; return t.x end)))
      local x = nil
      print(x.y)]], {"x = 1", ":continue 2", ":continue"})
    has(out, "false\t")
    has(out, "FILE:6 in main chunk\n")
    has(out, "no call waits for a value here\n")
    has_not(out, "FILE:2 in")
  end)

  it("goes on with a value for error and assert", function()
    local out = debugged("-d", [[
      local function f() return error("no number") end
      print(1 + f())
      print(assert(nil, "nothing"))]], {":where", ":c 4", ":c 'some'"})
    has(out, "FILE:1: no number\n")
    has(out, "* 1  FILE:1 in function 'f'\n  2  FILE:2 in main chunk\n")
    has(out, "5\n")
    has(out, "some\nstatus 0\n")
  end)

  it("sees coroutines", function()
    local out = debugged("-d --break=FILE:3", [[
      local co = coroutine.wrap(function(a)
        local b = a + 1
        coroutine.yield(b)
        error "late"
      end)
      print(co(1))
      print(co())]], {"a, b", "b = 9", "c", "a, b", "c"})
    has(out, "stopped at a breakpoint\nFILE:3 in function")
    has(out, "1\n2\n")
    has(out, "\n9\n")
    has(out, "FILE:4: late\n")
    has(out, "1\n9\n")
  end)
end)

describe("a break", function()
  local loop = [[
local function double(x)
  -- a comment
  local y = x * 2
  return y
end
local sum = 0
for i = 1, 5 do
  sum = sum + double(i)
end
print("sum", sum)
]]

  it("is at a line, at the first one with code, or under a condition", function()
    local out = debugged("--break=FILE:2", loop, {"x", ":clear 3", ":break 4 if x == 4", ":break",
                                                 "c", "y", "y = 100", "c"})
    has(out, "stopped at a breakpoint\nFILE:3 in function 'double'\n")
    has(out, "stops at FILE:4 if x == 4\nFILE:4 if x == 4\n")
    has(out, "stopped at a breakpoint if x == 4\n")
    has(out, "8\n")
    has(out, "sum\t122\n")
    has(debugged("--break=FILE:99", loop, {}), "has no line 99 with code\n")
    has(debugged("--break=nowhere", loop, {}), "a break is FILE:LINE, nan or a shape")
  end)

  it("steps into functions, over them, and to their end", function()
    local out = debugged("--break=FILE:8", loop, {":clear", "step", "x", "step", "y", "finish", "i",
                                                 "n", "i", "n", "n", "i", "c"})
    has(out, "FILE:3 in function 'double'\n")
    has(out, "FILE:4 in function 'double'\n")
    has(out, "\n2\nFILE:7 in main chunk\n")
    has(out, "sum\t30\n")
    assert.equal(2, select(2, out:gsub("in function 'double'", "")))
  end)

  it("is where an operator first gives NaN, or a shape", function()
    local script = [[
      local flare = require "flare"
      local x = flare.tensor {1, 4, -1}
      local y = x:sqrt()
      local z = (y + 1):sum()
      print(z:item())
      print(flare.ones(3, 1) + flare.ones(1, 2))]]
    local out = debugged("--break=nan --break=3x2", script, {"x", ":continue flare.ones(3)",
                                                              ":break", "c"})
    has(out, "stopped at sqrt gave NaN in f32 (3)\nFILE:3 in main chunk\n")
    has(out, "nan\nshape (3, 2)\n")
    has(out, "6.0\n")
    has(out, "stopped at add gave f32 (3, 2)\nFILE:6 in main chunk\n")
    out = debugged("--break=nan", script, {"c"})
    has(out, "nan\n")
    assert.equal(1, select(2, out:gsub("gave NaN", "")))
  end)

  it("is at flare.breakpoint(), which returns its arguments or what is given", function()
    local script = [[
      local flare = require "flare"
      local function f(a) return flare.breakpoint(a, 2) end
      print(f(1))
      print(f(1))]]
    local out = debugged("", script, {"a", "c", ":c 'other', nil"})
    has(out, "stopped at a breakpoint\nFILE:2 in function 'f'\n")
    has(out, "\n1\t2\n")
    has(out, "other\tnil\n")
    -- where the input has ended it does nothing
    assert.equal(1, select(2, debugged("", script, {}):gsub("stopped at", "")))
    has(debugged("", script, {}), "status 0\n")
  end)

  it("needs the program", function()
    local out = tree.output(("LUA_CPATH='%s/lua/?.so' LUA_PATH='stdlib/?.lua;stdlib/?/init.lua' "
      .. "lua5.4 -e 'require \"flare\".breakpoint()' 2>&1"):format(tree.build))
    has(out, "breakpoint: there is no debugger; run the script by the program flare")
  end)
end)

describe("the debugger in a terminal", function()
  it("completes variables of the function, and shows them with ?", function()
    local file = written(layers)
    local s = Session.open {arguments = "-d " .. file}
    if not s then return pending "there is no pseudo-terminal" end
    s:keys("rat\t")
    has(s.screen:text(), "debug> rate")
    s:enter ""
    s:enter "up"
    s:enter "?x"
    has(s:after "?x", "x: a tensor, f32 (2, 3) on cpu")
    s.terminal:write "q\r"
    s:wait(function() return s.ended end, "the end")
    has(s.screen:text(), "flare: ended in the debugger")
    s:close()
    os.remove(file)
  end)
end)
