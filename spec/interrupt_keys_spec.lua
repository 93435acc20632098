-- Ctrl-C on the keyboard of a terminal stops what is running, and the prompt goes on. None of these
-- would end by itself before the spec fails.
local Session = require "spec.support.session"

-- What prepares, and what is stopped.
local cases = {
  ["string.find"] = {"s = ('a'):rep(60)", "s:find(('a*'):rep(40) .. 'b')"},
  ["string.gsub"] = {"s = ('a'):rep(60)", "s:gsub(('a-'):rep(40) .. 'b', '')"},
  ["string.rep"] = {"n = 1 << 30", "while true do ('ab'):rep(n // 2) end"},
  ["table.sort"] = {
    "t = {} for i = 1, 1e6 do t[i] = i * 7919 % 1000003 end",
    "while true do table.sort(t, rawequal) table.sort(t) end",
  },
  ["table.concat"] = {
    "t = {} for i = 1, 1e6 do t[i] = i end",
    "while true do table.concat(t, ', ') end",
  },
  ["a singular value decomposition"] = {"a = flare.rand(2000, 2000)", "a:svd()"},
  ["long kernels"] = {"a = flare.rand(20000000)", "while true do a:pow(1.7) end"},
  ["a read from a command"] = {"p = io.popen 'sleep 100'", "p:read 'a'"},
  ["a read from a command that ignores it"] = {
    "p = io.popen \"trap '' INT; sleep 4\"",
    "p:read 'a'",
  },
  ["a read from the terminal"] = {"x = 1", "io.read()"},
  ["a command"] = {"x = 1", "os.execute 'sleep 100'"},
  ["a loop of commands"] = {"x = 1", "while true do os.execute 'sleep 0.3' end"},
  ["a command of :!"] = {"x = 1", ":!sleep 100"},
  ["a wait for a channel"] = {"ch = flare.core.channel(1)", "ch:pop()"},
  ["a wait for a thread"] = {"th = flare.spawn 'while true do end'", "th:join()"},
}

describe("Ctrl-C in a terminal stops", function()
  for name, case in pairs(cases) do
    it(name, function()
      local s = Session.open()
      if not s then return pending "there are no pseudo-terminals" end
      s:enter(case[1] .. ";")
      s:keys(case[2])
      s.raw = ""
      s.terminal:write "\r"
      s:wait(function() return s.raw:find "2004l" ~= nil end, "the start")
      os.execute "sleep 0.2"
      s.terminal:write "\3"
      s:see "interrupted!"
      s:ready()
      s:enter "'al' .. 'ive'"
      assert.equal("alive", s:after "'al' .. 'ive'")
      s:close()
    end)
  end

  it("nothing that takes it for itself", function()
    local s = Session.open()
    if not s then return pending "there are no pseudo-terminals" end
    s:enter [[c = "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.1; done";]]
    s:keys "os.execute(c)"
    s.terminal:write "\r"
    s:see "\nbegun"
    s.terminal:write "\3"
    s:see "caught\nnil\nexit\n3"
    assert.is_nil(s.screen:text():find "interrupted!")
    s:ready()
    s:close()
  end)
end)

describe("The prompt", function()
  it("goes on when a command that it writes to has ended", function()
    local s = Session.open()
    if not s then return pending "there are no pseudo-terminals" end
    s:enter "p = io.popen('true', 'w');"
    s:enter "os.execute 'sleep 0.2'; for _ = 1, 9 do p:write(('x'):rep(1 << 20)) end"
    s:enter "'al' .. 'ive'"
    assert.equal("alive", s:after "'al' .. 'ive'")
    s:close()
  end)
end)
