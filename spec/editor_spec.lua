-- The line editor behind a pseudo-terminal: keys in, and the screen of an emulated terminal out.
local Session = require "spec.support.session"
local tree = require "spec.support.tree"

local function session(options)
  local opened = Session.open(options)
  if not opened then pending "there are no pseudo-terminals" end
  return opened
end

local function close(s)
  s:close()
end

describe("the editor", function()
  local s
  before_each(function() s = session() end)
  after_each(function() close(s) end)

  local function line() return s.screen:line(s.screen.row) end

  it("colours Lua as it is typed", function()
    s:keys "local s = 'a' .. 12 -- b"
    assert.equal("> local s = 'a' .. 12 -- b", line())
    local colours = {["local"] = "magenta", ["'a'"] = "green", ["12"] = "cyan", ["-- b"] = "grey"}
    for text, colour in pairs(colours) do
      assert.equal(colour, s.screen:style_of(text).colour, text)
    end
    assert.is_nil(s.screen:style_of("s =").colour)
    assert.is_true(s.screen:style_of("> ").bold)
    s:keys("\27[D\27[D\27[D\27[D\21", "for forward in pairs{} do end")
    assert.equal("magenta", s.screen:style_of("for").colour)
    assert.is_nil(s.screen:style_of("forward").colour)
  end)

  it("shows the mate of a bracket and what closes nothing", function()
    s:keys "f(a[1])"
    assert.is_true(s.screen:style_of("(a").underline)
    assert.is_true(s.screen:style_of(")").underline)
    assert.is_nil(s.screen:style_of("[1").underline)
    s:keys "\27[D"
    assert.is_true(s.screen:style_of("[1").underline)
    assert.is_nil(s.screen:style_of("(a").underline)
    s:keys("\3", "do x() end")
    assert.is_true(s.screen:style_of("do").underline)
    s:keys("\3", "x)")
    assert.equal("red", s.screen:style_of(")").colour)
    s:keys "\3"
  end)

  it("moves and deletes as Emacs does", function()
    local cases = { -- keys, the text with | for the cursor
      {"one two", "one two|"}, {"\1", "|one two"}, {"\6\6", "on|e two"}, {"\5", "one two|"},
      {"\2", "one tw|o"}, {"\27b", "one |two"}, {"\27b", "|one two"}, {"\27f", "one| two"},
      {"\27d", "one|"}, {"\25", "one two|"}, {"\23", "one |"}, {"\25\25", "one twotwo|"},
      {"\31", "one two|"}, {"\27[H", "|one two"}, {"\27[3~", "|ne two"}, {"\27[1;5C", "ne| two"},
      {"\11", "ne|"}, {"\21", "|"}, {"\25", "ne two|"}, {"\27y", "two|"}, {"\127", "tw|"},
      {"\20", "wt|"}, {"\27[F!", "wt!|"}, {"\27[1;5D", "|wt!"}, {"\27u", "WT|!"},
      {"\27\127", "|!"}, {"\4", "|"}, {"\21", "|"}, {"(1)", "(1)|"}, {"\27[D\27[D\20", "1(|)"},
      {"\5\21", "|"}, {"abc\1\11", "|"}, {"\31", "|abc"}, {"\31", "|"}, {"\27_", "|abc"},
      {"\27OF\27OD", "ab|c"}, {"\8", "a|c"}, {"\27l", "ac|"},
    }
    for i, case in ipairs(cases) do
      s:keys(case[1])
      local text = line():sub(3)
      local at = s.screen.column - 3
      text = text .. (" "):rep(at - #text)
      assert.equal(case[2], text:sub(1, at) .. "|" .. text:sub(at + 1), "case " .. i)
    end
  end)

  it("knows how wide characters are", function()
    local cases = { -- a text, its columns, characters
      {"e\u{301}", 1, 1}, {"\u{65e5}\u{672c}", 4, 2}, {"\u{1f600}", 2, 1},
      {"\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}", 2, 1}, {"\u{1f44d}\u{1f3fd}", 2, 1},
      {"\u{1f1e9}\u{1f1ea}", 2, 1}, {"\u{d55c}\u{ae00}", 4, 2}, {"\u{fb01}x", 2, 2},
      {"\u{ff21}", 2, 1},
    }
    for _, case in ipairs(cases) do
      s:keys("'" .. case[1] .. "'")
      assert.equal(3 + 2 + case[2], s.screen.column, case[1])
      s:keys(("\27[D"):rep(case[3] + 1))
      assert.equal(3 + 1, s.screen.column, case[1])
      s:keys "\27[3~"
      assert.equal(case[3] == 1 and "> ''" or nil, case[3] == 1 and line() or nil, case[1])
      s:keys "\3"
    end
    s:keys "\1\22"
    assert.equal("> ", line() .. " ")
  end)

  it("breaks long lines, wide characters too, and moves through them", function()
    s:keys(("x"):rep(78))
    assert.same({2, 1}, {s.screen.row, s.screen.column})
    s:keys "yz"
    assert.equal("yz", s.screen:line(2))
    s:keys "\1"
    assert.same({1, 3}, {s.screen.row, s.screen.column})
    s:keys "a"
    assert.equal("> a" .. ("x"):rep(77), s.screen:line(1))
    assert.equal("xyz", s.screen:line(2))
    s:keys("\5\21" .. ("\u{65e5}"):rep(39) .. "a")
    assert.equal("> " .. ("\u{65e5}"):rep(39), s.screen:line(1))
    assert.equal("a", s.screen:line(2))
    s:keys("\21a" .. ("\u{65e5}"):rep(39))
    assert.equal("\u{65e5}", s.screen:line(2))
    s:keys "\3"
  end)

  it("holds a text that is longer than the screen", function()
    local parts = {}
    for i = 1, 60 do parts[i] = ("a%d = %d"):format(i, i) end
    s:paste(table.concat(parts, "\n"))
    assert.equal(">> a60 = 60", line())
    assert.equal(">> a37 = 37", s.screen:line(1))
    s:keys(("\27[A"):rep(40))
    assert.equal(">> a20 = 20", line())
    assert.equal(1, s.screen.row)
    s:keys "\27>"
    s:enter ""
    s:enter "a1 + a60"
    assert.equal("61", s:after "a1 + a60")
    for i = 1, 1500 do parts[i] = "  local a = math.sin(" .. i .. ") -- a line of a long paste" end
    s:paste("do\n" .. table.concat(parts, "\n") .. "\nend") -- too many locals, found in time
    s:enter ""
    s:see "too many local variables"
    s:keys("#'" .. ("abcdefghij"):rep(1000))
    s:enter "'"
    s:see "10000"
  end)

  it("is drawn anew in another size", function()
    s:keys(("a"):rep(70) .. "b")
    s:resize(40, 24)
    assert.equal("> " .. ("a"):rep(38), s.screen:line(1))
    assert.equal(("a"):rep(32) .. "b", s.screen:line(2))
    assert.same({2, 34}, {s.screen.row, s.screen.column})
    s:resize(100, 24)
    assert.equal("> " .. ("a"):rep(70) .. "b", s.screen:text())
    s:resize(20, 10)
    s:keys "c"
    assert.equal(("a"):rep(12) .. "bc", line())
    assert.equal(4, #s.screen:lines())
  end)
end)

describe("a block in the editor", function()
  local s
  before_each(function() s = session() end)
  after_each(function() close(s) end)

  it("is indented, and closed where it was opened", function()
    s:keys("for i = 1, 2 do", "\r", "if i > 1 then", "\r", "print(i, {", "\r", "'x'", "\r", "}")
    assert.equal(">>     }", s.screen:line(s.screen.row))
    s:keys(")", "\r", "else", "\r", "print'one'", "\r", "end", "\r", "end")
    assert.same({"> for i = 1, 2 do", ">>   if i > 1 then", ">>     print(i, {", ">>       'x'",
      ">>     })", ">>   else", ">>     print'one'", ">>   end", ">> end"}, s.screen:lines())
    s:enter ""
    s:see "one"
    assert.match("^one\n2\ttable: 0x", (s:after(">> end"):gsub(" +t", "\tt")))
  end)

  it("is walked through, changed in the middle, and comes back as one", function()
    s:keys("function f(x)", "\r", "return x + 1", "\r")
    s:enter "end"
    s:enter "f(1)"
    assert.equal("2", s:after "> f(1)")
    s:keys("\27[A", "\27[A")
    assert.same({"> function f(x)", ">>   return x + 1", ">> end"},
                table.move(s.screen:lines(), 6, 8, 1, {}))
    assert.equal(8, s.screen.row)
    s:keys("\27[A", "\5", "\127", "10")
    assert.equal(">>   return x + 10", s.screen:line(7))
    s:keys("\r", "-- more") -- a new line in the middle of a block
    assert.equal(">>   -- more", s.screen:line(8))
    s:keys "\27[B"
    s:enter ""
    s:enter "f(1) -- again"
    assert.equal("11", s:after "again")
    s:keys("\27[A", "\27[A", "\27[A")
    assert.equal(">>   -- more", s.screen:line(s.screen.row))
    s:keys("\3", "1", "\27\r", "2")
    assert.equal(">> 2", s.screen:line(s.screen.row))
  end)

  it("is taken whole from a paste, tabs and blank lines included", function()
    s:paste "local function g(n)\n\treturn '\t' .. n\n\nend\n\nprint(#g(5))\n"
    assert.equal(">> print(#g(5))", s.screen:line(s.screen.row)) -- it waits for Enter
    s:enter ""
    assert.equal("2", s:after "print(#g(5))")
    s:keys "\27[A"
    assert.same({"> local function g(n)", ">>     return '    ' .. n", ">>", ">> end", ">>",
                 ">> print(#g(5))"}, table.move(s.screen:lines(), 8, 13, 1, {}))
    s:keys "\3"
    s:paste "> y = flare.ones(3)\n>>   :mul(2)\n"
    s:enter ""
    s:enter "y:sum():item()"
    s:see "6.0"
    s:paste "1 + 1\n?softmax\n2 + 3"
    s:enter ""
    local shown = s.screen:text()
    assert.match("\n2\nsoftmax%(.*\n5\n>", shown)
  end)
end)

describe("the history", function()
  it("is searched backwards and forwards", function()
    local s = session()
    for _, text in ipairs {"alpha = 1", "beta = 2", "alphabet = 3"} do s:enter(text) end
    s:keys("\18", "alp")
    local row = s.screen.row
    assert.equal("> alphabet = 3", s.screen:line(row))
    assert.equal("search: alp", s.screen:line(row + 1))
    s:keys "\18"
    assert.equal("> alpha = 1", s.screen:line(row))
    s:keys "\19"
    assert.equal("> alphabet = 3", s.screen:line(row))
    s:keys "x"
    assert.equal("not found: alpx", s.screen:line(row + 1))
    s:keys("\127", "\5", "0")
    assert.equal("> alphabet = 30", s.screen:line(row))
    s:keys("\3", "kept", "\18", "bet", "\7")
    assert.equal("> kept", s.screen:line(s.screen.row))
    s:keys("\21", "al", "\27[A")
    assert.equal("> alphabet = 3", s.screen:line(s.screen.row)) -- what begins with al
    s:keys "\27[A"
    assert.equal("> alpha = 1", s.screen:line(s.screen.row))
    s:keys("\27[B", "\27[B")
    assert.equal("> al", s.screen:line(s.screen.row))
    close(s)
  end)

  it("is kept by project, each text once, also of two prompts at once", function()
    local place = os.tmpname()
    os.execute(("rm %s; mkdir -p %s/one/.git %s/one/deep %s/two/.git %s/state"):gsub("%%s", place))
    local function open(folder)
      return session {setup = ("unset FLARE_HISTORY; cd %s/%s; export XDG_STATE_HOME=%s/state")
        :format(place, folder, place)}
    end
    local first, second = open "one", open "one/deep"
    first:enter "a = 1"
    second:enter "b = 2"
    first:enter "do\n  c = 3\nend" -- typed ahead of the indentation
    second:enter "a = 1"
    close(first)
    close(second)
    local third, other = open "one", open "two"
    third:keys "\27[A"
    assert.equal("> a = 1", third.screen:line(third.screen.row))
    third:keys("\27[A")
    assert.same({"> do", ">>   c = 3", ">> end"}, third.screen:lines())
    third:keys("\27[A\27[A\27[A", "\27[A\27[A")
    assert.equal("> b = 2", third.screen:text())
    other:keys "\27[A"
    assert.equal(">", other.screen:text())
    local files = {}
    for name in io.popen(("ls %s/state/flare/projects"):format(place)):lines() do
      files[#files + 1] = name
    end
    assert.equal(1, #files)
    assert.match("%%one$", files[1])
    close(third)
    close(other)
    os.execute("rm -r " .. place)
  end)
end)

describe("the terminal", function()
  it("has no colours with NO_COLOR, and no editor where it is dumb", function()
    local s = session {setup = "export NO_COLOR=1"}
    s:keys "local x = 'a'"
    assert.is_nil(s.screen:style_of("local").colour)
    assert.is_nil(s.raw:find("\27%[[%d;]*m"))
    close(s)
    s = session {setup = "export TERM=dumb", wait = false}
    s:see ">"
    s.terminal:write "1 + 41\r"
    s:see "42"
    assert.is_nil(s.raw:find "\27")
    close(s)
  end)

  it("is given back at the end, while a chunk runs, and when the program is killed", function()
    local s = session()
    assert.same({false, false}, {s.terminal:modes()})
    s:keys "io.read()"
    s.terminal:write "\r"
    s:wait(function() return s.raw:find "2004l" ~= nil end)
    s.terminal:write "typed\r"
    s:see "typed\ntyped" -- the echo and the value
    s:ready()
    close(s)
    for _, number in ipairs {15, 1, 3, 6, 11} do
      s = session()
      s.terminal:kill(number)
      s:wait(function() return s.raw:find "2004l" ~= nil end, "the end")
      assert.equal(128 + number, s.terminal:wait())
      close(s)
    end
    s = session()
    s.terminal:write "\4"
    s:wait(function() return s.ended or s.raw:find "2004l" ~= nil end, "the end")
    assert.equal(0, s.terminal:wait())
    close(s)
  end)

  it("is left by Ctrl-C for a new line, and by Ctrl-L empty", function()
    local s = session()
    s:keys("unfinished(", "\3")
    assert.same({"> unfinished(^C", ">"}, s.screen:lines())
    s:keys("abc", "\27[D", "\12")
    assert.equal("> abc", s.screen:text())
    assert.same({1, 5}, {s.screen.row, s.screen.column})
    s:keys "\21\11"
    s:keys "while true do end"
    s.terminal:write "\r"
    s:wait(function() return s.raw:find "2004l" ~= nil end)
    s.terminal:write "\3"
    s:see "interrupted!"
    s:ready()
    s:enter "1 + 1"
    assert.equal("2", s:after "1 + 1")
    close(s)
  end)

  it("does not lose a Ctrl-C that comes between Enter and the text's first line", function()
    local script = tree.written [[
      local Editor = require "flare.repl.editor"
      local read, pid = Editor.read, require "flare".core.net.pid()
      function Editor.read(...)
        local text, dropped = read(...)
        if text == "while true do end" then io.popen("kill -INT " .. pid):close() end
        return text, dropped
      end]]
    local s = session {arguments = "-i " .. script}
    s:enter "while true do end"
    assert.matches("interrupted!", s:after "while true do end")
    s:enter "1 + 1"
    assert.equal("2", s:after "1 + 1")
    close(s)
    os.remove(script)
  end)
end)
