-- A text means the same at the prompt and in a file: published-style texts are pasted behind a
-- pseudo-terminal, and what they print is compared with what the program prints for a file.
local Session = require "spec.support.session"
local snippets = require "spec.support.snippets"
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

-- What a file with this text prints; the name of the program before an error is the prompt's own.
local function of_file(text)
  local name = os.tmpname()
  local file <close> = assert(io.open(name, "w"))
  file:write(text)
  file:close()
  local out = tree.output(("'%s' '%s' 2>&1"):format(program, name))
  os.remove(name)
  return (out:gsub("\nflare: ", "\n"):gsub("\nstack traceback:.*$", "\n"))
end

-- Addresses of tables differ from run to run.
local function plain(text) return (text:gsub("0x%x+", "0x")) end

-- What the prompt prints between Enter and its next prompt.
local function answer(s, before)
  s.raw = ""
  s.terminal:write(before)
  s:wait(function() return s.raw:find "\27%[%?2004l.*\27%[%?2004h" ~= nil end, "the answer")
  s:ready()
  return (s.raw:match "\27%[%?2004l\27%[%?25h\27%[0m(.-)\27%[%?2004h":gsub("\r\n", "\n"))
end

describe("what is pasted", function()
  assert(#snippets >= 50, #snippets)
  for i, text in ipairs(snippets) do
    it("prints what a file prints: " .. i .. ", " .. text:match "[^\n]+", function()
      local s = Session.open {columns = 120, rows = 50}
      if not s then return pending "there are no pseudo-terminals" end
      s:paste(text .. "\n")
      local out = answer(s, "\r")
      s:close()
      assert.equal(plain(of_file(text)), plain(out))
    end)
  end

  it("prints the same without the marks of bracketed paste", function()
    for _, i in ipairs {2, 5, 9, 18, 20, 30} do
      local s = Session.open {columns = 120, rows = 50}
      if not s then return pending "there are no pseudo-terminals" end
      s.terminal:write((snippets[i] .. "\n"):gsub("\n", "\r"))
      local expected = of_file(snippets[i]):gsub("\t", "    ")
      s:wait(function(screen) -- each tab of the output goes to a multiple of eight columns
        return screen:text():gsub(" +", " "):find(expected:gsub(" +", " ") .. ">", 1, true)
      end, "snippet " .. i)
      s:close()
    end
  end)
end)

describe("a line at the prompt", function()
  local s
  setup(function() s = Session.open {columns = 100, rows = 40} end)
  teardown(function() if s then s:close() end end)

  -- lines that are entered, and what the last of them prints
  local cases = {
    {"return 5", "5"}, {"= 6", "6"}, {"'a', nil, 2", "a\nnil\n2"}, {"x = 3; x + 1", "4"},
    {"local c <const> = 3", "c = 4", "prompt:1: attempt to assign to const variable 'c'"},
    {"local n = 1; function up() n = n + 1 end", "up()", "n", "2"},
    {"local m = 1; function m_of() return m end", "m = 5", "m_of()", "5"},
    {"local _ <close> = flare.no_grad()", "flare.grad_enabled()", "false"},
    {"x = 1", "flare.grad_enabled()", "false"}, -- later lines belong to the block
    {"end -- of no_grad", "flare.grad_enabled()", "true"},
    {"end", "'end' has nothing to end: no local is declared <close>"},
    {"local _ <close> = flare.no_grad()", ":close", "flare.grad_enabled()", "true"},
    {"local k <close> = 5", "prompt:1: variable 'k' got a non-closable value (a "
     .. "guard is what a call returns: local _ <close> = flare.no_grad())"},
    {"local k <close> = nil; k = 1", "prompt:1: attempt to assign to const variable 'k'"},
    {"z = flare.ones(2)", ":mul(3)", "z:sum():item()", "6.0"},
    {"local kept = 7; error('x', 0)", "kept", "7"},
    {"do local inner = 1 end", "inner", "nil"},
    {"local function rec(k) return k == 0 and 0 or 1 + rec(k - 1) end", "rec(4)", "4"},
    {"local p, q = 1", "p, q", "1\nnil"},
    {"goto done; do print(1) end ::done:: print(2)", "2"},
    {"local v = 1 return v + 1", "2"}, {"v", "1"},
    {"f = function(...) return ... end; f(1, 2)", "1\n2"},
  }

  for _, case in ipairs(cases) do
    it("means what it says: " .. table.concat(case, " | ", 1, #case - 1), function()
      if not s then return pending "there are no pseudo-terminals" end
      local out
      for i = 1, #case - 1 do
        s:keys(case[i])
        out = answer(s, "\r")
      end
      assert.equal(case[#case] .. "\n", out)
    end)
  end

  it("is explained by ?, with the comment, the source line and the last error", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:paste "-- Halves x.\nfunction half(x)\n  return x / 2\nend"
    answer(s, "\r")
    s:keys "?half"
    assert.equal("half(x)  prompt:2\n  Halves x.\n    function half(x)\n      return x / 2\n"
                 .. "    end\n", answer(s, "\r"))
    s:keys "half {}"
    local failed = answer(s, "\r")
    assert.match("^prompt:3: attempt to perform arithmetic on a table value %(local 'x'%)", failed)
    s:keys "?half"
    assert.equal("  last error:\n    " .. failed:gsub("\n(.)", "\n    %1"),
                 answer(s, "\r"):match "  last error:.*$")
    s:paste "--\nfunction other(y)\n  return y\nend" -- at the same line
    answer(s, "\r")
    s:keys "??half"
    assert.equal("prompt:2\n-- Halves x.\nfunction half(x)\n  return x / 2\nend\n", answer(s, "\r"))
    s:keys "??nn.Linear"
    assert.match("^<flare>/nn/linear.lua:%d+\n.*function Linear:init%(", answer(s, "\r"))
    s:keys "??flare.add"
    assert.equal("flare.add is written in C; ?flare.add describes it\n", answer(s, "\r"))
  end)
end)
